"""Tasks by name: benchmarks in their official files, own files and tables in memory by the kind of
task. A name in, TaskData out, read as for a given model where there is one."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

from litebert.checks import check_known
from litebert.config import HeadKind
from litebert.errors import DataError
from litebert.tasks.benchmarks.benchmark import Benchmark, open_benchmark
from litebert.tasks.benchmarks.glue import GLUE
from litebert.tasks.benchmarks.race import RACE
from litebert.tasks.benchmarks.squad import SQUAD
from litebert.tasks.examples import Kind, TaskExample, TextExample, only
from litebert.tasks.predictions import LabelPrediction, Prediction
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.tables.memory import to_tables
from litebert.tasks.tables.table import open_table
from litebert.tasks.task import LABELED, Task, TaskCard, TaskData

__all__ = [
    "BENCHMARKS",
    "OWN",
    "TableOptions",
    "label_names",
    "open_task",
    "open_task_as",
    "predict_as",
]

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


def open_task_as(
    card: TaskCard,
    task: str,
    data: Any,
    splits: Sequence[str],
    options: TableOptions | None = None,
) -> TaskData:
    """A task's splits as a fine-tuned model reads them: own data have its labels and columns, and
    dev is what it was when the model was fine-tuned."""
    mine, options = card.task, options or TableOptions()
    if task not in BENCHMARKS and mine.kind in LABELED and options.labels is None:
        options = replace(options, labels=mine.labels)
    options = replace(options, stratify=options.stratify and card.stratified)
    if task in (mine.name, mine.kind):
        options = options.cut_as(card.cut)
    columns = card.columns if mine.kind == task else {}
    return open_task(task, data, options=options, splits=splits, head=mine.head, columns=columns)


def label_names(card: TaskCard, task: Task) -> dict[str, str]:
    """What a benchmark's files call each label of a model that has names for them: SST-2 has 0 and
    1, a model may say negative and positive. Empty where the labels are the same."""
    benchmark = BENCHMARKS.get(task.name)
    names = benchmark.label_names if benchmark else ()
    if not names or set(card.task.labels) != set(names):
        return {}
    return dict(zip(names, task.labels, strict=True))


def predict_as(
    label_of: Mapping[str, str],
    predict: Callable[[Sequence[TaskExample]], Sequence[Prediction]],
    examples: Sequence[TaskExample],
) -> list[Prediction]:
    """Predictions with the labels that a task's files have (label_names)."""
    if not label_of:
        return list(predict(examples))
    # the truth is in the files' terms, which the model does not know
    unlabeled = [replace(each, label=None) for each in only(examples, TextExample)]
    return [
        LabelPrediction(
            label=label_of[each.label],
            probabilities={label_of[name]: p for name, p in each.probabilities.items()},
            depth=each.depth,
        )
        for each in only(predict(unlabeled), LabelPrediction)
    ]
