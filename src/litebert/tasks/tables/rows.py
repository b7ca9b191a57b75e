"""Rows of a table, one after another, in constant memory: CSV, TSV, JSONL, Parquet, and plain lines
of text.
 In: a path, whose name says what it is, plain or compressed. Out: (place, row) with the row as a
dict by column. A row that cannot be read is told to `bad`. TSV is GLUE's: a tab parts fields and
nothing is quoted, so quotes are characters like any other. CSV is RFC 4180's: quoted fields may
hold commas, quotes (doubled) and line feeds.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from litebert.errors import DataError
from litebert.tasks.tables.bad_rows import BadRows, Place
from litebert.tasks.tables.csv_records import csv_records
from litebert.tasks.tables.lines import Line, Record, compression_of, decoded_lines

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


def read_rows(
    path: str | os.PathLike[str], *, bad: BadRows | None = None, header: Sequence[str] | None = None
) -> Iterator[tuple[Place, Row]]:
    """All rows of `path`; `header` names the columns of a TSV or CSV file that has no header
    line."""
    path, bad = os.fspath(path), bad or BadRows()
    kind = KINDS.get(compression_of(path)[1])
    if kind is None:
        raise DataError(f"{path}: the name does not say what the file holds; expected {TABLES}")
    if kind == "parquet":
        from litebert.tasks.tables.parquet_rows import (
            parquet_rows,  # an extra: imported when it is used
        )

        return parquet_rows(path, bad)
    if kind in ("csv", "tsv"):
        return _table_rows(
            csv_records(path, bad) if kind == "csv" else _tsv_records(path, bad), bad, header
        )
    return _jsonl_rows(path, bad) if kind == "jsonl" else _text_rows(path, bad)


def _good_lines(path: str, bad: BadRows) -> Iterator[Line]:
    for line in decoded_lines(path, bad):
        if line.wrong:
            bad.add(line.place, line.wrong, line.raw)
        else:
            yield line


def _text_rows(path: str, bad: BadRows) -> Iterator[tuple[Place, Row]]:
    return ((line.place, {"text": line.text}) for line in _good_lines(path, bad))


def _jsonl_rows(path: str, bad: BadRows) -> Iterator[tuple[Place, Row]]:
    for line in _good_lines(path, bad):
        if not line.text.strip():
            continue
        try:
            row = json.loads(line.text)
        except (ValueError, RecursionError) as error:
            bad.add(line.place, f"the row is not JSON ({error})", line.text)
            continue
        if isinstance(row, dict):
            yield line.place, row
        else:
            reason = f"the row is JSON of type {type(row).__name__}, expected an object with a field for each column"
            bad.add(line.place, reason, line.text)


def _tsv_records(path: str, bad: BadRows) -> Iterator[Record]:
    for line in decoded_lines(path, bad):
        if line.text or line.wrong:
            yield Record(line.place, line.text.split("\t"), line.raw, line.wrong)


def _table_rows(
    records: Iterator[Record], bad: BadRows, header: Sequence[str] | None
) -> Iterator[tuple[Place, Row]]:
    """Records by the header's names. Without a readable header nothing can be read, so that is
    never left out."""
    for record in records:
        if header is None:
            if record.wrong:
                raise DataError(
                    f"{record.place.in_full()}: {record.wrong}; the header has to be readable"
                )
            header = _header(record)
        elif record.wrong:
            bad.add(record.place, record.wrong, record.raw)
        elif len(record.fields) == len(header):
            yield record.place, dict(zip(header, record.fields, strict=True))
        else:
            reason = f"the row has {len(record.fields)} fields, the header names {len(header)}; the separators do not fit"
            bad.add(record.place, reason, record.raw)


def _header(record: Record) -> list[str]:
    names = [name.strip() for name in record.fields]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        told = f"the header names the column {twice[0]!r} more than once; give each column a name of its own"
        raise DataError(f"{record.place.in_full()}: {told}")
    return names
