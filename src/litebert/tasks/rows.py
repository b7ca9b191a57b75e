"""Rows of a table, one after another, in constant memory: CSV, TSV, JSONL, Parquet, and plain lines of text.

In: a path, whose name says what it is, plain or compressed. Out: (place, row) with the row as a dict by column. A row that
cannot be read is told to `bad`. TSV is GLUE's: a tab parts fields and nothing is quoted, so quotes are characters like any
other. CSV is RFC 4180's: quoted fields may hold commas, quotes (doubled) and line feeds.
"""

import csv
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from litebert.data.pieces import MAX_ROW_BYTES
from litebert.data.unpack import DamagedError
from litebert.errors import DataError
from litebert.tasks.bad_rows import BadRows, Place
from litebert.tasks.lines import compression_of, decode, read_lines

Row = dict[str, Any]
KINDS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
    ".text": "text",
}
TABLES = ".csv, .tsv, .jsonl or .parquet, plain or with .gz, .xz, .bz2, .zst"
TOO_LONG = f"the line is longer than {MAX_ROW_BYTES:,} bytes"


def read_rows(
    path: str | os.PathLike[str], *, bad: BadRows | None = None, header: Sequence[str] | None = None
) -> Iterator[tuple[Place, Row]]:
    """All rows of `path`; `header` names the columns of a TSV or CSV file that has no header line."""
    path, bad = os.fspath(path), bad or BadRows()
    kind = KINDS.get(compression_of(path)[1])
    if kind is None:
        raise DataError(f"{path}: the name does not say what the file holds; expected {TABLES}")
    if kind == "parquet":
        from litebert.tasks.parquet_rows import parquet_rows  # an extra: imported when it is used

        return parquet_rows(path, bad)
    if kind == "csv":
        return _csv_rows(path, bad, header)
    if kind == "tsv":
        return _tsv_rows(path, bad, header)
    return _jsonl_rows(path, bad) if kind == "jsonl" else _text_rows(path, bad)


def _texts(path: str, bad: BadRows) -> Iterator[tuple[Place, str]]:
    """Lines as text; one that cannot be is told to `bad`, as is the place where the file breaks off."""
    number = 0
    try:
        for number, line in enumerate(read_lines(path), 1):
            place = Place(path, number)
            if line is None:
                bad.add(place, TOO_LONG)
                continue
            try:
                text = decode(line)
            except DamagedError as error:
                bad.add(place, str(error), line)
                continue
            yield place, text
    except DamagedError as error:
        bad.add(Place(path, number + 1), str(error))


def _text_rows(path: str, bad: BadRows) -> Iterator[tuple[Place, Row]]:
    return ((place, {"text": text}) for place, text in _texts(path, bad))


def _jsonl_rows(path: str, bad: BadRows) -> Iterator[tuple[Place, Row]]:
    for place, text in _texts(path, bad):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            bad.add(place, f"the row is not JSON ({error})", text)
            continue
        if isinstance(row, dict):
            yield place, row
        else:
            bad.add(
                place, f"the row is JSON of type {type(row).__name__}, expected an object with a field for each column", text
            )


def _tsv_rows(path: str, bad: BadRows, header: Sequence[str] | None) -> Iterator[tuple[Place, Row]]:
    for place, text in _texts(path, bad):
        if not text:
            continue
        fields = text.split("\t")
        if header is None:
            header = _header(path, fields)
        elif len(fields) == len(header):
            yield place, dict(zip(header, fields, strict=True))
        else:
            bad.add(place, _wrong_count(fields, header, "tabs"), text)


def _csv_rows(path: str, bad: BadRows, header: Sequence[str] | None) -> Iterator[tuple[Place, Row]]:
    csv.field_size_limit(MAX_ROW_BYTES)
    source = _Source(_texts(path, bad))
    reader: Iterator[list[str]] | None = None
    while True:
        source.begin()
        try:
            if reader is None:
                reader = csv.reader(source, delimiter=source.separator(), strict=True)
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            reason = f"the row breaks CSV's rules ({error}); a quote that is opened must be closed, one inside is doubled"
            bad.add(source.place or Place(path, 1), reason, source.taken())
            continue
        if not fields:
            continue
        place = source.place or Place(path, 1)
        if header is None:
            header = _header(path, fields)
        elif len(fields) == len(header):
            yield place, dict(zip(header, fields, strict=True))
        else:
            bad.add(place, _wrong_count(fields, header, "separators"), source.taken())


class _Source:
    """Lines for csv.reader, which remembers those of the present row: where it began, and what it was."""

    def __init__(self, texts: Iterator[tuple[Place, str]]) -> None:
        self._texts, self._lines = texts, list[str]()
        self._ahead: tuple[Place, str] | None = None
        self.place: Place | None = None

    def begin(self) -> None:
        self._lines.clear()
        self.place = None

    def taken(self) -> str:
        return "".join(self._lines).removesuffix("\n")

    def separator(self) -> str:
        """A comma; a semicolon where the header has those alone, as spreadsheets write in much of Europe."""
        self._ahead = next(self._texts, None)
        header = self._ahead[1] if self._ahead else ""
        return ";" if ";" in header and "," not in header else ","

    def __iter__(self) -> "_Source":
        return self

    def __next__(self) -> str:
        place, text = self._ahead or next(self._texts)
        self._ahead = None
        self.place = self.place or place
        self._lines.append(text + "\n")
        return self._lines[-1]


def _header(path: str, names: Sequence[str]) -> list[str]:
    names = [name.strip() for name in names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path}: the header names the column {twice[0]!r} more than once; give each column a name of its own")
    return names


def _wrong_count(fields: Sequence[str], header: Sequence[str], marks: str) -> str:
    return f"the row has {len(fields)} fields, the header names {len(header)}; the {marks} do not fit"
