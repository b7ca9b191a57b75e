"""Own data as a task: CSV, TSV, JSONL or Parquet files, or tables in memory, in; TaskData out, labels
and scores found in the data.

`data` is a folder with train.*, dev.* and test.*, a single file, or a table in memory for each
split. Where there is none for dev, some of train becomes dev.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

from litebert.config import HeadKind
from litebert.data.bad_rows import BadRowError, BadRows
from litebert.errors import DataError
from litebert.tasks.benchmarks.squad import read_squad
from litebert.tasks.examples import AnswerExample, Kind, TagExample, TaskExample, TextExample
from litebert.tasks.tables.columns import TableOptions, find_columns
from litebert.tasks.tables.example import row_to_example
from litebert.tasks.tables.memory import MemoryTable
from litebert.tasks.tables.rows import TABLES, compression_of, read_rows
from litebert.tasks.tables.split import STEMS, cut_missing, find_splits, overlap_notes
from litebert.tasks.task import HEADS, LABELLED, Task, TaskData

PEEK = 20
"""Rows that are read to know the columns: of JSON, not every row has to have them all."""
_SCORES: Mapping[Kind, tuple[str, ...]] = {
    "classify": ("accuracy", "macro_f1", "matthews"),
    "pair": ("accuracy", "macro_f1", "matthews"),
    "regress": ("pearson", "spearman", "mean_squared_error"),
    "choose": ("accuracy",),
    "answer": ("f1", "exact"),
    "tag": ("accuracy",),
}
_ENTITY_SCORES = ("f1", "precision", "recall", "accuracy")  # of tags with B-, I- and O
_MANY = 50  # rows from which on a label of its own for every row means a wrong column


def open_table(
    kind: Kind,
    data: Path | Mapping[str, MemoryTable],
    options: TableOptions,
    splits: Sequence[str] | None,
) -> TaskData:
    """Read own data; `splits` selects some splits, which then must be there."""
    files: dict[str, Sequence[Path | MemoryTable]] = (
        dict(find_splits(kind, data))
        if isinstance(data, Path)
        else {split: [table] for split, table in data.items()}
    )
    is_test = splits is not None and list(splits) == ["test"] and not options.test_fraction
    if is_test and list(files) == ["train"] and not (isinstance(data, Path) and data.is_dir()):
        files = {"test": files["train"]}  # all of a single table is to be scored
    in_files = tuple(files)
    if splits is not None:
        is_known = options.labels is not None and all(split in files for split in splits)
        # train: labels are found there, and a split without a file is cut from it
        first = () if is_known else in_files[:1]
        files = {split: files[split] for split in in_files if split in (*splits, *first)}
    reader = _Reader(kind, options)
    with BadRows(options.bad_rows, options.quarantine) as bad:
        examples: dict[str, Sequence[TaskExample]] = {
            split: reader.read(files[split], split, bad) for split in STEMS if split in files
        }
        task = _make_task(kind, reader.labels or (), examples)
        cuts = cut_missing(examples, in_files, options)
        notes = (*dict.fromkeys(reader.notes), *cuts, *overlap_notes(examples), *bad.notes)
    wanted = list(splits) if splits is not None else list(examples)
    missing = [split for split in wanted if split not in examples]
    if missing:
        raise DataError(
            f"{data if isinstance(data, Path) else 'the data'} has no split {missing[0]!r}; there is: "
            f"{', '.join(dict.fromkeys((*in_files, *examples)))}; "
            f"expected a file {' or '.join(STEMS.get(missing[0], missing))}.csv (or {TABLES})"
        )
    return TaskData(task=task, splits={split: examples[split] for split in wanted}, notes=notes)


class _Reader:
    """Reads files into examples, and notes what it recognized."""

    def __init__(self, kind: Kind, options: TableOptions) -> None:
        self.kind, self.options = kind, options
        self.labels = options.labels
        self.notes: list[str] = []

    def read(
        self, sources: Sequence[Path | MemoryTable], split: str, bad: BadRows
    ) -> list[TaskExample]:
        examples = [
            example for source in sources for example in self._read_table(source, split, bad)
        ]
        if not examples:
            skipped = (
                f"; {bad.count} bad rows were left out, the first: {bad.first}" if bad.count else ""
            )
            raise DataError(
                f"{sources[0]}: there is no row to "
                f"{'train on' if split == 'train' else 'score'}{skipped}"
            )
        if self.labels is None and split != "test":
            # train comes first: labels that only other splits have are unknown
            self.labels = _find_labels(self.kind, examples, str(sources[0]))
        return examples

    def _read_table(
        self, source: Path | MemoryTable, split: str, bad: BadRows
    ) -> Iterator[TaskExample]:
        if isinstance(source, Path) and compression_of(source)[1] == ".json":
            yield from read_squad(True, source, split, bad, self.options)
            return
        labelled = split != "test"
        rows = read_rows(source, bad=bad) if isinstance(source, Path) else source.rows(bad)
        where = source.name
        ahead = list(islice(rows, PEEK))
        if not ahead:
            return
        names = list(dict.fromkeys(name for _, row in ahead for name in row))
        columns, note = find_columns(self.kind, names, self.options, where=where, labelled=labelled)
        self.notes += [note] if note else []
        for number, (location, row) in enumerate(chain(ahead, rows)):
            try:
                example = row_to_example(
                    self.kind, row, columns, key=str(number), where=str(location), labelled=labelled
                )
                _expect_known(example, self.labels or ())
            except BadRowError as error:
                bad.add(location, str(error), row)
                continue
            yield example


def _make_task(
    kind: Kind, labels: tuple[str, ...], splits: Mapping[str, Sequence[TaskExample]]
) -> Task:
    has_null = any(
        isinstance(example, AnswerExample) and example.answers == ()
        for examples in splits.values()
        for example in examples
    )
    head: HeadKind = "joint_span" if has_null else HEADS[kind]
    entities = kind == "tag" and any(label.startswith(("B-", "I-")) for label in labels)
    return Task(
        name=kind,
        kind=kind,
        scores=_ENTITY_SCORES if entities else _SCORES[kind],
        labels=labels,
        head=head,
        has_null=has_null,
    )


def _find_labels(kind: Kind, examples: Sequence[TaskExample], where: str) -> tuple[str, ...]:
    """All labels of the examples, numbers by size and words by the alphabet; DataError where
    nothing can be learned."""
    labels = [label for example in examples for label in _labels_of(example)]
    different = set(labels)
    if len(different) == 1:
        what = "number" if kind == "regress" else "label"
        raise DataError(
            f"{where}: the only {what} is {labels[0]!r}, in {len(labels):,} places; two or more "
            "are needed to learn"
        )
    if kind not in LABELLED:
        return ()
    if kind != "tag" and len(different) == len(labels) >= _MANY:
        raise DataError(
            f"{where}: all {len(labels):,} rows have labels of their own, such as {labels[0]!r}; "
            "name the label's column"
        )
    return tuple(sorted(map(str, different), key=_order))


def _expect_known(example: TaskExample, labels: Sequence[str]) -> None:
    """BadRowError for a label that a model could not have learned."""
    for label in _labels_of(example) if labels else ():
        if label not in labels:
            known = ", ".join(labels[:20]) + (", …" if len(labels) > 20 else "")
            raise BadRowError(f"the label {label!r} is unknown; known are: {known}")


def _labels_of(example: TaskExample) -> Iterator[str | float]:
    if isinstance(example, TextExample) and example.label is not None:
        yield example.label
    elif isinstance(example, TagExample):
        yield from example.tags or ()


def _order(label: str) -> tuple[int, float, str]:
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    return (1, 0.0, label) if math.isnan(number) else (0, number, label)
