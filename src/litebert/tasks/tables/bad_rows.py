"""What becomes of a row that cannot be used: an error, a count, or a copy in quarantine; never
silence.
 In: the place of a row, what is wrong with it, and the row. Out: a DataError, or notes for the user
at the end.
"""

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple

from litebert.data.documents import BadRow
from litebert.data.quarantine import Quarantine
from litebert.errors import DataError
from litebert.tasks.tables.columns import BadRowPolicy, TableOptions

MEND = "mend it, or go on without it by --bad-rows skip or quarantine"


class Place(NamedTuple):
    """Where a row stands. As text: train.tsv:17."""

    path: str
    number: int
    """From 1."""
    unit: Literal["line", "row", "question"] = "line"

    def __str__(self) -> str:
        return f"{os.path.basename(self.path)}:{self.number}"

    def in_full(self) -> str:
        return f"{self.path}, {self.unit} {self.number}"


class BadRowError(DataError):
    """A row that cannot be used; whoever knows its place decides what becomes of it."""


class BadRows:
    """Bad rows of one reading. As a context, it publishes the quarantine at the end, or leaves
    nothing behind on an error."""

    def __init__(
        self,
        policy: BadRowPolicy = "error",
        quarantine: str | os.PathLike[str] = "quarantine.jsonl",
    ) -> None:
        self.policy, self.count, self.first = policy, 0, ""
        self._final = Path(quarantine)
        self._kept = Quarantine(self._final.with_name(self._final.name + ".part"))

    @classmethod
    def of(cls, options: TableOptions) -> "BadRows":
        return cls(options.bad_rows, options.quarantine)

    def add(self, place: Place, reason: str, row: object = "") -> None:
        """Stop at the row, or remember it, as the policy says."""
        if self.policy == "error":
            raise DataError(f"{place.in_full()}: {reason}; {MEND}")
        self.count += 1
        self.first = self.first or f"{place.in_full()}: {reason}"
        if self.policy == "quarantine":
            data = row if isinstance(row, bytes) else _as_text(row).encode(errors="surrogatepass")
            try:
                self._final.parent.mkdir(parents=True, exist_ok=True)
                self._kept.add(
                    [BadRow(path=place.path, line=place.number, reason=reason, data=data)]
                )
            except OSError as error:
                raise DataError(
                    f"{self._final}: bad rows cannot be kept there ({error.strerror}); name "
                    "another file"
                ) from error

    @property
    def notes(self) -> tuple[str, ...]:
        if not self.count:
            return ()
        kept = f", kept in {self._final}" if self.policy == "quarantine" else ""
        return (
            f"{self.count:,} bad row{'s were' if self.count > 1 else ' was'} left out{kept}; the "
            f"first: {self.first}",
        )

    def __enter__(self) -> "BadRows":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._kept.finish(self._final)
        else:
            self._kept.abandon()


def _as_text(row: object) -> str:
    return row if isinstance(row, str) else json.dumps(row, ensure_ascii=False, default=str)
