"""Which files make a corpus, and each file in chunks of about a mebibyte, cut after a document, a
line or a sentence.

In: names as typed at a prompt: files, folders, globs. Out: CorpusFiles, each once, in an order that
depends on the names alone; and their Chunks, in order, in bounded memory whatever the size of a
file or the length of its lines. Where a chunk ends depends on the file's bytes alone, so that an
interrupted build resumes at a chunk's number and any number of processes see the same chunks.
corpus.py makes documents of them.
"""

import glob
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from litebert.data.unpack import COMPRESSIONS, DamagedError, Unpacked, compression_of
from litebert.errors import DataError

_KINDS = {
    ".txt": "text",
    ".text": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
_EXPECTED = f"{', '.join(_KINDS)}, each plain or with {', '.join(COMPRESSIONS)}"
MAX_ROW_BYTES = 32 * 2**20
_TAIL_BYTES = 2**16
"""How far back from its end a chunk of an endless line looks for a place to cut."""

_STOP = re.compile(rb"[.!?]\s|" + "|".join("。！？।۔").encode())
_SPACE = re.compile(rb"\s")


@dataclass(frozen=True, kw_only=True)
class CorpusFile:
    """One file of a corpus."""

    path: str
    """As the user named it, or found below what the user named."""
    kind: str
    """text, jsonl or parquet."""
    compression: str
    """none, gzip, xz, bzip2 or zstd."""


def find_files(names: Iterable[str | os.PathLike[str]]) -> list[CorpusFile]:
    """The corpus that `names` stand for; DataError for a name that stands for nothing."""
    corpus: dict[str, CorpusFile] = {}
    for name in [os.fspath(name) for name in names]:
        if os.path.isdir(name):
            paths = _below(name)
            wrong = f"the folder {name} holds no corpus file; expected {_EXPECTED}"
        elif os.path.exists(name):
            paths = [name]
            wrong = (
                f"{name}: the name does not say what the file holds; expected one of {_EXPECTED}"
            )
        else:
            paths = sorted(path for path in glob.glob(name, recursive=True) if os.path.isfile(path))
            wrong = f"{name}: no such file, folder or glob of corpus files ({_EXPECTED})"
        files = [file for path in paths if (file := _recognize(path))]
        if not files:
            raise DataError(wrong)
        for file in files:
            corpus.setdefault(os.path.abspath(file.path), file)
    if not corpus:
        raise DataError(f"no corpus was named; expected files, folders or globs of {_EXPECTED}")
    return list(corpus.values())


def ignored_files(names: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Files in the folders of `names` that are no corpus files by their name: worth a warning."""
    folders = [os.fspath(name) for name in names if os.path.isdir(name)]
    return [path for folder in folders for path in _below(folder) if _recognize(path) is None]


def _below(folder: str) -> list[str]:
    """Visible files below `folder`, sorted by their parts: a folder's files stay together."""
    paths = (path for path in Path(folder).rglob("*") if path.is_file())
    inside = [
        path
        for path in paths
        if not any(component.startswith(".") for component in path.relative_to(folder).parts)
    ]
    return [path.as_posix() for path in sorted(inside, key=lambda path: path.parts)]


def _recognize(path: str) -> CorpusFile | None:
    compression, suffix = compression_of(path)
    kind = _KINDS.get(suffix)
    return CorpusFile(path=path, kind=kind, compression=compression) if kind else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Complete rows or lines of a file; or, of a line longer than a chunk, a stretch."""

    path: str
    kind: str
    number: int
    """0, 1, 2, … inside the file."""
    line: int
    """Number of the first line or row, from 1."""
    data: bytes | list[bytes | None] = b""
    """Bytes of lines; or a parquet file's rows, None for a null."""
    joined: bool = False
    """Text only: the chunk begins inside a document, so its first lines continue that one."""
    cut: bool = False
    """Text only: the last line continues in the next chunk."""
    damage: str = ""
    """Why nothing can be read after `data`: the file is damaged, or a row is too long."""
    offset: int = 0
    """Bytes of the file on disk that were read so far."""

    @property
    def size(self) -> int:
        """Bytes of text."""
        rows = [self.data] if isinstance(self.data, bytes) else self.data
        return sum(len(row or b"") for row in rows)


def line_chunks(file: CorpusFile, *, chunk_bytes: int, max_row_bytes: int) -> Iterator[Chunk]:
    """All chunks of a file of lines."""
    number, line, joined, rest, ended = 0, 1, False, b"", False
    with Unpacked(file.path, file.compression) as stream:
        while not ended:
            data, ended, damage = _fill(stream, rest, chunk_bytes)
            if number == 0:
                data, damage = _look_at_opening(data, damage)
                ended = ended or bool(damage)
            if file.kind == "jsonl" and not ended and b"\n" not in data:
                data, rest, ended, damage = _finish_row(stream, data, chunk_bytes, max_row_bytes)
            else:
                end = len(data) if ended else _place_to_cut(data, whole_rows=file.kind == "jsonl")
                data, rest = data[:end], data[end:]
            yield Chunk(
                path=file.path,
                kind=file.kind,
                number=number,
                line=line,
                data=data,
                joined=joined,
                cut=not ended and data[-1:] != b"\n",
                damage=damage,
                offset=stream.packed_offset,
            )
            number += 1
            line += data.count(b"\n") or bool(damage)  # a row that was passed over is a line, too
            joined = not _closes_document(data)


def _fill(stream: Unpacked, data: bytes, size: int) -> tuple[bytes, bool, str]:
    """`data` topped up to `size`, whether the file ended, and the damage that ended it."""
    blocks, size_read = [data], len(data)
    try:
        while size_read < size:
            block = stream.read(size - size_read)
            if not block:
                return b"".join(blocks), True, ""
            blocks.append(block)
            size_read += len(block)
    except DamagedError as error:
        return b"".join(blocks), True, str(error)
    return b"".join(blocks), False, ""


def _look_at_opening(data: bytes, damage: str) -> tuple[bytes, str]:
    """The first chunk of a file, or why the whole file is no text."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return b"", "the file is UTF-16, expected UTF-8; convert it with: iconv -f UTF-16 -t UTF-8"
    if not data and not damage:
        return b"", "the file is empty"
    return data, damage


def _finish_row(
    stream: Unpacked, data: bytes, step: int, limit: int
) -> tuple[bytes, bytes, bool, str]:
    """A row longer than a chunk: (row, rest, ended, damage). One over the limit is left out."""
    blocks, size_read, ended, damage, fits = [data], len(data), False, "", True
    while not ended and b"\n" not in blocks[-1]:
        block, ended, damage = _fill(stream, b"", step)
        size_read += len(block)
        fits = fits and size_read <= limit + step
        blocks = [*blocks, block] if fits else [block]
    before, newline, rest = blocks.pop().partition(b"\n")
    if rest:  # then the file's damage, if any, comes up again when the rest is topped up
        ended, damage = False, ""
    if fits and sum(map(len, blocks)) + len(before) <= limit:
        return b"".join([*blocks, before, newline]), rest, ended, damage
    too_long = f"the row is longer than {limit} bytes; cut the document, or raise max_row_bytes"
    return b"", rest, ended, damage or too_long


def _place_to_cut(data: bytes, *, whole_rows: bool) -> int:
    """After a document, else after a line, else, in an endless line, after a sentence or word."""
    if not whole_rows:
        half = len(data) // 2
        blank = max(data.rfind(b"\n\n", half) + 2, data.rfind(b"\n\r\n", half) + 3)
        if blank > 3:
            return blank
    newline = data.rfind(b"\n") + 1
    if newline:
        return newline
    tail = max(len(data) - _TAIL_BYTES, len(data) // 2)
    for pattern in (_STOP, _SPACE):
        ends = [match.end() for match in pattern.finditer(data, tail)]
        if ends:
            return ends[-1]
    end = len(data)
    # back to the first byte of the last character, left to the next
    while end > tail and data[end - 1] & 0xC0 == 0x80:
        end -= 1
    return end - 1 if end - 1 > tail else len(data)


def _closes_document(data: bytes) -> bool:
    """Does a chunk end with a blank line?"""
    if data[-1:] != b"\n":
        return False
    return not data[data.rfind(b"\n", 0, -1) + 1 :].strip()
