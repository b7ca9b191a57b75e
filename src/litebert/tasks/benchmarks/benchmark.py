"""A benchmark: a task whose files have fixed names and a fixed layout. glue, squad and race make
tables of these."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from litebert.data.files import COMPRESSIONS
from litebert.tasks.examples import TaskExample
from litebert.tasks.tables.bad_rows import BadRows
from litebert.tasks.tables.options import TableOptions
from litebert.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Where a benchmark's splits are found, and how they are read."""

    task: Task
    folders: tuple[str, ...]
    """Names of its own folder inside a parent: CoLA inside glue_data."""
    splits: Mapping[str, tuple[str, ...]]
    """For each split, patterns of its files or folders, which may be compressed; the first that is
    there counts, with all that match it."""
    read: Callable[[Path, str, BadRows, TableOptions], Iterator[TaskExample]]
    """(path of a file or folder, split, bad rows, options) → examples."""
    group: Callable[[TaskExample], tuple[str, ...]]
    """What two examples must not share if one is trained on and the other scored, where dev has to
    be cut."""
    cut_by: str
    """The group in words: title, pair."""
    not_ours: str = ""
    """Files of its folder that belong to another benchmark, by a part of their names."""
    broken_lines: bool = False
    """Whether the official files themselves have broken lines, which are then left out and
    counted."""

    def find(self, data: Path | str, split: str) -> list[Path]:
        """The split's files: `data` itself, inside it, or inside the benchmark's folder there; []
        where there are none."""
        data = Path(data)
        if data.is_file():
            return [data] if self.split_of(data) == split else []
        for folder in self.places(data):
            for pattern in self.splits[split]:
                found = sorted(
                    path for suffix in ("", *COMPRESSIONS) for path in folder.glob(pattern + suffix)
                )
                found = [
                    path for path in found if not self.not_ours or self.not_ours not in path.name
                ]
                if found:
                    return found
        return []

    def split_of(self, path: Path) -> str:
        """Which split a single file is, by its name; dev where that does not say."""
        for split, patterns in self.splits.items():
            if any(
                path.match(pattern + suffix)
                for pattern in patterns
                for suffix in ("", *COMPRESSIONS)
            ):
                return split
        return "dev" if "dev" in self.splits else next(iter(self.splits))

    def places(self, data: Path) -> list[Path]:
        """Folders to look into, in this order."""
        return [
            folder for folder in (data, *(data / name for name in self.folders)) if folder.is_dir()
        ]
