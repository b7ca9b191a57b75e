"""One's own files as a task: CSV, TSV, JSONL or Parquet in, TaskData out; labels are found in the
data.
 `data` is a folder with train.*, dev.* and test.*, or a single file. Where there is no file for
dev, a part of train becomes dev, cut by a seeded hash so that equal rows stay together.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

from litebert.errors import DataError
from litebert.tasks.benchmarks.squad import read_squad
from litebert.tasks.examples import Kind, TagExample, TaskExample, TextExample
from litebert.tasks.tables.bad_rows import BadRowError, BadRows
from litebert.tasks.tables.columns import find_columns
from litebert.tasks.tables.cut import cut
from litebert.tasks.tables.lines import compression_of
from litebert.tasks.tables.options import TableOptions
from litebert.tasks.tables.own_task import expect_known, find_labels, make_task
from litebert.tasks.tables.row_example import row_to_example
from litebert.tasks.tables.rows import KINDS, TABLES, read_rows
from litebert.tasks.task import TaskData

STEMS = {
    "train": ("train", "training"),
    "dev": ("dev", "validation", "valid", "val"),
    "test": ("test",),
}
PEEK = 20
"""Rows that are looked at to know the columns: of JSON, not every row has to have them all."""


def open_table(
    kind: Kind, data: Path, options: TableOptions, splits: Sequence[str] | None
) -> TaskData:
    """Read one's own files; `splits` asks for some splits only, and then they must be there."""
    files = find_splits(kind, data)
    if (
        data.is_file()
        and splits is not None
        and list(splits) == ["test"]
        and not options.test_fraction
    ):
        files = {"test": [data]}  # the whole file is to be scored
    there = tuple(files)
    if splits is not None:
        is_known = options.labels is not None and all(split in files for split in splits)
        first = (
            () if is_known else there[:1]
        )  # train: labels are found there, and what has no file is cut from it
        files = {split: files[split] for split in there if split in (*splits, *first)}
    reader = _Reader(kind, options)
    with BadRows.of(options) as bad:
        found: dict[str, Sequence[TaskExample]] = {}
        for split in STEMS:
            if split in files:
                found[split] = reader.read(files[split], split, bad)
        task = make_task(kind, reader.labels or (), found)
        cuts = _cut(found, there, options)
        notes = (*dict.fromkeys(reader.notes), *cuts, *_shared(found), *bad.notes)
    wanted = list(splits) if splits is not None else list(found)
    missing = [split for split in wanted if split not in found]
    if missing:
        raise DataError(
            f"{data} has no split {missing[0]!r}; there is: "
            f"{', '.join(dict.fromkeys((*there, *found)))}; "
            f"expected a file {' or '.join(STEMS.get(missing[0], missing))}.csv (or {TABLES})"
        )
    return TaskData(task=task, splits={split: found[split] for split in wanted}, notes=notes)


def find_splits(kind: Kind, data: Path) -> dict[str, list[Path]]:
    """The files of each split; a single file is train."""
    if data.is_file():
        _expect_table(kind, data)
        return {"train": [data]}
    found: dict[str, list[Path]] = {}
    for split, stems in STEMS.items():
        paths = sorted(
            path for path in data.iterdir() if _stem(path) in stems and _is_table(kind, path)
        )
        if len(paths) > 1:
            raise DataError(
                f"{data} holds {' and '.join(path.name for path in paths)}; which of them is "
                f"{split}? Keep one"
            )
        # train-00000-of-00002.parquet, as large tables are stored
        parts = sorted(
            path for stem in stems for path in data.glob(f"{stem}-*") if _is_table(kind, path)
        )
        if paths or parts:
            found[split] = paths or parts
    if not found:
        raise DataError(
            f"{data} holds no train, dev or test file; expected train.csv, dev.csv, … ({TABLES})"
        )
    return found


def _stem(path: Path) -> str:
    return path.name.lower().split(".", 1)[0]


def _is_table(kind: Kind, path: Path) -> bool:
    suffix = compression_of(path)[1]
    return path.is_file() and (
        KINDS.get(suffix, "text") != "text" or (kind == "answer" and suffix == ".json")
    )


def _expect_table(kind: Kind, path: Path) -> None:
    if not _is_table(kind, path):
        also = ", or .json in SQuAD's layout" if kind == "answer" else ""
        raise DataError(f"{path}: the name does not say what table it is; expected {TABLES}{also}")


class _Reader:
    """Files to examples, and what was recognised on the way."""

    def __init__(self, kind: Kind, options: TableOptions) -> None:
        self.kind, self.options = kind, options
        self.labels = options.labels
        self.notes: list[str] = []

    def read(self, paths: Sequence[Path], split: str, bad: BadRows) -> list[TaskExample]:
        found = [example for path in paths for example in self._file(path, split, bad)]
        if not found:
            left = (
                f"; {bad.count} bad rows were left out, the first: {bad.first}" if bad.count else ""
            )
            raise DataError(
                f"{paths[0]}: there is no row to "
                f"{'train on' if split == 'train' else 'score'}{left}"
            )
        if (
            self.labels is None and split != "test"
        ):  # train comes first: what the other splits have beyond it is unknown
            self.labels = find_labels(self.kind, found, str(paths[0]))
        return found

    def _file(self, path: Path, split: str, bad: BadRows) -> Iterator[TaskExample]:
        if compression_of(path)[1] == ".json":
            yield from read_squad(True, path, split, bad, self.options)
            return
        labelled = split != "test"
        rows = read_rows(path, bad=bad)
        ahead = list(islice(rows, PEEK))
        if not ahead:
            return
        names = list(dict.fromkeys(name for _, row in ahead for name in row))
        columns, told = find_columns(
            self.kind, names, self.options, where=path.name, labelled=labelled
        )
        self.notes += [told] if told else []
        for number, (place, row) in enumerate(chain(ahead, rows)):
            try:
                example = row_to_example(
                    self.kind, row, columns, key=str(number), where=str(place), labelled=labelled
                )
                expect_known(example, self.labels or ())
            except BadRowError as error:
                bad.add(place, str(error), row)
                continue
            yield example


def same(example: TaskExample) -> tuple[str, ...]:
    """What makes two rows one for the cut: their texts, whatever their labels; of questions, their
    context."""
    if isinstance(example, TextExample):
        return ("\0".join((example.first, example.second or "")),)
    if isinstance(example, TagExample):
        return ("\0".join(example.words),)
    return (example.context or example.question,)


def _cut(
    found: dict[str, Sequence[TaskExample]], there: Sequence[str], options: TableOptions
) -> list[str]:
    """Make the splits that no file is `there` for out of train; what was done, in words."""
    notes = []
    whole = len(found.get("train", ()))
    for split, part in (("test", options.test_fraction), ("dev", options.dev_fraction)):
        if split in there or not part or not whole:
            continue
        rest, cut_off = cut(
            found["train"], part * whole / len(found["train"]), same, seed=options.cut_seed
        )
        if not cut_off or not rest:
            raise DataError(
                f"train has {whole} rows, too few different ones to cut {part:.0%} off for "
                f"{split}; give a file for {split}"
            )
        found["train"], found[split] = rest, cut_off
        notes.append(
            f"{split} is {len(cut_off):,} of the {whole:,} rows, cut from train (seed "
            f"{options.cut_seed})"
        )
    return notes


def _shared(found: Mapping[str, Sequence[TaskExample]]) -> list[str]:
    """Say where a text is both trained on and scored: such a score is too good."""
    known = {name for example in found.get("train", ()) for name in same(example)}
    notes = []
    for split in ("dev", "test"):
        count = sum(not known.isdisjoint(same(example)) for example in found.get(split, ()))
        if count and known:
            notes.append(
                f"{count:,} of {len(found[split]):,} examples of {split} have their text in train, "
                "too"
            )
    return notes
