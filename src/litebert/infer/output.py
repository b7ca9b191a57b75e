"""A file that grows line by line and survives being killed: complete windows in, the file out.

While it grows it is OUT.partial, and OUT.progress.json records the rows and bytes that are on disk,
the sha256 of the rows read, and what the predictions depend on. Bytes after the last record are cut
off and written again. At the end the file is renamed to OUT; the record stays, so that the same
command finds its work done.
"""

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from litebert.checks import clip, shorten
from litebert.errors import CheckpointError, ConfigError, DataError
from litebert.files import Lock, check_own, publish, read_json, remove_leftovers, write_json

FORMAT = "litebert-predict"
VERSION = 1
RECORD_SECONDS = 1.0
"""Between two records of progress: the work that a kill can undo."""


class FileProgress(NamedTuple):
    """The state of a file; one value, so that an interruption sees the old one or the new one."""

    rows: int = 0
    """Rows that have their lines."""
    size: int = 0
    """Bytes of these lines."""
    digest: str = ""
    """sha256 of the rows read for them."""
    finished: bool = False


class ResumableFile:
    """The output of one process. A context manager, which records the progress when left early."""

    def __init__(
        self, path: Path | str, identity: Mapping[str, Any], *, overwrite: bool = False
    ) -> None:
        """`identity` is everything that the lines depend on; a file started with another one is
        refused, with the difference."""
        self.path = Path(path)
        self._partial = self.path.with_name(self.path.name + ".partial")
        self._record = self.path.with_name(self.path.name + ".progress.json")
        self._identity = json.loads(json.dumps(identity))  # as it will be read back
        self.progress = FileProgress()
        self._recorded_at = 0.0
        self._lock: Lock | None = None
        if self.path.is_dir():
            raise ConfigError(f"{self.path} is a folder; --out is a file for the predictions")
        try:
            for path in (self._partial, self._record):
                if path.is_symlink():
                    raise ConfigError(
                        f"{path} is a symbolic link, and what it leads to would be overwritten; "
                        "remove it, or choose another --out"
                    )
            if overwrite:
                check_own(self._record, FORMAT, "a record of predictions")
            # unbuffered: nothing waits in memory for a disk that is full
            self._file = open(self._partial, "ab", buffering=0, opener=_open_no_link)  # noqa: SIM115
        except OSError as error:
            raise self._not_written(error) from error
        try:
            self._resume(overwrite)
        except OSError as error:
            self._close()
            raise self._not_written(error) from error
        except BaseException:
            self._close()
            raise

    def append(self, lines: bytes, *, rows: int, digest: str) -> None:
        """Add the next lines; with them `rows` rows are done in all, whose sha256 is `digest`."""
        try:
            rest = memoryview(lines)
            while rest:
                rest = rest[self._file.write(rest) :]
            self.progress = FileProgress(rows, self.progress.size + len(lines), digest)
            if time.monotonic() - self._recorded_at >= RECORD_SECONDS:
                self._write_record(self.progress)
        except OSError as error:
            raise self._not_written(error) from error

    def finish(self) -> None:
        """Rename the complete file to `path`."""
        if self.progress.finished:
            return
        try:
            self._write_record(self.progress._replace(finished=True))
            publish(self._partial, self.path)
        except OSError as error:
            raise self._not_written(error) from error

    def __enter__(self) -> "ResumableFile":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None and not self.progress.finished:
            with contextlib.suppress(OSError):  # the older record is true as well
                self._write_record(self.progress)
        self._close()

    def _close(self) -> None:
        self._file.close()
        if self._lock is not None:
            self._lock.release()

    def _resume(self, overwrite: bool) -> None:
        """Continue from the record, or start where there is none."""
        try:
            self._lock = Lock(self._partial)
        except OSError:
            raise ConfigError(
                f"another process is writing {self.path}; wait for it, or choose another --out"
            ) from None
        remove_leftovers(self.path.parent, self._record.name)
        size, has_record = self._partial.stat().st_size, self._record.exists()
        if size and not has_record:  # ours is empty until there is a record
            raise ConfigError(
                f"{self._partial} exists, and no {self._record.name} says what it is; move it "
                "away, or choose another --out"
            )
        if overwrite:
            pass  # an older file stays until the new one is complete
        elif has_record:
            self.progress = self._read_record()
        elif self.path.exists():
            self._partial.unlink()
            raise ConfigError(
                f"{self.path} exists already; choose another --out, or replace it with --overwrite"
            )
        if self.progress.finished and size == self.progress.size:
            publish(self._partial, self.path)  # killed between the last record and the rename
        elif self.progress.finished and self.path.exists():  # nothing is left to do
            self._partial.unlink()
        else:
            if size < self.progress.size or self.progress.finished:
                self.progress = FileProgress()  # someone removed lines: start over
            self._file.truncate(self.progress.size)
            self._write_record(self.progress)

    def _read_record(self) -> FileProgress:
        try:
            record = read_json(self._record)
            if record["format"] != FORMAT or record["version"] != VERSION:
                raise ValueError(
                    f"it is {shorten(record['format'])} of version {shorten(record['version'])}"
                )
            before = dict(record["made_from"])
            progress = FileProgress(
                rows=int(record["rows"]),
                size=int(record["bytes"]),
                digest=str(record["digest"]),
                finished=bool(record["finished"]),
            )
        except (CheckpointError, KeyError, ValueError, TypeError) as error:
            raise DataError(
                f"{self._record} cannot be read ({error}); start over with --overwrite"
            ) from error
        if not progress.rows:
            return FileProgress()  # nothing is lost by starting anew, with whatever settings
        changed = [
            f"{name}: {_shorten(before.get(name))} then, {_shorten(value)} now"
            for name, value in self._identity.items()
            if before.get(name) != value
        ]
        if changed:
            raise ConfigError(
                f"{self.path} was started with other settings and cannot be resumed; choose "
                "another --out, add --overwrite, or undo: " + "; ".join(changed)
            )
        return progress

    def _write_record(self, progress: FileProgress) -> None:
        """Lines reach the disk before the record that counts them does."""
        os.fsync(self._file.fileno())
        record = {
            "format": FORMAT,
            "version": VERSION,
            "rows": progress.rows,
            "bytes": progress.size,
            "digest": progress.digest,
            "finished": progress.finished,
            "made_from": self._identity,
        }
        write_json(self._record, record, indent=1)
        self._recorded_at = time.monotonic()

    def _not_written(self, error: OSError) -> DataError:
        return DataError(
            f"{self.path} cannot be written ({error.strerror or error}); make room or choose "
            "another --out; the same command resumes"
        )


def _open_no_link(path: str, flags: int) -> int:
    """Open a file, but none that a symbolic link leads to."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _shorten(value: object) -> str:
    """A fingerprint by its first digits; nobody compares 64."""
    text = "none" if value is None else str(value)
    return text[:12] + "…" if len(text) == 64 and text.isalnum() else clip(text)
