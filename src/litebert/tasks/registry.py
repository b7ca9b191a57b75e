"""Tasks by name: benchmarks in their official files, and own files by the kind of task. A name in,
TaskData out."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast, get_args

from litebert.checks import check_known
from litebert.errors import DataError
from litebert.tasks.benchmarks.benchmark import Benchmark, open_benchmark
from litebert.tasks.benchmarks.glue import GLUE
from litebert.tasks.benchmarks.race import RACE
from litebert.tasks.benchmarks.squad import SQUAD
from litebert.tasks.examples import Kind
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.tables.table import open_table
from litebert.tasks.task import TaskData

__all__ = ["BENCHMARKS", "OWN", "TableOptions", "open_task"]

BENCHMARKS: dict[str, Benchmark] = {**GLUE, **SQUAD, **RACE}
OWN: tuple[str, ...] = get_args(Kind)
"""Own files, by the kind of task: classify, pair, regress, choose, answer, tag."""


def open_task(
    name: str,
    data: Path | str,
    *,
    options: TableOptions | None = None,
    splits: Sequence[str] | None = None,
) -> TaskData:
    """Read a task's examples; `splits` selects some splits, which then must be there."""
    check_known("task", name, (*BENCHMARKS, *OWN))
    options = options or TableOptions()
    if not Path(data).exists():
        raise DataError(f"{data}: no such file or folder; expected the data of {name}")
    if name in OWN:
        return open_table(cast(Kind, name), Path(data), options, splits)
    return open_benchmark(BENCHMARKS[name], Path(data), options, splits)
