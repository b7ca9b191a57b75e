"""Tasks by name: benchmarks in their official files, own files and tables in memory by the kind of
task. A name in, TaskData out."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args

from litebert.checks import check_known
from litebert.config import HeadKind
from litebert.errors import DataError
from litebert.tasks.benchmarks.benchmark import Benchmark, open_benchmark
from litebert.tasks.benchmarks.glue import GLUE
from litebert.tasks.benchmarks.race import RACE
from litebert.tasks.benchmarks.squad import SQUAD
from litebert.tasks.examples import Kind
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.tables.memory import to_tables
from litebert.tasks.tables.table import open_table
from litebert.tasks.task import TaskData

__all__ = ["BENCHMARKS", "OWN", "TableOptions", "open_task"]

BENCHMARKS: dict[str, Benchmark] = {**GLUE, **SQUAD, **RACE}
OWN: tuple[str, ...] = get_args(Kind)
"""Own files, by the kind of task: classify, pair, regress, choose, answer, tag."""


def open_task(
    name: str,
    data: Any,
    *,
    options: TableOptions | None = None,
    splits: Sequence[str] | None = None,
    head: HeadKind | None = None,
    columns: Mapping[str, tuple[str, ...]] | None = None,
) -> TaskData:
    """Read a task's examples; `splits` selects some splits, which then must be there. `data` is a
    path, or for own data a table in memory (tables/memory.py). `head` and `columns` are those of
    the model to be scored: they tell whether an own row has one label or several, and where."""
    check_known("task", name, (*BENCHMARKS, *OWN))
    options = options or TableOptions()
    path = Path(data) if isinstance(data, str | os.PathLike) else None
    if path and not path.exists():
        raise DataError(f"{data}: no such file or folder; expected the data of {name}")
    if name in OWN:
        return open_table(cast(Kind, name), path or to_tables(data), options, splits, head, columns)
    if path is None:
        raise DataError(
            f"{name} is read from its official files; data in memory are for {', '.join(OWN)}"
        )
    return open_benchmark(BENCHMARKS[name], path, options, splits)
