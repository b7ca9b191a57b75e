"""A file of predictions that grows line by line and survives being killed. Finished stretches in; the file, whole, out.

While it grows it is OUTPUT.partial, and OUTPUT.progress.json says how far it is: what was read, how many bytes are sure, and
what it is made from. What was written after the last such note is cut off and made again. At the end the file gets its name;
the note stays, so that the same command finds its work done.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from litebert.checkpoint import read_json
from litebert.data.durable import publish, publish_json
from litebert.errors import CheckpointError, ConfigError, DataError

FORMAT = "litebert-predict"
VERSION = 1
NOTE_SECONDS = 1.0
"""Between two notes: what a killed process has to do again."""


class Output:
    """The file to be written, held by one process. As a context, it keeps what is sure when it is left early."""

    def __init__(self, path: Path | str, made_from: Mapping[str, Any], *, overwrite: bool = False) -> None:
        """`made_from` is everything that lines follow from; another run's file is refused, with the difference."""
        self.path = Path(path)
        self._partial = self.path.with_name(self.path.name + ".partial")
        self._note = self.path.with_name(self.path.name + ".progress.json")
        self._made_from = json.loads(json.dumps(made_from))  # as it will be read back
        self.rows, self.size, self.digest, self.finished = 0, 0, "", False
        """Rows that have their lines; their bytes; a sum over what was read for them; whether that is all."""
        self._told = 0.0
        self._file: IO[bytes] | None = None
        try:
            if self.path.is_dir():
                raise ConfigError(f"{self.path} is a folder; --out is a file for the predictions")
            self._file = self._held()
            if overwrite:
                self._note.unlink(missing_ok=True)
                self.path.unlink(missing_ok=True)
            self._take_up()
        except OSError as error:
            self.close()
            raise self._not_written(error) from error
        except BaseException:
            self.close()
            raise

    def append(self, lines: bytes, *, rows: int, digest: str) -> None:
        """Add the lines of the next stretch: after it `rows` are done in all, and what was read has the sum `digest`."""
        assert self._file is not None
        try:
            self._file.write(lines)
            self._file.flush()
            self.rows, self.size, self.digest = rows, self.size + len(lines), digest
            if time.monotonic() - self._told >= NOTE_SECONDS:
                self._write_note()
        except OSError as error:
            raise self._not_written(error) from error

    def finish(self) -> None:
        """Give the file its name."""
        if self.finished:
            return
        try:
            self.finished = True
            self._write_note()
            publish(self._partial, self.path)
        except OSError as error:
            raise self._not_written(error) from error

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> "Output":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None and not self.finished and self._file is not None:
            with contextlib.suppress(OSError):  # the older note is true as well
                self._write_note()
        self.close()

    def _held(self) -> IO[bytes]:
        file = self._partial.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise ConfigError(f"another process is writing {self.path}; wait for it, or choose another --out") from None
        return file

    def _take_up(self) -> None:
        """Go on where a note says; begin where there is none."""
        assert self._file is not None
        if self._note.exists():
            self._read_note()
        elif self.path.exists():
            self._partial.unlink()
            raise ConfigError(f"{self.path} exists already; choose another --out, or replace it with --overwrite")
        if self.finished and self.path.exists():  # the new partial file is empty: nothing is left to do
            self._partial.unlink()
            return
        there = self._partial.stat().st_size
        if self.finished and there == self.size:  # ended between the last note and the name
            publish(self._partial, self.path)
            return
        if there < self.size or self.finished:  # lines are gone, removed by someone: begin again
            self.rows, self.size, self.digest, self.finished = 0, 0, "", False
        self._file.truncate(self.size)
        self._write_note()

    def _read_note(self) -> None:
        try:
            note = read_json(self._note)
            if note["format"] != FORMAT or note["version"] != VERSION:
                raise ValueError(f"it is {note['format']!r} of version {note['version']!r}")
            before = dict(note["made_from"])
            self.rows, self.size = int(note["rows"]), int(note["bytes"])
            self.digest, self.finished = str(note["digest"]), bool(note["finished"])
        except (CheckpointError, KeyError, ValueError, TypeError) as error:
            raise DataError(f"{self._note} cannot be read ({error}); begin again with --overwrite") from error
        changed = [
            f"{name}: {_short(before.get(name))} then, {_short(value)} now"
            for name, value in self._made_from.items()
            if before.get(name) != value
        ]
        if changed:
            raise ConfigError(
                f"{self.path} was begun with something else and cannot go on; choose another --out, add --overwrite, or undo: "
                + "; ".join(changed)
            )

    def _write_note(self) -> None:
        """Lines reach the disk before the note that counts them does."""
        assert self._file is not None
        self._file.flush()
        facts = {"format": FORMAT, "version": VERSION, "rows": self.rows, "bytes": self.size, "digest": self.digest}
        note = facts | {"finished": self.finished, "made_from": self._made_from}
        os.fsync(self._file.fileno())
        publish_json(note, self._note.with_name(f".{self._note.name}"), self._note)
        self._told = time.monotonic()

    def _not_written(self, error: OSError) -> DataError:
        return DataError(
            f"{self.path} cannot be written ({error.strerror or error}); make room or choose another --out, and the same "
            "command goes on"
        )


def _short(value: object) -> str:
    """A fingerprint by its beginning; nobody compares 64 digits."""
    text = "none" if value is None else str(value)
    return text[:12] + "…" if len(text) == 64 and text.isalnum() else text
