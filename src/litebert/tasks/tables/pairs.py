"""Data for embeddings: files, folders or tables in memory in; what to learn from, as units of
texts (units.py), and scored pairs for dev out."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from litebert.checks import list_names, shorten
from litebert.data.bad_rows import BadRowError, BadRows
from litebert.data.unpack import compression_of
from litebert.errors import DataError
from litebert.files import load_npy
from litebert.tasks.examples import TextExample
from litebert.tasks.tables.columns import TableOptions, find_columns
from litebert.tasks.tables.example import row_to_example
from litebert.tasks.tables.memory import Source, open_rows, to_tables
from litebert.tasks.tables.rows import FORMATS, read_rows
from litebert.tasks.tables.split import find_splits
from litebert.tasks.tables.units import Table, Units, read_units


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbedData:
    """What a run learns from, and is scored on."""

    train: Units
    dev: Sequence[TextExample] | None
    """Scored pairs."""
    notes: tuple[str, ...] = ()


def open_pairs(data: Any, dev: Any = None, options: TableOptions | None = None) -> EmbedData:
    """Read what to learn from: a file, a folder with train.* and maybe dev.*, or tables in memory.
    `dev`, or the data's own dev, holds scored pairs."""
    options = options or TableOptions()
    sources = _sources(data)
    if "train" not in sources:
        raise DataError(f"{data} has no split train, only: {', '.join(sources)}; name it train.csv")
    with BadRows(options.bad_rows, options.quarantine) as bad:
        tables = _tables(sources["train"], bad, options)
        train, notes = read_units(tables, options, bad, source=sources["train"][0])
        bad.check_share(len(train), options.max_bad_rows)
        notes += bad.notes
    if dev is None and "dev" not in sources:
        return EmbedData(train=train, dev=None, notes=notes)
    # the columns that the user names are train's
    plain = TableOptions(max_bad_rows=options.max_bad_rows, encoding=options.encoding)
    pairs, more = _open_scored(sources["dev"] if dev is None else _scored(dev), plain)
    return EmbedData(train=train, dev=pairs, notes=(*notes, *more))


def open_scored_pairs(
    data: Any, options: TableOptions | None = None
) -> tuple[list[TextExample], tuple[str, ...]]:
    """Scored pairs of a file, a folder's dev or a table in memory; and notes."""
    return _open_scored(_scored(data), options or TableOptions())


def open_teacher(vectors: str | os.PathLike[str], texts: str | os.PathLike[str]) -> Units:
    """Texts, one a line, and the .npy file with a teacher's vector for each."""
    try:
        array: np.ndarray = load_npy(os.fspath(vectors))
    except FileNotFoundError:
        raise DataError(f"{vectors}: no such file; expected a teacher's vectors as .npy") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{vectors} cannot be read as .npy: {error}") from error
    if array.ndim != 2 or array.dtype.kind != "f":
        raise DataError(
            f"{vectors} holds {array.dtype} of shape {array.shape}; expected float16 or float32 "
            "with one row for each text"
        )
    if not Path(texts).is_file() or FORMATS.get(compression_of(texts)[1]) != "text":
        raise DataError(f"{texts}: expected a .txt file with the texts of {vectors}, one a line")
    lines = [str(row["text"]) for _, row in read_rows(texts)]
    if len(lines) != len(array):
        raise DataError(
            f"{texts} has {len(lines):,} texts, {vectors} {len(array):,} vectors; row n belongs to "
            "line n"
        )
    empty = next((number for number, line in enumerate(lines, 1) if not line.strip()), None)
    if empty is not None or not lines:
        raise DataError(f"{texts}: line {empty or 1} is empty; write the text of its vector there")
    if not np.isfinite(array).all():
        raise DataError(f"{vectors}: some numbers are not finite; compute them again")
    return Units(
        relation="teacher",
        texts=lines,
        numbers=np.arange(len(lines)),
        bounds=np.arange(len(lines) + 1),
        vectors=array.astype(np.float32),
    )


def _sources(data: Any) -> Mapping[str, Sequence[Source]]:
    """The tables of each split."""
    if not isinstance(data, str | os.PathLike):
        return to_tables(data)
    path = Path(data)
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; expected a table of texts")
    if path.is_file() and FORMATS.get(compression_of(path)[1]) == "text":
        return {"train": [path]}
    return find_splits("pair", path)


def _tables(sources: Sequence[Source], bad: BadRows, options: TableOptions) -> Iterator[Table]:
    for source in sources:
        names, rows = open_rows(source, bad, options.encoding)
        if names is None:
            raise DataError(f"{source}: there is no row")
        yield source.name, names, rows


def _scored(data: Any) -> Sequence[Source]:
    """The only table, or that of dev."""
    sources = _sources(data)
    if len(sources) > 1 and "dev" not in sources:
        raise DataError(
            f"scored pairs are those of dev, and {shorten(data)} has {', '.join(sources)}; name "
            "the file to score"
        )
    return sources["dev"] if "dev" in sources else next(iter(sources.values()))


def _open_scored(
    sources: Sequence[Source], options: TableOptions
) -> tuple[list[TextExample], tuple[str, ...]]:
    pairs, notes = list[TextExample](), list[str]()
    with BadRows(options.bad_rows, options.quarantine) as bad:
        for name, names, rows in _tables(sources, bad, options):
            columns, note = find_columns("regress", names, options, where=name, labeled=True)
            if columns.second is None:
                raise DataError(
                    f"{name}: no column is recognized as the second text of a scored pair; the "
                    f"table has: {list_names(names, show=repr)}; expected text_a, text_b, score, "
                    "or name it with --second"
                )
            notes += [note] if note else []
            for location, row in rows:
                try:
                    example = row_to_example(
                        "regress", row, columns, where=str(location), labeled=True
                    )
                except BadRowError as error:
                    bad.add(location, str(error), row)
                    continue
                assert isinstance(example, TextExample)
                pairs.append(example)
        bad.check_share(len(pairs), options.max_bad_rows)
        notes += bad.notes
    if len(pairs) < 2:
        raise DataError(f"{sources[0]}: a correlation needs two scored pairs; got {len(pairs)}")
    return pairs, tuple(notes)
