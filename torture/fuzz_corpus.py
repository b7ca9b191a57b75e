"""Bad files by the thousand: the reader must end with documents or one clear error, quickly, in
bounded memory.

    python -m torture.fuzz_corpus --generated 5000 --out fuzz.json
 Generated files are good ones of every kind and compression, damaged at random: bytes changed,
pieces cut out or doubled, the end cut off. Made files are 300 of the things that really come along:
NUL, marks, other encodings, long lines, bombs. Each is read by a child process under a limit of
memory; for each are counted its time and what it said.
"""

import argparse
import bz2
import gzip
import io
import itertools
import json
import lzma
import multiprocessing
import random
import resource
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet
import zstandard

from bench.common.results import add_out, begin, publish
from litebert.data.corpus import CorpusOptions, read_documents
from litebert.errors import DataError

PACKS = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.compress,
}
SENTENCE = "The quick brown fox, e.g. Dr. Reynard, jumps over 3.5 lazy dogs – “really?” Yes. "


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--generated", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="longest time a file may take, by its CPU time"
    )
    add_out(parser)
    options = parser.parse_args()
    begin(options.out)
    figures = {
        "generated": campaign(
            generated(options.generated, random.Random(options.seed)), options.seconds
        ),
        "made": campaign(made(), options.seconds),
    }
    publish(figures, options.out)
    raise SystemExit(
        any(figures[kind][key] for kind in figures for key in ("tracebacks", "too_slow"))
    )


def campaign(
    files: Iterator[tuple[str, bytes]], limit: float, read: Callable[[str], str] | None = None
) -> dict[str, object]:
    """Read every file in both ways, with bad rows refused and left out."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    child = multiprocessing.get_context("spawn").Process(
        target=serve, args=(theirs, read or read_corpus)
    )
    child.start()
    said: Counter[str] = Counter()
    slow, broken, longest = [], [], 0.0
    with tempfile.TemporaryDirectory(prefix="litebert-fuzz-") as folder:
        for number, (suffix, data) in enumerate(files):
            path = Path(folder) / f"f{suffix}"
            path.write_bytes(data)
            ours.send(str(path))
            answer, seconds = ours.recv()
            longest = max(longest, seconds)
            said["error told" if answer.startswith("DataError") else answer.split(":")[0]] += 1
            if seconds > limit:
                slow.append((number, suffix, seconds))
            if answer.startswith("Traceback"):
                broken.append((number, suffix, answer[-400:]))
            path.unlink()
    ours.send(None)
    peak = ours.recv()
    child.join()
    return {
        "files": sum(said.values()),
        "said": dict(said),
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


def read_corpus(path: str) -> str:
    try:
        bad: list[object] = []
        for _ in read_documents([path], CorpusOptions(bad_rows="skip"), on_bad=bad.append):
            pass
        try:
            for _ in read_documents([path]):
                pass
        except DataError as error:
            return (
                f"DataError: {error}"
                if bad and ", line " in str(error)
                else f"Traceback: {error!r} without a bad row"
            )
        return "read" if not bad else "Traceback: bad rows without an error"
    except Exception:
        return f"Traceback: {traceback.format_exc()}"


def good(kind: str, draw: random.Random) -> bytes:
    documents = [SENTENCE * draw.randint(1, 5) for _ in range(draw.randint(1, 30))]
    if kind == ".txt":
        return "\n\n".join(documents).encode()
    if kind == ".jsonl":
        return "".join(
            json.dumps({"text": text, "id": draw.random()}) + "\n" for text in documents
        ).encode()
    buffer = io.BytesIO()
    arrow.parquet.write_table(arrow.table({"text": documents}), buffer, row_group_size=7)
    return buffer.getvalue()


def generated(count: int, draw: random.Random) -> Iterator[tuple[str, bytes]]:
    """Good files, packed before or after some damage."""
    for _ in range(count):
        kind, packing = draw.choice((".txt", ".jsonl", ".parquet")), draw.choice(list(PACKS))
        data = good(kind, draw)
        inside = draw.random() < 0.5
        data = PACKS[packing](damage(data, draw)) if inside else damage(PACKS[packing](data), draw)
        yield kind + packing, data


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


def made() -> Iterator[tuple[str, bytes]]:
    """Three hundred files of the kinds that come along: twenty contents in fifteen wrappings."""
    text = SENTENCE.encode()
    contents = [
        b"",
        b"\n",
        b" \t\r\n" * 50,
        b"\0" * 5000,
        text + b"\0" + text,
        b"\xef\xbb\xbf" + text,
        text.decode().encode("utf-16"),
        text.decode().encode("utf-16-le"),
        text.decode().encode("cp1252"),
        b"\xff" * 3000,
        (text + b"\r\n\r\n") * 20,
        (text + b"\r") * 20,
        text * 200_000,  # a line of 18 MB
        b"a" * 20_000_000,
        "語".encode() * 2_000_000,
        b"." * 3_000_000,
        b"\n" * 3_000_000,
        b'{"text": "'
        + text.replace(b"\n", b" ")
        + b'"}\n{"text": 3}\n{"body": "x"}\n[]\nnull\n"x"\n{"text": ',
        b"[" * 200_000 + b"]" * 200_000,
        b'{"text": ' + b"9" * 100_000 + b"}\n" + b'{"text": "\\ud83d"}\n',
    ]
    for content, kind, packing in itertools.product(
        contents, (".txt", ".jsonl", ".parquet"), PACKS
    ):
        yield kind + packing, PACKS[packing](content)


if __name__ == "__main__":
    main()
