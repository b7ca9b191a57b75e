"""Rows of a table, one by one, in bounded memory: CSV, TSV, JSONL, Parquet, or lines of text.

In: a path, whose name tells the format, plain or compressed. Out: (location, row) with the row as a
dict by column; a row that cannot be read is reported to `bad`. TSV is GLUE's: tabs separate fields
and nothing is quoted, so quotes are characters like any other. CSV is RFC 4180's: quoted fields may
hold commas, quotes (doubled) and line feeds. Only a line feed ends a line: U+2028, U+0085 and the
like stand inside GLUE's and Wikipedia's sentences.
"""

import codecs
import csv
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from litebert.checks import shorten
from litebert.data.bad_rows import BadRows, Location
from litebert.data.chunks import MAX_ROW_BYTES
from litebert.data.parquet import parquet_rows
from litebert.data.unpack import DamagedError, Unpacked, compression_of
from litebert.errors import DataError
from litebert.tasks.tables.encoding import find_encoding

Row = dict[str, Any]
FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
    ".text": "text",
}
TABLES = ".csv, .tsv, .jsonl or .parquet, plain or with .gz, .xz, .bz2, .zst"
CHUNK_BYTES = 2**18
_BOM = b"\xef\xbb\xbf"
_TOO_LONG = f"the line is longer than {MAX_ROW_BYTES:,} bytes"


def read_rows(
    path: str | os.PathLike[str],
    *,
    bad: BadRows | None = None,
    header: Sequence[str] | None = None,
    encoding: str | None = None,
) -> Iterator[tuple[Location, Row]]:
    """All rows of `path`; `header` names the columns of a TSV or CSV file without a header line;
    `encoding` is that of any file but Parquet, recognized by default; None where the user cannot
    name one."""
    path, bad = os.fspath(path), bad or BadRows()
    kind = FORMATS.get(compression_of(path)[1])
    if kind is None:
        raise DataError(f"{path}: the name does not say what the file holds; expected {TABLES}")
    if kind == "parquet":
        return _parquet_rows(path, bad)
    if kind == "csv":
        return _table_rows(_csv_records(path, bad, encoding), bad, header)
    if kind == "tsv":
        return _table_rows(_tsv_records(path, bad, encoding), bad, header)
    return _jsonl_rows(path, bad, encoding) if kind == "jsonl" else _text_rows(path, bad, encoding)


def read_json(path: Path) -> Any:
    """A file that is one JSON value."""
    try:
        with Unpacked(str(path), compression_of(path)[0]) as stream:
            chunks = []
            while chunk := stream.read(CHUNK_BYTES):
                chunks.append(chunk)
        return json.loads(b"".join(chunks).removeprefix(_BOM).decode())
    except DamagedError as error:
        raise DataError(f"{path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path}: not readable as JSON ({error}); expected a whole file in UTF-8"
        ) from error


class _Line(NamedTuple):
    """A line as text, or what is wrong with it."""

    location: Location
    text: str
    """Bytes that are not UTF-8 stand in it as lone surrogates, so that a row over several lines
    stays complete."""
    wrong: str = ""

    @property
    def raw(self) -> bytes:
        return self.text.encode(errors="surrogateescape")


class _Record(NamedTuple):
    """Fields of a table without their names, or what is wrong with them."""

    location: Location
    fields: list[str]
    raw: bytes
    wrong: str


def _lines(path: str, bad: BadRows, encoding: str | None) -> Iterator[_Line]:
    """All lines; where the file breaks off is reported to `bad`."""
    number, name = 0, encoding if encoding and encoding != "auto" else "UTF-8"
    try:
        for number, line in enumerate(_raw_lines(path, bad, encoding), 1):
            location = Location(path, number)
            if line is None:
                yield _Line(location, "", _TOO_LONG)
                continue
            try:
                text, wrong = line.decode(), ""
            except UnicodeDecodeError as error:
                byte = line[error.start : error.start + 1].hex()
                wrong = (
                    f"byte 0x{byte} at byte {error.start + 1} of the line is not {name} "
                    f"({error.reason}); {_advice(encoding)}"
                )
                text = line.decode(errors="surrogateescape")
            yield _Line(location, text, wrong)
        if not number:
            bad.add(Location(path, 1), "the file is empty")
    except DamagedError as error:
        bad.add(Location(path, number + 1), str(error), breaks_off=True)


def _raw_lines(path: str, bad: BadRows, encoding: str | None) -> Iterator[bytes | None]:
    """Lines in UTF-8 without their ends or a byte-order mark; None for one over MAX_ROW_BYTES.

    Bytes that the file's encoding does not have stay, which are not UTF-8 either. DamagedError
    where the file breaks off, or where its encoding cannot be decoded past such bytes.
    """
    rest, is_first, is_long = b"", True, False
    for chunk in _utf8_chunks(path, bad, encoding):
        if is_first:
            chunk, is_first = chunk.removeprefix(_BOM), False
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield None if is_long else line.removesuffix(b"\r")
            is_long = False
        if len(rest) > MAX_ROW_BYTES:
            rest, is_long = b"", True
    if rest or is_long:
        yield None if is_long else rest.removesuffix(b"\r")


def _utf8_chunks(path: str, bad: BadRows, encoding: str | None) -> Iterator[bytes]:
    """The file's bytes, in UTF-8 where they are in another encoding."""
    with Unpacked(path, compression_of(path)[0]) as stream:
        chunk = stream.read(CHUNK_BYTES)
        advice = _advice(encoding)
        if encoding is None or encoding == "auto":
            encoding, is_guess = find_encoding(chunk)
            if is_guess:
                bad.reading_notes.append(
                    f"{os.path.basename(path)} is not UTF-8; it is read as {encoding}, a guess; "
                    f"{advice}"
                )
        is_utf8 = codecs.lookup(encoding).name == "utf-8"
        decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
        try:
            while chunk:
                yield chunk if is_utf8 else decoder.decode(chunk).encode(errors="surrogateescape")
                chunk = b""  # one in memory at a time
                chunk = stream.read(CHUNK_BYTES)
            if not is_utf8:
                yield decoder.decode(b"", final=True).encode(errors="surrogateescape")
        except UnicodeError as error:
            reason = str(getattr(error, "reason", error))
            order = ", with its byte order, such as utf-16-le" if "BOM" in reason else ""
            raise DamagedError(
                f"the file is not {encoding} ({reason}); name another --encoding{order}"
            ) from error


def _advice(encoding: str | None) -> str:
    """What to do with a file in another encoding."""
    return "convert a file that is in another encoding" + (
        "" if encoding is None else ", or name it with --encoding"
    )


def _good_lines(path: str, bad: BadRows, encoding: str | None) -> Iterator[_Line]:
    for line in _lines(path, bad, encoding):
        if line.wrong:
            bad.add(line.location, line.wrong, line.raw)
        else:
            yield line


def _text_rows(path: str, bad: BadRows, encoding: str | None) -> Iterator[tuple[Location, Row]]:
    return ((line.location, {"text": line.text}) for line in _good_lines(path, bad, encoding))


def _jsonl_rows(path: str, bad: BadRows, encoding: str | None) -> Iterator[tuple[Location, Row]]:
    for line in _good_lines(path, bad, encoding):
        if not line.text.strip():
            continue
        try:
            row = json.loads(line.text)
        except (ValueError, RecursionError) as error:
            bad.add(line.location, f"the row is not JSON ({error})", line.text)
            continue
        if isinstance(row, dict):
            yield line.location, row
        else:
            bad.add(
                line.location,
                f"the row is JSON of type {type(row).__name__}, expected an object with a field "
                "for each column",
                line.text,
            )


def _parquet_rows(path: str, bad: BadRows) -> Iterator[tuple[Location, Row]]:
    number = 0
    try:
        for number, row in enumerate(parquet_rows(path, compression_of(path)[0]), 1):
            location = Location(path, number, "row")
            if isinstance(row, UnicodeDecodeError):
                bad.add(location, f"a text is not UTF-8 ({row.reason})", row.object)
            else:
                yield location, row
    except DamagedError as error:
        bad.add(Location(path, number + 1, "row"), str(error), breaks_off=True)


def _tsv_records(path: str, bad: BadRows, encoding: str | None) -> Iterator[_Record]:
    for line in _lines(path, bad, encoding):
        if line.text or line.wrong:
            yield _Record(line.location, line.text.split("\t"), line.raw, line.wrong)


def _csv_records(path: str, bad: BadRows, encoding: str | None) -> Iterator[_Record]:
    """All records of a CSV file, the header's among them."""
    csv.field_size_limit(MAX_ROW_BYTES)  # Python's own limit, 128 KiB, is less than a long document
    source = _CsvLines(_lines(path, bad, encoding))
    reader = csv.reader(source, delimiter=source.separator(), strict=True)
    while True:
        source.begin_record()
        wrong, fields = "", list[str]()
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            wrong = (
                f"the row breaks CSV's rules ({error}); a quote that is opened must be closed, one "
                "inside is doubled"
            )
        wrong = source.wrong or wrong
        if fields or wrong:
            yield _Record(source.location or Location(path, 1), fields, bytes(source.raw), wrong)


class _CsvLines:
    """Lines for csv.reader that remember the current record: where it began, its bytes, what is
    wrong."""

    def __init__(self, lines: Iterator[_Line]) -> None:
        self._lines = lines
        self._header_line: _Line | None = None
        self.begin_record()

    def begin_record(self) -> None:
        self.location: Location | None = None
        self.raw = bytearray()
        self.wrong = ""

    def separator(self) -> str:
        """A comma; a semicolon where the header has those only, as spreadsheets write in much of
        Europe."""
        self._header_line = next(self._lines, None)
        header = self._header_line.text if self._header_line else ""
        return ";" if ";" in header and "," not in header else ","

    def __iter__(self) -> "_CsvLines":
        return self

    def __next__(self) -> str:
        line = self._header_line or next(self._lines)
        self._header_line = None
        self.raw += line.raw if self.location is None else b"\n" + line.raw
        self.location = self.location or line.location
        self.wrong = self.wrong or line.wrong
        return line.text + "\n"


def _table_rows(
    records: Iterator[_Record], bad: BadRows, header: Sequence[str] | None
) -> Iterator[tuple[Location, Row]]:
    """Records by the header's names. An unreadable header is always an error: nothing can be read
    without it."""
    for record in records:
        if header is None:
            if record.wrong:
                raise DataError(
                    f"{record.location.in_full()}: {record.wrong}; the header has to be readable"
                )
            header = _header(record)
        elif record.wrong:
            bad.add(record.location, record.wrong, record.raw)
        elif len(record.fields) == len(header):
            yield record.location, dict(zip(header, record.fields, strict=True))
        else:
            bad.add(
                record.location,
                f"the row has {len(record.fields)} fields, the header names {len(header)}; the "
                "separators do not fit",
                record.raw,
            )


MAX_COLUMNS = 4096
"""Every row is a dict of them."""


def _header(record: _Record) -> list[str]:
    if len(record.fields) > MAX_COLUMNS:
        raise DataError(
            f"{record.location.in_full()}: the header names {len(record.fields):,} columns, at "
            f"most {MAX_COLUMNS:,} are read; leave out those that no task needs"
        )
    names = [name.strip() for name in record.fields]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"{record.location.in_full()}: the header names the column {shorten(twice[0])} more "
            "than once; give each column a name of its own"
        )
    return names
