"""A file in pieces of about a mebibyte, cut where it does no harm.
 In: a CorpusFile. Out: Pieces, in order, in bounded memory whatever the file's size or the length
of its lines. Where a piece ends depends on the file's bytes alone, so that a build cut short can go
on at a piece's number, and any number of processes see the same pieces. Cutting is all that happens
here; other processes make documents of the pieces.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from litebert.data.files import CorpusFile
from litebert.data.unpack import DamagedError, Unpacked

PIECE_BYTES = 2**20
MAX_ROW_BYTES = 32 * 2**20
TAIL_BYTES = 2**16
"""How far back from its end a piece of an endless line looks for a place to cut."""

_STOP = re.compile(rb"[.!?]\s|" + "|".join("。！？।۔").encode())
_SPACE = re.compile(rb"\s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some whole rows or lines of a file; or, of a line longer than a piece, a part."""

    path: str
    kind: str
    number: int
    """0, 1, 2, … inside the file."""
    line: int
    """Number of the first line or row, from 1."""
    data: bytes | list[bytes | None] = b""
    """Bytes of lines; or a parquet file's rows, None for a null."""
    joined: bool = False
    """Text only: the piece begins inside a document, so that its first lines belong to the document
    before."""
    cut: bool = False
    """Text only: the last line goes on in the next piece."""
    damage: str = ""
    """What is wrong after `data`: the file cannot be read further, or a row is too long to be
    read."""
    offset: int = 0
    """How far into the file, as it lies on the disk, the reading was."""

    @property
    def size(self) -> int:
        """Bytes of text."""
        return (
            len(self.data)
            if isinstance(self.data, bytes)
            else sum(len(row or b"") for row in self.data)
        )


def read_pieces(
    file: CorpusFile,
    *,
    field: str = "text",
    piece_bytes: int = PIECE_BYTES,
    max_row_bytes: int = MAX_ROW_BYTES,
) -> Iterator[Piece]:
    """All pieces of `file`; `field` is the column of a parquet file, the rest of which is not
    read."""
    if file.kind == "parquet":
        from litebert.data.parquet import parquet_pieces  # an extra: imported when it is used

        return parquet_pieces(file, field=field, piece_bytes=piece_bytes)
    return _line_pieces(file, piece_bytes=piece_bytes, max_row_bytes=max_row_bytes)


def _line_pieces(file: CorpusFile, *, piece_bytes: int, max_row_bytes: int) -> Iterator[Piece]:
    number, line, joined, rest, ended = 0, 1, False, b"", False
    with Unpacked(file.path, file.compression) as stream:
        while not ended:
            data, ended, damage = _fill(stream, rest, piece_bytes)
            if number == 0:
                data, damage = _look_at_opening(data, damage)
                ended = ended or bool(damage)
            if file.kind == "jsonl" and not ended and b"\n" not in data:
                data, rest, ended, damage = _finish_row(stream, data, piece_bytes, max_row_bytes)
            else:
                end = len(data) if ended else _place_to_cut(data, whole_rows=file.kind == "jsonl")
                data, rest = data[:end], data[end:]
            yield Piece(
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
    parts, have = [data], len(data)
    try:
        while have < size:
            part = stream.read(size - have)
            if not part:
                return b"".join(parts), True, ""
            parts.append(part)
            have += len(part)
    except DamagedError as error:
        return b"".join(parts), True, str(error)
    return b"".join(parts), False, ""


def _look_at_opening(data: bytes, damage: str) -> tuple[bytes, str]:
    """The first piece of a file, or why the whole file is no text."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return b"", "the file is UTF-16, expected UTF-8; convert it with: iconv -f UTF-16 -t UTF-8"
    if not data and not damage:
        return b"", "the file is empty"
    return data, damage


def _finish_row(
    stream: Unpacked, data: bytes, step: int, limit: int
) -> tuple[bytes, bytes, bool, str]:
    """A row longer than a piece, read to its end: (row, rest, ended, damage). One over the limit is
    passed over."""
    parts, have, ended, damage, kept = [data], len(data), False, "", True
    while not ended and b"\n" not in parts[-1]:
        part, ended, damage = _fill(stream, b"", step)
        have += len(part)
        kept = kept and have <= limit + step
        parts = [*parts, part] if kept else [part]
    before, newline, rest = parts.pop().partition(b"\n")
    if rest:  # then the file's damage, if any, comes up again when the rest is topped up
        ended, damage = False, ""
    if kept and sum(map(len, parts)) + len(before) <= limit:
        return b"".join([*parts, before, newline]), rest, ended, damage
    return (
        b"",
        rest,
        ended,
        damage or f"the row is longer than {limit} bytes; cut the document, or raise max_row_bytes",
    )


def _place_to_cut(data: bytes, *, whole_rows: bool) -> int:
    """Where to end a piece: after a document, else after a line, else, in an endless line, after a
    sentence or a word."""
    if not whole_rows:
        blank = max(
            data.rfind(b"\n\n", len(data) // 2) + 2, data.rfind(b"\n\r\n", len(data) // 2) + 3
        )
        if blank > 3:
            return blank
    newline = data.rfind(b"\n") + 1
    if newline:
        return newline
    tail = max(len(data) - TAIL_BYTES, len(data) // 2)
    for pattern in (_STOP, _SPACE):
        ends = [match.end() for match in pattern.finditer(data, tail)]
        if ends:
            return ends[-1]
    end = len(data)
    while (
        end > tail and data[end - 1] & 0xC0 == 0x80
    ):  # back to the first byte of the last character, left to the next
        end -= 1
    return end - 1 if end - 1 > tail else len(data)


def _closes_document(data: bytes) -> bool:
    """Does a piece end with a blank line?"""
    if data[-1:] != b"\n":
        return False
    return not data[data.rfind(b"\n", 0, -1) + 1 :].strip()
