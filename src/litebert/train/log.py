"""metrics.jsonl, the only truth of a run: records in, lines out; progress, report and TensorBoard
all read from it.

A record is one JSON object with a `kind` (step, evaluation, examples, event) and the `step` it
belongs to. A snapshot remembers how long the file was; resuming cuts it there, so that what was
redone does not stand twice.
"""

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from litebert.errors import DataError
from litebert.files import DISK_FULL, check_regular, parse_json, to_json

Record = dict[str, Any]
Sink = Callable[[Record], None]


class Log:
    """Appends records to a file and hands each to the sinks; without a path it only hands on.

    A full disk does not end a run: records wait in memory until there is room.
    """

    def __init__(self, path: Path | None, sinks: tuple[Sink, ...] = ()) -> None:
        self.sinks = sinks
        self._file = path.open("ab", buffering=0) if path else None
        self._waiting = b""
        self._is_full = False

    @property
    def offset(self) -> int:
        """Length of the file in bytes, every record so far on the disk; OSError where a full one
        does not take them."""
        if self._file is None:
            return 0
        self._drain()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def rewind(self, offset: int) -> None:
        """Forget what was written after `offset`."""
        if self._file is not None:
            self._waiting = b""
            self._file.truncate(min(offset, self._file.tell()))
            self._file.seek(0, os.SEEK_END)

    def write(self, kind: str, step: int, **values: Any) -> None:
        """One record. JSON has no NaN: a number that is not finite is written as its name."""
        record = _record(kind, step, values)
        if self._file is not None:
            self._waiting += to_json(record, ensure_ascii=False).encode() + b"\n"
            self._try()
        for sink in self.sinks:
            sink(record)

    def announce(self, step: int, event: str, message: str) -> None:
        """An event for the sinks alone: what is true of this sitting, not of the run."""
        for sink in self.sinks:
            sink(_record("event", step, {"event": event, "message": message}))

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._drain()
            self._file.close()
            self._file = None

    def _try(self) -> None:
        try:
            self._drain()
            self._is_full = False
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            if not self._is_full:  # said once, not at every step
                self._is_full = True
                print(
                    f"the disk is full, so metrics wait in memory: {error}; free some space",
                    file=sys.stderr,
                )

    def _drain(self) -> None:
        assert self._file is not None
        while self._waiting:
            written = self._file.write(self._waiting)
            self._waiting = self._waiting[written:]


MAX_STEP = 10**12
"""More than any run has; a larger number is damage."""


def read_records(path: Path) -> Iterator[Record]:
    """The records of a metrics file; a last line that a killed process left unfinished is left
    out."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return
                yield _parse(path, number, line)
    except FileNotFoundError:
        raise DataError(f"{path.parent} has no {path.name}; expected the folder of a run") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _parse(path: Path, number: int, line: bytes) -> Record:
    try:
        record = parse_json(line)
    except ValueError as error:
        raise DataError(
            f"{path}, line {number} is not JSON: {error}; the file was changed by hand or damaged"
        ) from error
    is_record = (
        isinstance(record, dict)
        and "kind" in record
        and type(record.get("step")) is int
        and 0 <= record["step"] < MAX_STEP
    )
    if not isinstance(record, dict) or not is_record:
        raise DataError(
            f"{path}, line {number} has no kind, or no step from 0 to {MAX_STEP:,}; the file was "
            "not written by litebert, or damaged"
        )
    return record


def _record(kind: str, step: int, values: dict[str, Any]) -> Record:
    return {"kind": kind, "step": step, **{name: _plain(value) for name, value in values.items()}}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
