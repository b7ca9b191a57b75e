"""Kill a build at random moments, again and again; what comes out in the end must be what an
undisturbed one gives.

    python -m torture.build --data FILE --tokenizer spiece.model --kills 50 --out torture.json

A kill is SIGKILL to the process that reads and writes, at a moment drawn evenly over what an
undisturbed build takes from its first file in the work folder on. Workers must end by themselves;
the number of workers changes from start to start.
"""

import argparse
import hashlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.common.results import add_out, begin, publish


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, nargs="+", help="corpus files")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--shard-tokens", type=int, default=400_000)
    parser.add_argument("--seed", type=int, default=0)
    add_out(parser)
    options = parser.parse_args()
    begin(options.out)
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="litebert-torture-") as folder:
        undisturbed = Path(folder) / "whole"
        seconds = run(options, undisturbed, workers=2)
        expected = contents(undisturbed)
        kills, builds, hit = 0, 0, Counter[str]()
        orphans: list[int] = []
        identical = True
        while kills < options.kills:
            out = Path(folder) / f"build-{builds}"
            while kills < options.kills and not (out / "index.json").exists():
                kills += kill(
                    options,
                    out,
                    workers=draw.choice((1, 2)),
                    after=draw.uniform(0, seconds),
                    hit=hit,
                    orphans=orphans,
                )
            run(options, out, workers=2)
            identical = identical and contents(out) == expected
            builds += 1
        time.sleep(2)
        figures = {
            "kills": kills,
            "killed_while": dict(sorted(hit.items())),
            "builds_finished_after_kills": builds,
            "byte_identical": identical,
            "files_compared": len(expected),
            "undisturbed_seconds": seconds,
            "workers_of_killed_builds": len(orphans),
            "of_these_still_there": sum(map(is_worker, orphans)),
        }
    publish(figures, options.out)
    sys.exit(not identical)


def command(options: argparse.Namespace, out: Path, workers: int) -> list[str]:
    code = "import sys; from litebert.cli import main; main(sys.argv[1:])"
    words = ["--tokenizer", options.tokenizer, "--out", str(out), "--workers", str(workers)]
    return [
        sys.executable,
        "-c",
        code,
        "data",
        "build",
        *options.data,
        *words,
        "--shard-tokens",
        str(options.shard_tokens),
    ]


def run(options: argparse.Namespace, out: Path, *, workers: int) -> float:
    began = time.monotonic()
    subprocess.run(
        command(options, out, workers),
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.monotonic() - began


def kill(
    options: argparse.Namespace,
    out: Path,
    *,
    workers: int,
    after: float,
    hit: Counter[str],
    orphans: list[int],
) -> int:
    """Start a build and kill it; 1 if it was killed, 0 if it was done before."""
    process = subprocess.Popen(
        command(options, out, workers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None and not (out / ".build").exists():
        time.sleep(0.002)
    try:
        process.wait(timeout=after)
        return 0
    except subprocess.TimeoutExpired:
        workers_seen = children_of(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        orphans += workers_seen
    published = len(list(out.glob("*.tokens.npy")))
    state = (
        "after the index" if (out / "index.json").exists() else f"{published:02d} shards published"
    )
    hit[state] += 1
    return 1


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def children_of(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in tasks for child in path.read_text().split()]


def is_worker(pid: int) -> bool:
    try:
        return b"litebert.data.runners" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


if __name__ == "__main__":
    main()
