"""The folder of a run's snapshots: step-00000500, step-00001000, … In: snapshots. Out: the newest
valid one.
 A bad one is set aside as *.bad and reported; old ones are removed, never the last valid one; a
full disk costs a snapshot and not the run. Only one process of a run may save; all may read.
"""

import contextlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from litebert.errors import CheckpointError
from litebert.files import DISK_FULL, remove_folder, remove_leftovers, verify_folder, write_folder
from litebert.storage.snapshot.state import Snapshot

SPARE_BYTES = 2**20  # folders and journal


class SnapshotStore:
    def __init__(
        self,
        folder: Path | str,
        *,
        keep: int = 2,
        report: Callable[[str], None] = lambda message: None,
    ) -> None:
        """Nothing is read or written yet.

        Args:
            folder: Where snapshots live; made when the first is saved.
            keep: How many stay; while one is written there is one more.
            report: Is told, in one sentence, what a person should know.
        """
        assert keep >= 1
        self.folder, self.keep, self.report = Path(folder), keep, report

    def paths(self) -> list[Path]:
        """The published snapshots, oldest first; not yet verified."""
        found = self.folder.glob("step-*")
        return sorted(
            (path for path in found if re.fullmatch(r"step-\d{8,}", path.name)), key=_step
        )

    def save(self, snapshot: Snapshot) -> Path | None:
        """Publish `snapshot` and remove the oldest; None, and a report, where the disk is full."""
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.folder)
        needed, free = snapshot.num_bytes() + SPARE_BYTES, shutil.disk_usage(self.folder).free
        if free < needed:
            self._disk_full(
                snapshot, f"it needs {needed / 1e6:.1f} MB and {free / 1e6:.1f} MB are free"
            )
            return None
        try:
            path = write_folder(
                self.folder / f"step-{snapshot.step:08d}", snapshot.write, replace=True
            )
        except OSError as error:
            if error.errno in DISK_FULL:
                self._disk_full(snapshot, str(error.strerror))
                return None
            raise CheckpointError(
                f"the snapshot of step {snapshot.step} could not be written: {error}"
            ) from error
        self.prune()
        return path

    def latest(self, *, set_aside: bool = True) -> Snapshot | None:
        """The newest snapshot that is whole, or None; with `set_aside` the bad ones met on the way
        are renamed."""
        for path in reversed(self.paths()):
            try:
                verify_folder(path)
                return Snapshot.read(path)
            except CheckpointError as error:
                kept = _set_aside(path) if set_aside else path
                self.report(f"a bad snapshot is passed over, kept as {kept.name}: {error}")
        return None

    def prune(self) -> None:
        """Remove all but the newest `keep`; if none of those is valid, the newest valid one stays
        as well."""
        older, newer = self.paths()[: -self.keep], self.paths()[-self.keep :]
        if older and not any(_is_valid(path) for path in reversed(newer)):
            last = next((path for path in reversed(older) if _is_valid(path)), None)
            older = [path for path in older if path != last]
        for path in older:
            with contextlib.suppress(OSError):
                remove_folder(path)

    def _disk_full(self, snapshot: Snapshot, why: str) -> None:
        last = self.paths()[-1].name if self.paths() else "none yet"
        self.report(
            f"no snapshot of step {snapshot.step}, the disk of {self.folder} is full: {why}. "
            f"The run goes on; the last good snapshot is {last}. Free some space"
        )


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _is_valid(path: Path) -> bool:
    with contextlib.suppress(CheckpointError):
        verify_folder(path)
        return True
    return False


def _set_aside(path: Path) -> Path:
    number = 1
    while (
        target := path.with_name(f"{path.name}.bad" + (f"-{number}" if number > 1 else ""))
    ).exists():
        number += 1
    try:
        return path.rename(target)
    except OSError:  # a folder that may only be read: the report is all we can do
        return path
