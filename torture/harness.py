"""What campaigns share: signals sent to a run that is resumed every time, and damaged files read by
a process under a limit."""

import argparse
import bz2
import gzip
import lzma
import multiprocessing
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import zstandard

from bench.common.results import add_out, begin, publish
from tests.helpers.launch import finish, is_moving, state

Begin = Callable[[Path], "subprocess.Popen[str]"]
"""Starts or resumes the command in a folder."""
Same = Callable[[Path, Path], bool]


def chain(
    begin: Begin,
    last: Begin,
    same: Same,
    out: Path,
    undisturbed: Path,
    kinds: list[signal.Signals],
    draw: random.Random,
    most: float,
) -> Counter[str]:
    """Send each signal within `most` seconds of a run's being on its way, let the last one finish,
    compare."""
    result: Counter[str] = Counter()
    for kind in kinds:
        process = begin(out)
        if not is_moving(process, out):
            result["finished before its signal"] += 1
            break
        time.sleep(draw.uniform(0, most))
        process.send_signal(kind)
        code = finish(process)
        if code == 0:
            result["finished before its signal"] += 1
            break
        if kind == signal.SIGKILL:
            result["killed"] += 1
        else:
            result[
                "saved"
                if code == 75 and state(out) == "interrupted"
                else f"exit {code}, {state(out)}"
            ] += 1
    code = finish(last(out), 300)
    result["equal" if code == 0 and same(out, undisturbed) else "broken"] += 1
    return result


def campaign(
    begin: Begin,
    last: Begin,
    same: Same,
    folder: Path,
    name: str,
    count: int,
    draw: random.Random,
    *,
    most: float,
) -> dict[str, int]:
    """Chains of up to ten signals until `count` have been sent; the undisturbed run is
    folder/whole."""
    soft = [signal.SIGTERM, signal.SIGTERM, signal.SIGINT]
    total: Counter[str] = Counter()
    done = 0
    while done < count:
        kinds = [
            signal.SIGKILL if name == "kills" else draw.choice(soft)
            for _ in range(min(10, count - done))
        ]
        result = chain(
            begin, last, same, folder / f"{name}-{done}", folder / "whole", kinds, draw, most
        )
        done += (
            sum(result.values())
            - result["finished before its signal"]
            - result["equal"]
            - result["broken"]
        )
        total += result
        print(name, done, dict(total), file=sys.stderr, flush=True)
    return dict(total)


PACKS = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.compress,
}


def fuzz_command(
    description: str | None,
    generated: Callable[[int, random.Random], Iterator[tuple[str, bytes]]],
    handmade: Callable[[], Iterator[tuple[str, bytes]]],
    read: Callable[[str], str],
) -> None:
    """The command line of a fuzzing campaign; exits with 1 where a file broke the reader."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--generated", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="longest time a file may take, by its CPU time"
    )
    add_out(parser)
    options = parser.parse_args()
    begin(options.out)
    files = {
        "generated": generated(options.generated, random.Random(options.seed)),
        "handmade": handmade(),
    }
    figures = {kind: fuzz(each, options.seconds, read) for kind, each in files.items()}
    publish(figures, options.out)
    raise SystemExit(
        any(each[key] for each in figures.values() for key in ("tracebacks", "too_slow"))
    )


def fuzz(
    files: Iterator[tuple[str, bytes]], limit: float, read: Callable[[str], str]
) -> dict[str, object]:
    """Read every file in both ways, with bad rows refused and left out."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    child = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, read))
    child.start()
    answers: Counter[str] = Counter()
    slow, broken, longest = [], [], 0.0
    with tempfile.TemporaryDirectory(prefix="litebert-fuzz-") as folder:
        for number, (suffix, data) in enumerate(files):
            path = Path(folder) / f"f{suffix}"
            path.write_bytes(data)
            ours.send(str(path))
            answer, seconds = ours.recv()
            longest = max(longest, seconds)
            answers["error told" if answer.startswith("DataError") else answer.split(":")[0]] += 1
            if seconds > limit:
                slow.append((number, suffix, seconds))
            if answer.startswith("Traceback"):
                broken.append((number, suffix, answer[-400:]))
            path.unlink()
    ours.send(None)
    peak = ours.recv()
    child.join()
    return {
        "files": sum(answers.values()),
        "said": dict(answers),
        "tracebacks": broken,
        "too_slow": slow,
        "longest_cpu_seconds": longest,
        "peak_rss_mib": peak / 1024,
    }


def serve(connection: Connection, read: Callable[[str], str]) -> None:
    while (path := connection.recv()) is not None:
        began = time.process_time()
        answer = read(path)
        connection.send((answer, time.process_time() - began))
    connection.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def damage(data: bytes, draw: random.Random) -> bytes:
    harmed = bytearray(data)
    for _ in range(draw.randint(1, 6)):
        if not harmed:
            break
        at = draw.randrange(len(harmed))
        end = min(len(harmed), at + draw.choice((1, 1, 8, 200)))
        how = draw.randrange(5)
        if how == 0:
            harmed[at] = draw.randrange(256)
        elif how == 1:
            del harmed[at:end]
        elif how == 2:
            harmed[at:at] = harmed[at:end]
        elif how == 3:
            harmed[at:end] = draw.choice((b"\0", b"\xff", b"\n", b"{", b'"', b"\\ud800")) * (
                end - at
            )
        elif draw.random() < 0.3:
            del harmed[at:]
    return bytes(harmed)
