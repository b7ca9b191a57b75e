"""A benchmark: a task whose files have fixed names and a fixed layout. glue, squad and race are
tables of these."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from litebert.checks import shorten
from litebert.data.bad_rows import BadRows
from litebert.data.unpack import COMPRESSIONS
from litebert.errors import DataError
from litebert.tasks.examples import TaskExample
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.tables.split import cut
from litebert.tasks.task import Task, TaskData

_SUFFIXES = ("", *COMPRESSIONS)


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Where a benchmark's splits are found, and how they are read."""

    task: Task
    folders: tuple[str, ...]
    """Names of its own folder inside a parent: CoLA inside glue_data."""
    splits: Mapping[str, tuple[str, ...]]
    """For each split, patterns of its files or folders, which may be compressed; the first pattern
    with a match counts, with all its matches."""
    read: Callable[[Path, str, BadRows, TableOptions], Iterator[TaskExample]]
    """(path of a file or folder, split, bad rows, options) → examples."""
    group: Callable[[TaskExample], tuple[str, ...]]
    """What two examples must not share if one is trained on and the other scored, where dev has to
    be cut."""
    cut_by: str
    """The group in words: title, pair."""
    not_ours: str = ""
    """Substring of the names of files that belong to another benchmark."""
    label_names: tuple[str, ...] = ()
    """What models call the task's labels where the files have numbers, in the same order."""
    broken_lines: bool = False
    """Whether the official files themselves have broken lines, which are then skipped and
    counted."""

    def find(self, data: Path | str, split: str) -> list[Path]:
        """The split's files: `data` itself, inside it, or inside the benchmark's folder there; []
        where there are none."""
        data = Path(data)
        if data.is_file():
            return [data] if self._split_of(data) == split else []
        for folder in (data, *(data / name for name in self.folders)):
            for pattern in self.splits[split] if folder.is_dir() else ():
                paths = sorted(
                    path
                    for suffix in _SUFFIXES
                    for path in folder.glob(pattern + suffix)
                    if not self.not_ours or self.not_ours not in path.name
                )
                if paths:
                    return paths
        return []

    def _split_of(self, path: Path) -> str:
        """Which split a single file is, by its name; dev where that does not tell."""
        for split, patterns in self.splits.items():
            if any(path.match(pattern + suffix) for pattern in patterns for suffix in _SUFFIXES):
                return split
        return "dev" if "dev" in self.splits else next(iter(self.splits))


def open_benchmark(
    benchmark: Benchmark, data: Path, options: TableOptions, splits: Sequence[str] | None
) -> TaskData:
    """Read a benchmark's files; `splits` selects some splits, which then must be there."""
    files = _find_files(benchmark, data, splits)
    cut_fraction = options.split_dev if "dev" in files and "train" not in files else None
    available = ["train", *files] if cut_fraction else list(files)
    wanted = available if splits is None else splits
    missing = [split for split in wanted if split not in available]
    if missing or not wanted:
        raise DataError(_not_found(benchmark, data, missing or list(benchmark.splits), files))
    if benchmark.broken_lines and options.bad_rows == "error":
        options = replace(options, bad_rows="skip")
    examples: dict[str, Sequence[TaskExample]] = {}
    with BadRows(options.bad_rows, options.quarantine) as bad:
        for split, paths in files.items():
            if split in wanted or (cut_fraction and split == "dev" and "train" in wanted):
                examples[split] = [
                    example
                    for path in paths
                    for example in benchmark.read(path, split, bad, options)
                ]
                if not examples[split]:
                    raise DataError(
                        f"{paths[0]}: there is no usable example for {split} of "
                        f"{benchmark.task.name}"
                    )
                bad.check_share(len(examples[split]), options.max_bad_rows)
    notes = bad.notes
    if cut_fraction and "dev" in examples:
        train, dev = cut(examples["dev"], cut_fraction, benchmark.group, seed=options.cut_seed)
        examples |= {"train": train, "dev": dev}
        notes += (
            f"there is no train split: dev was cut by {benchmark.cut_by}, {len(train):,} examples "
            f"to train on and {len(dev):,} to score on (seed {options.cut_seed}); the score is not "
            "the official one",
        )
    return TaskData(
        task=benchmark.task,
        splits={split: examples[split] for split in available if split in wanted},
        notes=notes,
        cut=options.cut() if cut_fraction else {},
    )


def _find_files(
    benchmark: Benchmark, data: Path, splits: Sequence[str] | None
) -> dict[str, list[Path]]:
    """The files of each split, in the splits' order."""
    for split in splits or ():
        if split not in benchmark.splits:
            raise DataError(
                f"{benchmark.task.name} has no split {shorten(split)}; it has: "
                f"{', '.join(benchmark.splits)}"
            )
    if data.is_file() and splits is not None and len(splits) == 1:
        return {splits[0]: [data]}  # the user says what the file is
    return {split: paths for split in benchmark.splits if (paths := benchmark.find(data, split))}


def _not_found(
    benchmark: Benchmark, data: Path, missing: Sequence[str], files: dict[str, list[Path]]
) -> str:
    names = "; ".join(f"{split} ({' or '.join(benchmark.splits[split])})" for split in missing)
    folders = ", ".join(benchmark.folders)
    others = f"; there is: {', '.join(files)}" if files else ""
    can_cut = "train" in missing and "dev" in files
    hint = "; --split-dev 0.2 trains on a part of dev" if can_cut else ""
    return (
        f"{data} holds no {names} of {benchmark.task.name}, neither itself nor in a folder "
        f"{folders}{others}{hint}"
    )
