"""GLUE (Wang et al. 2019) in its original TSV layout, nine tasks and the diagnostic set: files in,
TextExamples out.

Oddities of the files: MRPC begins with a byte-order mark; CoLA's train and dev have no header;
quotes are characters and occur alone inside fields; STS-B has ten columns, MNLI's train fewer than
its dev, so columns go by name; test files begin with an index and have no label; some lines of
QQP's train are broken in the official file itself.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from litebert.checks import list_names, shorten
from litebert.data.bad_rows import BadRows
from litebert.errors import DataError
from litebert.tasks.benchmarks.benchmark import Benchmark
from litebert.tasks.examples import Kind, TaskExample, TextExample
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.tables.rows import read_rows
from litebert.tasks.task import HEADS, Task

_Splits = Mapping[str, tuple[str, ...]]
_BINARY = ("0", "1")
_ENTAILS = ("entailment", "not_entailment")
_NLI = ("contradiction", "entailment", "neutral")
_FILES: _Splits = {split: (f"{split}.tsv",) for split in ("train", "dev", "test")}
_MATCHED: _Splits = {
    "train": ("train.tsv",),
    "dev": ("dev_matched.tsv",),
    "dev_mismatched": ("dev_mismatched.tsv",),
    "test": ("test_matched.tsv",),
    "test_mismatched": ("test_mismatched.tsv",),
}
_DIAGNOSTIC: _Splits = {"test": ("diagnostic-full.tsv", "diagnostic.tsv", "AX.tsv")}


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Columns of a task's files; of each, the names it has in one version or another."""

    first: tuple[str, ...]
    second: tuple[str, ...] = ()
    label: tuple[str, ...] = ("label",)
    key: tuple[str, ...] = ("index", "id")
    slice: tuple[str, ...] = ()
    header: tuple[str, ...] | None = None
    """Of train and dev, where the files have no header line."""


def _read_glue(
    layout: _Layout, task: Task, path: Path, split: str, bad: BadRows, options: TableOptions
) -> Iterator[TaskExample]:
    labeled = split in ("train", "dev", "dev_mismatched")
    header = layout.header if labeled else None
    columns: Mapping[str, str | None] = {}
    first_line = 1 if header else 2
    for location, row in read_rows(path, bad=bad, header=header, encoding=options.encoding):
        if not columns:
            columns = _columns(layout, row, path, labeled, task)
        label: str | float | None = row[columns["label"]] if columns["label"] else None
        try:
            # some copies have -1 for the unknown labels of test
            unknown = label is None or (not labeled and label in ("", "-1"))
            label = None if unknown else _label(str(label), task)
        except ValueError as error:
            bad.add(location, str(error), "\t".join(row.values()))
            continue
        yield TextExample(
            key=row[columns["key"]] if columns["key"] else str(location.number - first_line),
            first=row[columns["first"] or ""],
            second=row[columns["second"]] if columns["second"] else None,
            label=label,
            slice=row[columns["slice"]] if columns["slice"] else "",
            where=str(location),
        )


def _columns(
    layout: _Layout, row: Mapping[str, str], path: Path, labeled: bool, task: Task
) -> dict[str, str | None]:
    needed = {"first", *(("second",) if layout.second else ()), *(("label",) if labeled else ())}
    columns: dict[str, str | None] = {}
    for role in ("first", "second", "label", "key", "slice"):
        names: tuple[str, ...] = getattr(layout, role)
        columns[role] = next((name for name in names if name in row), None)
        if columns[role] is None and role in needed:
            raise DataError(
                f"{path}: there is no column {' or '.join(map(repr, names))}, which {task.name} "
                f"has; the file has: {list_names(row)}; is it GLUE's original {task.name} file?"
            )
    return columns


def _label(text: str, task: Task) -> str | float:
    if task.kind != "regress":
        if text not in task.labels:
            raise ValueError(
                f"the label is {shorten(text)}, {task.name} has: {', '.join(task.labels)}"
            )
        return text
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"the score is {shorten(text)}, expected a number")
    return number


def _benchmark(
    name: str,
    folder: str,
    layout: _Layout,
    *,
    scores: tuple[str, ...] = ("accuracy",),
    labels: tuple[str, ...] = _BINARY,
    label_names: tuple[str, ...] = (),
    kind: Kind = "pair",
    splits: _Splits = _FILES,
    others: tuple[str, ...] = (),
    broken_lines: bool = False,
) -> Benchmark:
    task = Task(name=name, kind=kind, scores=scores, labels=labels, head=HEADS[kind])
    return Benchmark(
        task=task,
        folders=tuple(dict.fromkeys((folder, name, *others))),
        splits=splits,
        read=partial(_read_glue, layout, task),
        group=lambda example: (
            (example.first, example.second or "") if isinstance(example, TextExample) else ()
        ),
        cut_by="pair, so that no text stands on both sides",
        label_names=label_names,
        broken_lines=broken_lines,
    )


_PAIR = _Layout(first=("sentence1",), second=("sentence2",), slice=("genre",))

GLUE = {
    "cola": _benchmark(
        "cola",
        "CoLA",
        _Layout(
            first=("sentence",), slice=("source",), header=("source", "label", "mark", "sentence")
        ),
        kind="classify",
        label_names=("unacceptable", "acceptable"),
        scores=("matthews", "accuracy"),
    ),
    "sst2": _benchmark(
        "sst2",
        "SST-2",
        _Layout(first=("sentence",)),
        kind="classify",
        label_names=("negative", "positive"),
    ),
    "mrpc": _benchmark(
        "mrpc",
        "MRPC",
        _Layout(first=("#1 String",), second=("#2 String",), label=("Quality",)),
        label_names=("not_equivalent", "equivalent"),
        scores=("accuracy", "f1"),
    ),
    "stsb": _benchmark(
        "stsb",
        "STS-B",
        _Layout(first=("sentence1",), second=("sentence2",), label=("score",), slice=("genre",)),
        kind="regress",
        labels=(),
        scores=("pearson", "spearman"),
    ),
    "qqp": _benchmark(
        "qqp",
        "QQP",
        _Layout(first=("question1",), second=("question2",), label=("is_duplicate",)),
        label_names=("not_duplicate", "duplicate"),
        scores=("accuracy", "f1"),
        broken_lines=True,
    ),
    "mnli": _benchmark(
        "mnli",
        "MNLI",
        _Layout(
            first=("sentence1",), second=("sentence2",), label=("gold_label",), slice=("genre",)
        ),
        labels=_NLI,
        splits=_MATCHED,
    ),
    "qnli": _benchmark(
        "qnli", "QNLI", _Layout(first=("question",), second=("sentence",)), labels=_ENTAILS
    ),
    "rte": _benchmark("rte", "RTE", _PAIR, labels=_ENTAILS),
    "wnli": _benchmark("wnli", "WNLI", _PAIR, label_names=("not_entailment", "entailment")),
    "diagnostic": _benchmark(
        "diagnostic",
        "diagnostic",
        _Layout(
            first=("sentence1", "Premise"),
            second=("sentence2", "Hypothesis"),
            label=("label", "Label"),
            slice=("Domain",),
        ),
        labels=_NLI,
        scores=("matthews", "accuracy"),
        splits=_DIAGNOSTIC,
        others=("AX", "MNLI"),
    ),
}
"""By name; the labels' last is what F1 is of."""
