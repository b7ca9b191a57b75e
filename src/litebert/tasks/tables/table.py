"""Own data as a task: CSV, TSV, JSONL or Parquet files, or tables in memory, in; TaskData out, with
the labels of the data.

`data` is a folder with train.*, dev.* and test.*, a single file, or a table in memory for each
split. Where there is none for dev, some of train becomes dev.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from litebert.checks import shorten
from litebert.config import HeadKind
from litebert.data.bad_rows import BadRowError, BadRows
from litebert.data.unpack import compression_of
from litebert.errors import DataError
from litebert.tasks.benchmarks.squad import read_squad
from litebert.tasks.examples import AnswerExample, Kind, TaskExample
from litebert.tasks.tables.columns import TableOptions, find_columns
from litebert.tasks.tables.example import row_to_example
from litebert.tasks.tables.labels import Labels
from litebert.tasks.tables.memory import Source, open_rows
from litebert.tasks.tables.rows import TABLES
from litebert.tasks.tables.split import STEMS, cut_missing, find_splits, overlap_notes
from litebert.tasks.task import HEADS, Task, TaskData

_SCORES: Mapping[Kind, tuple[str, ...]] = {
    "classify": ("accuracy", "macro_f1", "matthews"),
    "pair": ("accuracy", "macro_f1", "matthews"),
    "regress": ("pearson", "spearman", "mean_squared_error"),
    "choose": ("accuracy",),
    "answer": ("f1", "exact"),
    "tag": ("accuracy",),
}


def open_table(
    kind: Kind,
    data: Path | Mapping[str, Sequence[Source]],
    options: TableOptions,
    splits: Sequence[str] | None,
    head: HeadKind | None = None,
    columns: Mapping[str, tuple[str, ...]] | None = None,
) -> TaskData:
    """Read own data; `splits` selects some splits, which then must be there; `head` and `columns`
    are those of the model to be scored."""
    files: Mapping[str, Sequence[Source]] = (
        find_splits(kind, data) if isinstance(data, Path) else data
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
    reader = _Reader(kind, options, head, columns or {})
    with BadRows(options.bad_rows, options.quarantine) as bad:
        examples: dict[str, Sequence[TaskExample]] = {
            split: reader.read(files[split], split, bad) for split in STEMS if split in files
        }
        task = _make_task(kind, reader.labels, examples)
        cuts, is_stratified = cut_missing(examples, in_files, options)
        read = dict.fromkeys((*reader.notes, *reader.labels.notes))
        notes = (*read, *cuts, *overlap_notes(examples), *bad.notes)
    wanted = list(splits) if splits is not None else list(examples)
    missing = [split for split in wanted if split not in examples]
    if missing:
        raise DataError(
            f"{data if isinstance(data, Path) else 'the data'} has no split {shorten(missing[0])}; "
            f"there is: {', '.join(dict.fromkeys((*in_files, *examples)))}; "
            f"expected a file {' or '.join(STEMS.get(missing[0], missing))}.csv (or {TABLES})"
        )
    return TaskData(
        task=task,
        splits={split: examples[split] for split in wanted},
        notes=notes,
        columns=reader.columns,
        stratified=is_stratified,
        cut=options.cut() if cuts else {},
    )


class _Reader:
    """Reads files into examples, and notes what it recognized."""

    def __init__(
        self,
        kind: Kind,
        options: TableOptions,
        head: HeadKind | None,
        remembered: Mapping[str, tuple[str, ...]],
    ) -> None:
        self.kind, self.options = kind, options
        self.columns = dict(remembered)
        """By role; of the first table, unless a model has its own."""
        self.labels = Labels(kind, options, head)
        self.notes: list[str] = []
        self._has_learned = False

    def read(self, sources: Sequence[Source], split: str, bad: BadRows) -> list[TaskExample]:
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
        bad.check_share(len(examples), self.options.max_bad_rows)
        if not self._has_learned and split != "test":
            # train comes first: labels that only other splits have are unknown
            examples = self.labels.learn(examples, str(sources[0]))
            self._has_learned = True
        return examples

    def _read_table(self, source: Source, split: str, bad: BadRows) -> Iterator[TaskExample]:
        if isinstance(source, Path) and compression_of(source)[1] == ".json":
            yield from read_squad(True, source, split, bad, self.options)
            return
        names, rows = open_rows(source, bad, self.options.encoding)
        if names is None:
            return
        labeled = split != "test"
        columns, note = find_columns(
            self.kind,
            names,
            self.options,
            where=source.name,
            labeled=labeled,
            remembered=self.columns,
        )
        self.columns = self.columns or columns.by_role()
        self.notes += [note] if note else []
        for number, (location, row) in enumerate(rows):
            try:
                example = row_to_example(
                    self.kind, row, columns, key=str(number), where=str(location), labeled=labeled
                )
                example = self.labels.read(example)
            except BadRowError as error:
                bad.add(location, str(error), row)
                continue
            yield example


def _make_task(kind: Kind, labels: Labels, splits: Mapping[str, Sequence[TaskExample]]) -> Task:
    names = labels.names or ()
    has_null = any(
        isinstance(example, AnswerExample) and example.answers == ()
        for examples in splits.values()
        for example in examples
    )
    head: HeadKind = "joint_span" if has_null else HEADS[kind]
    scores = _SCORES[kind]
    if labels.is_multilabel:
        head, scores = "multilabel", ("micro_f1", "macro_f1", "subset_accuracy")
    elif kind == "tag" and any(name.startswith(("B-", "I-")) for name in names):
        scores = ("f1", "precision", "recall", "accuracy")  # of entities
    return Task(
        name=kind,
        kind=kind,
        scores=scores,
        labels=names,
        head=head,
        has_null=has_null,
    )
