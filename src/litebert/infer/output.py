"""A file of predictions that grows line by line and survives being killed. Finished stretches in;
the file, whole, out.
 While it grows it is OUTPUT.partial, and OUTPUT.progress.json says how far it is: what was read,
how many bytes are sure, and what it is made from. What was written after the last such note is cut
off and made again. At the end the file gets its name; the note stays, so that the same command
finds its work done.
"""

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from litebert.errors import CheckpointError, ConfigError, DataError
from litebert.files import Lock, publish, read_json, remove_leftovers, write_json

FORMAT = "litebert-predict"
VERSION = 1
NOTE_SECONDS = 1.0
"""Between two notes: what a killed process has to do again."""


class Progress(NamedTuple):
    """How far a file is; one value, so that an interruption finds the old one or the new one."""

    rows: int = 0
    """Rows that have their lines."""
    size: int = 0
    """Bytes of these lines."""
    digest: str = ""
    """A sum over what was read for them."""
    finished: bool = False
    """Whether that is all."""


class Output:
    """The file to be written, held by one process. As a context, it keeps what is sure when it is
    left early."""

    def __init__(
        self, path: Path | str, made_from: Mapping[str, Any], *, overwrite: bool = False
    ) -> None:
        """`made_from` is everything that lines follow from; another run's file is refused, with the
        difference."""
        self.path = Path(path)
        self._partial = self.path.with_name(self.path.name + ".partial")
        self._note = self.path.with_name(self.path.name + ".progress.json")
        self._made_from = json.loads(json.dumps(made_from))  # as it will be read back
        self.progress = Progress()
        self._told = 0.0
        self._lock: Lock | None = None
        if self.path.is_dir():
            raise ConfigError(f"{self.path} is a folder; --out is a file for the predictions")
        try:
            self._file = self._partial.open(
                "ab", buffering=0
            )  # nothing waits in memory for a disk that is full
        except OSError as error:
            raise self._not_written(error) from error
        try:
            self._take_up(overwrite)
        except OSError as error:
            self._close()
            raise self._not_written(error) from error
        except BaseException:
            self._close()
            raise

    def append(self, lines: bytes, *, rows: int, digest: str) -> None:
        """Add the lines of the next stretch: after it `rows` are done in all, and what was read has
        the sum `digest`."""
        try:
            rest = memoryview(lines)
            while rest:
                rest = rest[self._file.write(rest) :]
            self.progress = Progress(rows, self.progress.size + len(lines), digest)
            if time.monotonic() - self._told >= NOTE_SECONDS:
                self._write_note(self.progress)
        except OSError as error:
            raise self._not_written(error) from error

    def finish(self) -> None:
        """Give the file its name."""
        if self.progress.finished:
            return
        try:
            self._write_note(self.progress._replace(finished=True))
            publish(self._partial, self.path)
        except OSError as error:
            raise self._not_written(error) from error

    def __enter__(self) -> "Output":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and not self.progress.finished:
            with contextlib.suppress(OSError):  # the older note is true as well
                self._write_note(self.progress)
        self._close()

    def _close(self) -> None:
        self._file.close()
        if self._lock is not None:
            self._lock.release()

    def _take_up(self, overwrite: bool) -> None:
        """Go on where a note says; begin where there is none."""
        try:
            self._lock = Lock(self._partial)
        except OSError:
            raise ConfigError(
                f"another process is writing {self.path}; wait for it, or choose another --out"
            ) from None
        remove_leftovers(self.path.parent, self._note.name)
        if overwrite:
            self._note.unlink(
                missing_ok=True
            )  # a file that is there stays until the new one is whole
        elif self._note.exists():
            self.progress = self._read_note()
        elif self.path.exists():
            self._partial.unlink()
            raise ConfigError(
                f"{self.path} exists already; choose another --out, or replace it with --overwrite"
            )
        there = self._partial.stat().st_size
        if (
            self.progress.finished and there == self.progress.size
        ):  # ended between the last note and the name
            publish(self._partial, self.path)
        elif self.progress.finished and self.path.exists():  # nothing is left to do
            self._partial.unlink()
        else:
            if (
                there < self.progress.size or self.progress.finished
            ):  # lines are gone, removed by someone: begin again
                self.progress = Progress()
            self._file.truncate(self.progress.size)
            self._write_note(self.progress)

    def _read_note(self) -> Progress:
        try:
            note = read_json(self._note)
            if note["format"] != FORMAT or note["version"] != VERSION:
                raise ValueError(f"it is {note['format']!r} of version {note['version']!r}")
            before = dict(note["made_from"])
            found = Progress(
                int(note["rows"]), int(note["bytes"]), str(note["digest"]), bool(note["finished"])
            )
        except (CheckpointError, KeyError, ValueError, TypeError) as error:
            raise DataError(
                f"{self._note} cannot be read ({error}); begin again with --overwrite"
            ) from error
        changed = [
            f"{name}: {_short(before.get(name))} then, {_short(value)} now"
            for name, value in self._made_from.items()
            if before.get(name) != value
        ]
        if changed:
            raise ConfigError(
                f"{self.path} was begun with something else and cannot go on; choose another "
                "--out, add --overwrite, or undo: " + "; ".join(changed)
            )
        return found

    def _write_note(self, progress: Progress) -> None:
        """Lines reach the disk before the note that counts them does."""
        os.fsync(self._file.fileno())
        facts = {
            "format": FORMAT,
            "version": VERSION,
            "rows": progress.rows,
            "bytes": progress.size,
        }
        note = facts | {
            "digest": progress.digest,
            "finished": progress.finished,
            "made_from": self._made_from,
        }
        write_json(self._note, note, indent=1)
        self._told = time.monotonic()

    def _not_written(self, error: OSError) -> DataError:
        return DataError(
            f"{self.path} cannot be written ({error.strerror or error}); make room or choose "
            "another --out, and the same "
            "command goes on"
        )


def _short(value: object) -> str:
    """A fingerprint by its beginning; nobody compares 64 digits."""
    text = "none" if value is None else str(value)
    return text[:12] + "…" if len(text) == 64 and text.isalnum() else text
