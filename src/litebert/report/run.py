"""A run folder as the report reads it: recipe, environment, metrics and status in; columns of
numbers out.
 A run that is still being written is read as far as it goes. Steps that were done again after a
return to a snapshot stand in the report once, as they were done last.
"""

import json
import math
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from litebert.errors import DataError
from litebert.report.dev import Dev, read_dev
from litebert.train.folder import RunFolder
from litebert.train.log import Record, read_records

AXES = ("steps", "tokens", "seconds")
"""What a curve can be drawn over."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Numbers on held-out text."""

    step: int
    """Steps done before it."""
    values: dict[str, float]
    """Whatever was measured, finite or not."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened to a run."""

    step: int
    """Steps done before it."""
    kind: str
    message: str


@dataclass(kw_only=True)
class Run:
    """A run as it stands on the disk."""

    name: str
    folder: Path
    recipe: Any = None
    environment: Any = None
    status: dict[str, Any] = field(default_factory=dict)
    done: "array[int]" = field(default_factory=lambda: array("q"))
    """Steps done after each record: a record's own step, counted from 0, and 1."""
    columns: "dict[str, array[float]]" = field(default_factory=dict)
    """Numbers by name, one for each record; NaN where a record has none, or one that is not
    finite."""
    evaluations: list[Evaluation] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    examples: list[Record] = field(default_factory=list)
    dev: Dev | None = None
    """Of a fine-tuning run that came to its end: its predictions for dev, measured."""
    redone: int = 0
    """Records that a return to a snapshot made void."""
    silent_seconds: float | None = None
    """Time since metrics.jsonl grew, when the folder was read."""

    @property
    def state(self) -> str:
        """finished, running, interrupted, diverged, whatever else the status says, or silent:
        running, but long quiet."""
        state = str(self.status.get("state", "unknown"))
        if (
            state == "running"
            and self.silent_seconds is not None
            and self.silent_seconds > 900 + 20 * self.step_seconds
        ):
            return "silent"
        return state

    @property
    def steps(self) -> int:
        return self.done[-1] if self.done else 0

    @property
    def step_seconds(self) -> float:
        return self.total("seconds") / self.steps if self.steps else 0.0

    def total(self, name: str) -> float:
        """The last tokens or seconds, which count from the run's beginning; 0 where there is
        none."""
        return next(
            (
                value
                for value in reversed(self.columns.get(name, array("d")))
                if math.isfinite(value)
            ),
            0.0,
        )

    @cached_property
    def axes(self) -> dict[str, list[float]]:
        """Steps, tokens and seconds of each record; only those that the run has. To be asked for
        after the last record."""
        found: dict[str, list[float]] = {"steps": [float(step) for step in self.done]}
        for name in AXES[1:]:
            if self.total(name) > 0:
                found[name] = _rising(self.columns[name])
        return found

    def places(self, steps: list[int]) -> dict[str, list[float]]:
        """Where each count of steps done lies on each axis."""
        axes, at = self.axes, [bisect_right(self.done, step) - 1 for step in steps]
        found = {
            name: [values[i] if i >= 0 else 0.0 for i in at]
            for name, values in axes.items()
            if name != "steps"
        }
        return {"steps": [float(step) for step in steps], **found}

    def add(self, record: Record) -> None:
        """Take in one record."""
        kind, step = record["kind"], record["step"]
        if kind == "step":
            self._add_step(step, record)
        elif kind == "evaluation":
            values = {name: value for name, value in _numbers(record).items() if name != "step"}
            if values.get("score") in [
                value for name, value in values.items() if name not in ("score", *AXES)
            ]:
                del values["score"]  # which stands there under its own name
            self.evaluations.append(Evaluation(step=step, values=values))
        elif kind == "event":
            event = Event(
                step=step,
                kind=str(record.get("event", "event")),
                message=str(record.get("message", "")),
            )
            self.events.append(event)
        elif kind == "examples" and isinstance(record.get("examples"), list):
            self.examples.append(record)

    def _add_step(self, step: int, record: Record) -> None:
        length = bisect_left(self.done, step + 1)
        if length < len(self.done):
            self.redone += len(self.done) - length
            del self.done[length:]
            for column in self.columns.values():
                del column[length:]
            self.evaluations = [each for each in self.evaluations if each.step <= step]
            self.examples = [each for each in self.examples if each["step"] <= step]
        self.done.append(step + 1)
        numbers = _numbers(record)
        for name in numbers.keys() - self.columns.keys() - {"step"}:
            self.columns[name] = array("d", [math.nan]) * length
        for name, column in self.columns.items():
            column.append(numbers.get(name, math.nan))


def read_run(folder: Path | str) -> Run:
    """Read a run's folder; DataError where it is none, or where a file in it is damaged."""
    places = RunFolder(folder)
    known = (places.recipe, places.metrics, places.status)
    if not any(path.is_file() for path in known):
        raise DataError(
            f"{places.path} is not the folder of a run; expected recipe.json and metrics.jsonl in "
            "it"
        )
    status = _json(places.status)
    run = Run(
        name=places.path.resolve().name or str(places.path),
        folder=places.path,
        recipe=_json(places.recipe),
        environment=_json(places.environment),
        status=status if isinstance(status, dict) else {},
        dev=read_dev(places.path),
    )
    if places.metrics.is_file():
        run.silent_seconds = max(0.0, time.time() - places.metrics.stat().st_mtime)
        for record in read_records(places.metrics):
            run.add(record)
    return run


def _json(path: Path) -> Any:
    """A small file's content; None where it is not there (yet)."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path} is not JSON: {error}; the file was changed by hand or damaged"
        ) from error


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record; one that is not finite was written as its name, and is NaN here."""
    found = {}
    for name, value in record.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                found[name] = float(value) if math.isfinite(value) else math.nan
            except OverflowError:
                found[name] = math.nan
        elif value in ("nan", "inf", "-inf"):
            found[name] = math.nan
    return found


def _rising(column: "array[float]") -> list[float]:
    """A column that counts up, its gaps and falls filled with the highest value so far."""
    filled, highest = [], 0.0
    for value in column:
        highest = value if value > highest else highest
        filled.append(highest)
    return filled
