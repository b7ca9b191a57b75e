"""A file's lines as bytes, whatever its compression, in bounded memory. Only a line feed ends a line.

U+2028, U+0085 and the like stand inside GLUE's and Wikipedia's sentences: they end no row, as they end none for `wc -l`.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from litebert.data.files import COMPRESSIONS
from litebert.data.pieces import MAX_ROW_BYTES
from litebert.data.unpack import DamagedError, Unpacked
from litebert.errors import DataError

BOM = b"\xef\xbb\xbf"
CHUNK_BYTES = 2**18


def compression_of(path: str | os.PathLike[str]) -> tuple[str, str]:
    """What a file's name says: its compression, and its kind's suffix in lower case (.tsv of a.TSV.gz)."""
    stem, last = os.path.splitext(os.path.basename(path).lower())
    if last in COMPRESSIONS:
        return COMPRESSIONS[last], os.path.splitext(stem)[1]
    return "none", last


def read_lines(path: str | os.PathLike[str]) -> Iterator[bytes | None]:
    """Lines without their ends, the byte-order mark taken off; None for one over MAX_ROW_BYTES, which is passed over.

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


def decode(line: bytes) -> str:
    """DamagedError says which byte is wrong."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        wrong = line[error.start : error.start + 1].hex()
        raise DamagedError(f"byte 0x{wrong} at byte {error.start + 1} of the line is not UTF-8 ({error.reason})") from error


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
        raise DataError(f"{path}: not readable as JSON ({error}); expected a whole file in UTF-8") from error


def _opened(data: bytes) -> bytes:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DamagedError("the file is UTF-16, expected UTF-8; convert it with: iconv -f UTF-16 -t UTF-8")
    return data.removeprefix(BOM)
