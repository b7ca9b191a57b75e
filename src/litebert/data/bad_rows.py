"""Rows that cannot be used: a location, a reason and the row in; a DataError, a count, or a line of
the quarantine file out.

The policy is the user's (--bad-rows): stop at the first, skip them, or skip them and write a copy
of each to a file of JSON lines. Nothing is lost without a count. Corpora and tables share this.
"""

import base64
import json
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, NamedTuple

from litebert.errors import ConfigError, DataError
from litebert.files import (
    check_local,
    check_regular,
    locked,
    publish,
    remove_leftovers,
    temporary_path,
    to_json,
)

_FEW = 10  # bad rows that are no sign of a wrong encoding or separator
BadRowPolicy = Literal["error", "skip", "quarantine"]


class Location(NamedTuple):
    """Where a row is. As text: train.tsv:17."""

    path: str
    number: int
    """From 1."""
    unit: Literal["line", "row", "question"] = "line"

    def __str__(self) -> str:
        return f"{os.path.basename(self.path)}:{self.number}"

    def in_full(self) -> str:
        return f"{self.path}, {self.unit} {self.number}"


class BadRowError(DataError):
    """A row that cannot be used; raised where its location is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A line or row of a corpus that holds no usable text, or where a file breaks off."""

    path: str
    line: int
    reason: str
    data: bytes = b""
    """The row; empty for a file that breaks off and for a row that is too long to be held."""

    @property
    def location(self) -> Location:
        return Location(self.path, self.line)

    def __str__(self) -> str:
        return f"{self.location.in_full()}: {self.reason}"


class BadRows:
    """The bad rows of one reading; as a context it closes the quarantine file at its end."""

    def __init__(
        self,
        policy: BadRowPolicy = "error",
        quarantine: str | os.PathLike[str] | None = None,
        *,
        alternatives: str = "skip or quarantine",
    ) -> None:
        """`quarantine`: that policy's file; `alternatives`: policies that the user may choose."""
        if policy == "quarantine" and quarantine is None:
            raise ConfigError(
                "bad rows are to be copied, and no file for them is named; add --quarantine FILE"
            )
        self.policy, self.count, self.first = policy, 0, ""
        self._broken_off = ""
        self._num_checked, self._first_unchecked = 0, ""
        self.reading_notes: list[str] = []
        """What a user should know about how files were read."""
        self._alternatives = alternatives
        self._path = Path(quarantine or "quarantine.jsonl")
        self._temporary = temporary_path(self._path)
        self._lock = ExitStack()
        self._file: IO[str] | None = None

    def add(
        self, location: Location, reason: str, row: object = "", *, breaks_off: bool = False
    ) -> None:
        """Raise DataError, count the row, or count and copy it, as the policy says. What follows a
        row where the file `breaks_off` is lost, too."""
        message = f"{location.in_full()}: {reason}"
        if self.policy == "error":
            raise DataError(
                f"{message}; fix it, or leave it out with --bad-rows {self._alternatives}"
            )
        self.count += 1
        self.first = self.first or message
        self._first_unchecked = self._first_unchecked or message
        self._broken_off = self._broken_off or (message if breaks_off else "")
        if self.policy == "quarantine":
            try:
                self._write(location, reason, row)
            except OSError as error:
                raise self._unwritable(error) from error

    def check_share(self, num_good: int, max_share: float) -> None:
        """DataError where more than `max_share` of the rows since the last check, and at least ten,
        were left out, or an unknown number because a file breaks off."""
        if self._broken_off and max_share < 1:
            raise DataError(
                f"{self._broken_off}; all that follows would be left out: repair the file, or "
                "allow it with --max-bad-rows 1"
            )
        check_share(
            self.count - self._num_checked, num_good, max_share, first=self._first_unchecked
        )
        self._num_checked, self._first_unchecked = self.count, ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What to tell the user at the end."""
        if not self.count:
            return tuple(self.reading_notes)
        where = f", kept in {self._path}" if self.policy == "quarantine" else ""
        return (
            *self.reading_notes,
            f"{self.count:,} bad row{'s were' if self.count > 1 else ' was'} left out{where}; the "
            f"first: {self.first}",
        )

    def close(self, *, failed: bool = False) -> None:
        """Publish the quarantine file, if there is one; remove it where the reading `failed`."""
        if self._file is not None:
            file, self._file = self._file, None
            try:
                with self._lock, file:
                    if not failed:
                        file.close()  # may find the disk full
                        publish(self._temporary, self._path)
            except OSError as error:
                if not failed:
                    raise self._unwritable(error) from error
            finally:
                self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> "BadRows":
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close(failed=error is not None)

    def _unwritable(self, error: OSError) -> DataError:
        return DataError(
            f"{self._path}: bad rows cannot be written there ({error.strerror}); make room, or "
            "name another file"
        )

    def _write(self, location: Location, reason: str, row: object) -> None:
        if self._file is None:
            check_local(self._path)
            if self._path.exists() and not _is_quarantine(self._path):
                raise DataError(
                    f"{self._path} exists and is not a quarantine file of litebert; name another "
                    "with --quarantine FILE"
                )
            self._path.parent.mkdir(parents=True, exist_ok=True)
            remove_leftovers(self._path.parent, self._path.name)
            self._file = self._temporary.open("w", encoding="utf-8")
            self._lock.enter_context(locked(self._temporary))
        if not isinstance(row, bytes | str):
            row = to_json(row, ensure_ascii=False, default=str)
        data = row if isinstance(row, bytes) else row.encode(errors="surrogatepass")
        record: dict[str, str | int] = {"file": location.path, "line": location.number}
        record["reason"] = reason
        try:
            record["row"] = data.decode()
        except UnicodeDecodeError:
            record["row_base64"] = base64.b64encode(data).decode()
        self._file.write(to_json(record, ensure_ascii=False) + "\n")


def check_share(
    num_bad: int,
    num_good: int,
    max_share: float,
    *,
    first: str,
    unit: str = "rows",
    mend: str = "repair the file",
) -> None:
    """DataError where bad rows, if they are ten or more, are more than `max_share` of all."""
    total = num_bad + num_good
    if num_bad >= _FEW and num_bad > max_share * total:
        raise DataError(
            f"{num_bad:,} of {total:,} {unit} would be left out, more than {max_share:.0%}; the "
            f"first: {first}; {mend}, or allow it with --max-bad-rows 1"
        )


def _is_quarantine(path: Path) -> bool:
    """Whether an earlier reading wrote this file, which may then be replaced."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            record = json.loads(file.readline(2**26))
        return isinstance(record, dict) and {"file", "line", "reason"} <= record.keys()
    except (OSError, ValueError, RecursionError):
        return False
