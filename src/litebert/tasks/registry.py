"""Tasks by name: benchmarks in their official files, and one's own files by the kind of question. A
name in, TaskData out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

from litebert.checks import check_known
from litebert.errors import DataError
from litebert.tasks.benchmarks.benchmark import Benchmark
from litebert.tasks.benchmarks.glue import GLUE
from litebert.tasks.benchmarks.race import RACE
from litebert.tasks.benchmarks.squad import SQUAD
from litebert.tasks.examples import Kind, TaskExample
from litebert.tasks.tables.bad_rows import BadRows
from litebert.tasks.tables.cut import cut
from litebert.tasks.tables.options import TableOptions
from litebert.tasks.tables.table import open_table
from litebert.tasks.task import TaskData

__all__ = ["BENCHMARKS", "OWN", "TableOptions", "open_task"]

BENCHMARKS: dict[str, Benchmark] = {**GLUE, **SQUAD, **RACE}
OWN: tuple[str, ...] = get_args(Kind)
"""One's own files, by the kind of question: classify, pair, regress, choose, answer, tag."""


def open_task(
    name: str,
    data: Path | str,
    *,
    options: TableOptions | None = None,
    splits: Sequence[str] | None = None,
) -> TaskData:
    """Read a task's examples; `splits` asks for some splits only, and then they must be there."""
    check_known("task", name, (*BENCHMARKS, *OWN))
    options = options or TableOptions()
    if not Path(data).exists():
        raise DataError(f"{data}: no such file or folder; expected the data of {name}")
    if name in get_args(Kind):
        return open_table(cast(Kind, name), Path(data), options, splits)
    return _open_benchmark(BENCHMARKS[name], Path(data), options, splits)


def _open_benchmark(
    benchmark: Benchmark, data: Path, options: TableOptions, splits: Sequence[str] | None
) -> TaskData:
    files = _find_files(benchmark, data, splits)
    part = options.split_dev if "dev" in files and "train" not in files else None
    there = ["train", *files] if part else list(files)
    wanted = there if splits is None else splits
    missing = [split for split in wanted if split not in there]
    if missing or not wanted:
        raise DataError(_looked_for(benchmark, data, missing or list(benchmark.splits), files))
    if benchmark.broken_lines and options.bad_rows == "error":
        options = replace(options, bad_rows="skip")
    found: dict[str, Sequence[TaskExample]] = {}
    with BadRows.of(options) as bad:
        for split, paths in files.items():
            if split in wanted or (part and split == "dev" and "train" in wanted):
                found[split] = [
                    example
                    for path in paths
                    for example in benchmark.read(path, split, bad, options)
                ]
                if not found[split]:
                    raise DataError(
                        f"{paths[0]}: there is no usable example for {split} of "
                        f"{benchmark.task.name}"
                    )
    notes = bad.notes
    if part and "dev" in found:
        train, dev = cut(found["dev"], part, benchmark.group, seed=options.cut_seed)
        found |= {"train": train, "dev": dev}
        notes += (
            f"there is no train split: dev was cut by {benchmark.cut_by}, {len(train):,} examples "
            "to train on and "
            f"{len(dev):,} to score on (seed {options.cut_seed}); the score is not the official "
            "one",
        )
    return TaskData(
        task=benchmark.task,
        splits={split: found[split] for split in there if split in wanted},
        notes=notes,
    )


def _find_files(
    benchmark: Benchmark, data: Path, splits: Sequence[str] | None
) -> dict[str, list[Path]]:
    """The files of each split, in the splits' order."""
    for split in splits or ():
        if split not in benchmark.splits:
            raise DataError(
                f"{benchmark.task.name} has no split {split!r}; it has: "
                f"{', '.join(benchmark.splits)}"
            )
    if data.is_file() and splits is not None and len(splits) == 1:
        return {splits[0]: [data]}  # the user says what the file is
    return {split: paths for split in benchmark.splits if (paths := benchmark.find(data, split))}


def _looked_for(
    benchmark: Benchmark, data: Path, missing: Sequence[str], files: dict[str, list[Path]]
) -> str:
    names = "; ".join(f"{split} ({' or '.join(benchmark.splits[split])})" for split in missing)
    folders = ", ".join(benchmark.folders)
    there = f"; there is: {', '.join(files)}" if files else ""
    hint = (
        "; --split-dev 0.2 trains on a part of dev" if "train" in missing and "dev" in files else ""
    )
    return f"{data} holds no {names} of {benchmark.task.name}, neither itself nor in a folder {folders}{there}{hint}"
