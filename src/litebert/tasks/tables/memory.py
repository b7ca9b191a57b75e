"""Tables in memory: a list of dicts, a pandas DataFrame, a datasets.Dataset or a pyarrow Table, or
a dict of them by split, in; rows as files have them out. None of these libraries is imported.
`open_rows` reads a file or a table in memory.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from litebert.checks import list_names
from litebert.data.bad_rows import BadRows, Location
from litebert.errors import DataError
from litebert.tasks.tables.rows import Row, read_rows
from litebert.tasks.tables.split import STEMS

PEEK = 20
"""Rows that are read to know the columns: of JSON, not every row has to have them all."""


@dataclass(frozen=True)
class MemoryTable:
    """Rows of one split."""

    name: str
    """What messages call it."""
    data: Any

    def __str__(self) -> str:
        return self.name

    def rows(self, bad: BadRows) -> Iterator[tuple[Location, dict[str, Any]]]:
        """Each row with its number; one that is no dict goes to `bad`."""
        class_names = _class_names(self.data)
        for number, record in enumerate(self._records(), 1):
            location = Location(self.name, number, "row")
            if not isinstance(record, Mapping):
                bad.add(
                    location, f"the row is {type(record).__name__}, expected a dict", str(record)
                )
                continue
            row = {str(column): _plain(value) for column, value in record.items()}
            for column, names in class_names.items():
                if column in row:
                    row[column] = _named(row.get(column), names)
            yield location, row

    def _records(self) -> Iterable[Any]:
        data = self.data
        if hasattr(data, "to_pylist"):  # a pyarrow Table
            return data.to_pylist()  # type: ignore[no-any-return]
        if hasattr(data, "iloc"):  # a pandas DataFrame
            return data.to_dict("records")  # type: ignore[no-any-return]
        if isinstance(data, str | bytes | Mapping) or not isinstance(data, Iterable):
            raise DataError(
                f"{self.name}: expected a list of dicts, a pandas DataFrame or a datasets.Dataset; "
                f"got {type(data).__name__}"
            )
        return data


Source = Path | MemoryTable


def open_rows(
    source: Source, bad: BadRows, encoding: str
) -> tuple[list[str] | None, Iterator[tuple[Location, Row]]]:
    """The columns of a table, None where it has no row; and its rows."""
    rows = (
        read_rows(source, bad=bad, encoding=encoding)
        if isinstance(source, Path)
        else source.rows(bad)
    )
    first = list(islice(rows, PEEK))
    names = list(dict.fromkeys(name for _, row in first for name in row))
    return names if first else None, chain(first, rows)


def to_tables(data: Any) -> dict[str, Sequence[Source]]:
    """The table of each split; `data` that is not a dict of splits is train."""
    if not isinstance(data, Mapping):
        return {"train": [MemoryTable("rows", data)]}
    tables: dict[str, Sequence[Source]] = {}
    for name, rows in data.items():
        split = next((split for split, names in STEMS.items() if name in names), None)
        if split is None or split in tables:
            raise DataError(
                f"a dict of data has the splits train, dev (or validation) and test as keys, each "
                f"once; got: {list_names(data)}; rows are a list of dicts"
            )
        tables[split] = [MemoryTable(str(name), rows)]
    if not tables:
        raise DataError("the data is a dict without splits; rows are a list of dicts")
    return tables


def _class_names(data: Any) -> dict[str, list[str]]:
    """Names of the classes that a datasets.Dataset stores as numbers, or as lists of them, by
    column."""
    features = getattr(data, "features", None)
    if not isinstance(features, Mapping):
        return {}
    names = {
        column: getattr(getattr(feature, "feature", feature), "names", None)
        for column, feature in features.items()
    }
    return {column: list(each) for column, each in names.items() if isinstance(each, list | tuple)}


def _named(value: Any, names: list[str]) -> Any:
    if isinstance(value, list):
        return [_named(each, names) for each in value]
    if not isinstance(value, int):
        return value
    return names[value] if value >= 0 else None


def _plain(value: Any) -> Any:
    """numpy and pandas values as Python's own; what marks a missing one as None."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "tolist"):  # a numpy scalar or array
        value = value.tolist()
    return None if isinstance(value, float) and value != value else value
