"""Bad files by the thousand: the reader must end with documents or one clear error, quickly, in
bounded memory.

    python -m torture.fuzz_corpus --generated 5000 --out fuzz.json

Generated files are good ones of every kind and compression, damaged at random: bytes changed,
pieces cut out or doubled, the end cut off. Handmade files are 300 of the things that really come
along: NUL, marks, other encodings, long lines, bombs. Each is read by a child process under a limit
of memory; for each are counted its time and what it said.
"""

import io
import itertools
import json
import random
import traceback
from collections.abc import Iterator

import pyarrow as arrow
import pyarrow.parquet

from litebert.data.corpus import CorpusOptions, read_documents
from litebert.errors import DataError
from torture.harness import PACKS, damage, fuzz_command

SENTENCE = "The quick brown fox, e.g. Dr. Reynard, jumps over 3.5 lazy dogs – “really?” Yes. "


def main() -> None:
    fuzz_command(__doc__, generated, handmade, read_corpus)


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


def handmade() -> Iterator[tuple[str, bytes]]:
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
