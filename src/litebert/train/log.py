"""metrics.jsonl, the only truth of a run: records in, lines out; progress, report and TensorBoard all read from it.

A record is one JSON object with a `kind` (step, evaluation, event) and the `step` it belongs to. A snapshot remembers how
long the file was; resuming cuts it there, so that what was redone does not stand twice.
"""

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from litebert.errors import DataError

Record = dict[str, Any]
Sink = Callable[[Record], None]


class Log:
    """Appends records to a file and hands each to the sinks; without a path it only hands on."""

    def __init__(self, path: Path | None, sinks: tuple[Sink, ...] = ()) -> None:
        self.sinks = sinks
        self._file = path.open("ab") if path else None

    @property
    def offset(self) -> int:
        """Length of the file in bytes, every record so far on the disk."""
        if self._file is None:
            return 0
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def rewind(self, offset: int) -> None:
        """Forget what was written after `offset`."""
        if self._file is not None:
            self._file.flush()
            self._file.truncate(min(offset, self._file.tell()))
            self._file.seek(0, os.SEEK_END)

    def write(self, kind: str, step: int, **values: Any) -> None:
        """One record. JSON has no NaN: a number that is not finite is written as its name."""
        record = _record(kind, step, values)
        if self._file is not None:
            self._file.write(json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        for sink in self.sinks:
            sink(record)

    def announce(self, kind: str, step: int, **values: Any) -> None:
        """A record for the sinks alone: what is true of this sitting, not of the run."""
        for sink in self.sinks:
            sink(_record(kind, step, values))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def read_records(path: Path) -> Iterator[Record]:
    """The records of a metrics file; a last line that a killed process left unfinished is left out."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return
                yield _parse(path, number, line)
    except FileNotFoundError:
        raise DataError(f"{path.parent} has no {path.name}; expected the folder of a run") from None


def _parse(path: Path, number: int, line: bytes) -> Record:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise DataError(f"{path}, line {number} is not JSON: {error}; the file was changed by hand or damaged") from error
    if not isinstance(record, dict) or "kind" not in record or not isinstance(record.get("step"), int):
        raise DataError(f"{path}, line {number} has no kind and step; the file was not written by litebert")
    return record


def _record(kind: str, step: int, values: dict[str, Any]) -> Record:
    return {"kind": kind, "step": step, **{name: _plain(value) for name, value in values.items()}}


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
