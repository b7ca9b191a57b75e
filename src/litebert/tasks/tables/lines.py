"""A file's lines as bytes, whatever its compression, in bounded memory. Only a line feed ends a
line.
 U+2028, U+0085 and the like stand inside GLUE's and Wikipedia's sentences: they end no row, as they
end none for `wc -l`.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from litebert.data.files import COMPRESSIONS
from litebert.data.pieces import MAX_ROW_BYTES
from litebert.data.unpack import DamagedError, Unpacked
from litebert.errors import DataError
from litebert.tasks.tables.bad_rows import BadRows, Place

BOM = b"\xef\xbb\xbf"
CHUNK_BYTES = 2**18
TOO_LONG = f"the line is longer than {MAX_ROW_BYTES:,} bytes"


def compression_of(path: str | os.PathLike[str]) -> tuple[str, str]:
    """What a file's name says: its compression, and its kind's suffix in lower case (.tsv of
    a.TSV.gz)."""
    stem, last = os.path.splitext(os.path.basename(path).lower())
    if last in COMPRESSIONS:
        return COMPRESSIONS[last], os.path.splitext(stem)[1]
    return "none", last


def read_lines(path: str | os.PathLike[str]) -> Iterator[bytes | None]:
    """Lines without their ends, the byte-order mark taken off; None for one over MAX_ROW_BYTES,
    which is passed over.

    DamagedError where the file breaks off, is empty, or is no UTF-8 at all.
    """
    rest, first, long = b"", True, False
    with Unpacked(os.fspath(path), compression_of(path)[0]) as stream:
        while part := stream.read(CHUNK_BYTES):
            if first:
                part, first = _opened(part), False
            *whole, rest = (rest + part).split(b"\n")
            for line in whole:
                yield None if long else line.removesuffix(b"\r")
                long = False
            if len(rest) > MAX_ROW_BYTES:
                rest, long = b"", True
        if first:
            raise DamagedError("the file is empty")
        if rest or long:
            yield None if long else rest.removesuffix(b"\r")


class Line(NamedTuple):
    """A line as text, or what is wrong with it."""

    place: Place
    text: str
    """Bytes that are no UTF-8 stand in it as lone surrogates, so that a row over several lines
    stays whole."""
    wrong: str = ""

    @property
    def raw(self) -> bytes:
        return self.text.encode(errors="surrogateescape")


def decoded_lines(path: str, bad: BadRows) -> Iterator[Line]:
    """All lines; the place where the file breaks off is told to `bad`."""
    number = 0
    try:
        for number, line in enumerate(read_lines(path), 1):
            place = Place(path, number)
            if line is None:
                yield Line(place, "", TOO_LONG)
                continue
            try:
                text, wrong = line.decode(), ""
            except UnicodeDecodeError as error:
                byte = line[error.start : error.start + 1].hex()
                wrong = f"byte 0x{byte} at byte {error.start + 1} of the line is not UTF-8 ({error.reason})"
                text = line.decode(errors="surrogateescape")
            yield Line(place, text, wrong)
    except DamagedError as error:
        bad.add(Place(path, number + 1), str(error))


class Record(NamedTuple):
    """Fields of a table without their names, or what is wrong with them."""

    place: Place
    fields: list[str]
    raw: bytes
    wrong: str


def read_json(path: Path) -> Any:
    """A file that is one JSON value."""
    try:
        with Unpacked(str(path), compression_of(path)[0]) as stream:
            parts = []
            while part := stream.read(CHUNK_BYTES):
                parts.append(part)
        return json.loads(b"".join(parts).removeprefix(BOM).decode())
    except DamagedError as error:
        raise DataError(f"{path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path}: not readable as JSON ({error}); expected a whole file in UTF-8"
        ) from error


def _opened(data: bytes) -> bytes:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DamagedError(
            "the file is UTF-16, expected UTF-8; convert it with: iconv -f UTF-16 -t UTF-8"
        )
    return data.removeprefix(BOM)
