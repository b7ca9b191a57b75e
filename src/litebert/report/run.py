"""A run folder in; its columns of numbers, evaluations, events, filled masks and dev results out.

A run that is still being written is read as far as it goes. Steps that were repeated after a return
to a snapshot appear once, as they were done last.
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

from litebert.checks import shorten
from litebert.errors import DataError
from litebert.files import read_bytes
from litebert.tasks.predictions import Prediction, load_predictions
from litebert.tasks.scores.evaluation import Evaluation as TaskEvaluation
from litebert.tasks.scores.evaluation import evaluate
from litebert.train.folder import RunFolder
from litebert.train.log import Record, read_records

AXES = ("steps", "tokens", "seconds")
"""What a curve can be drawn over."""
RENAMED = {"rate": "learning_rate", "norm": "gradient_norm"}
"""Columns that earlier versions wrote under other names."""
PREDICTIONS, RESULT = "dev_predictions.jsonl", "result.json"
EXITS = "exits.json"
_NUM_WORST = 12


@dataclass(frozen=True, kw_only=True)
class DevResults:
    """A finished fine-tuning run's predictions for dev, scored."""

    evaluation: TaskEvaluation
    predictions: dict[int, Prediction] = field(default_factory=dict)
    """Of the worst examples, by their number."""
    result: dict[str, Any] = field(default_factory=dict)
    """result.json: what the run itself recorded."""
    exits: dict[str, Any] = field(default_factory=dict)
    """exits.json, of litebert evaluate --curve; empty where there is none."""


def _read_dev(folder: Path) -> DevResults | None:
    """The scores of a run's dev predictions; None where it has not finished."""
    if not (folder / PREDICTIONS).is_file():
        return None
    task, examples, predictions = load_predictions(folder / PREDICTIONS)
    if not examples:
        raise DataError(f"{folder / PREDICTIONS} has no examples; the file was cut or damaged")
    try:
        evaluation = evaluate(task, examples, predictions, count=_NUM_WORST)
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError) as error:
        raise DataError(
            f"{folder / PREDICTIONS} cannot be scored: {shorten(error)}; the file was changed by "
            "hand or damaged"
        ) from error
    result, exits = _json(folder / RESULT), _json(folder / EXITS)
    return DevResults(
        evaluation=evaluation,
        predictions={each.number: predictions[each.number] for each in evaluation.worst},
        result=result if isinstance(result, dict) else {},
        exits=exits if isinstance(exits, dict) else {},
    )


@dataclass(frozen=True, kw_only=True)
class EvalPoint:
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
class RunData:
    """What a run folder holds."""

    name: str
    folder: Path
    recipe: Any = None
    environment: Any = None
    status: dict[str, Any] = field(default_factory=dict)
    steps_done: "array[int]" = field(default_factory=lambda: array("q"))
    """Steps done after each record: a record's own step, counted from 0, and 1."""
    columns: "dict[str, array[float]]" = field(default_factory=dict)
    """Numbers by name, one for each record; NaN where it has none or no finite one."""
    evaluations: list[EvalPoint] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    examples: list[Record] = field(default_factory=list)
    dev: DevResults | None = None
    """Of a finished fine-tuning run."""
    num_repeated: int = 0
    """Steps that were repeated after a return to a snapshot."""
    idle_seconds: float | None = None
    """Since metrics.jsonl grew, when the folder was read."""

    @property
    def state(self) -> str:
        """The state in status.json (finished, running, interrupted, diverged …), or silent where it
        is running but nothing was written for long."""
        state = str(self.status.get("state", "unknown"))
        is_silent = (self.idle_seconds or 0.0) > 900 + 20 * self.step_seconds
        return "silent" if state == "running" and is_silent else state

    @property
    def steps(self) -> int:
        return self.steps_done[-1] if self.steps_done else 0

    @property
    def step_seconds(self) -> float:
        return self.total("seconds") / self.steps if self.steps else 0.0

    def total(self, name: str) -> float:
        """The last value of tokens or seconds, which count from the run's start; 0 without any."""
        column = reversed(self.columns.get(name, array("d")))
        return next((value for value in column if math.isfinite(value)), 0.0)

    @cached_property
    def axes(self) -> dict[str, list[float]]:
        """Steps, tokens and seconds of each record; computed once, after the last record."""
        axes: dict[str, list[float]] = {"steps": [float(step) for step in self.steps_done]}
        for name in AXES[1:]:
            if self.total(name) > 0:
                axes[name] = _running_maximum(self.columns[name])
        return axes

    def positions(self, steps: list[int]) -> dict[str, list[float]]:
        """Where each count of finished steps lies on each axis."""
        records = [bisect_right(self.steps_done, step) - 1 for step in steps]
        others = {
            name: [values[i] if i >= 0 else 0.0 for i in records]
            for name, values in self.axes.items()
            if name != "steps"
        }
        return {"steps": [float(step) for step in steps], **others}

    def add(self, record: Record) -> None:
        """Add one record of metrics.jsonl."""
        kind, step = record["kind"], record["step"]
        if kind == "step":
            self._add_step(step, record)
        elif kind == "evaluation":
            values = {name: value for name, value in _numbers(record).items() if name != "step"}
            others = [value for name, value in values.items() if name not in ("score", *AXES)]
            if values.get("score") in others:
                del values["score"]  # the same number is there under its own name
            self.evaluations.append(EvalPoint(step=step, values=values))
        elif kind == "event":
            name, message = str(record.get("event", "event")), str(record.get("message", ""))
            self.events.append(Event(step=step, kind=name, message=message))
        elif kind == "examples" and isinstance(record.get("examples"), list):
            self.examples.append(record)

    def _add_step(self, step: int, record: Record) -> None:
        length = bisect_left(self.steps_done, step + 1)
        if length < len(self.steps_done):
            self.num_repeated += len(self.steps_done) - length
            del self.steps_done[length:]
            for column in self.columns.values():
                del column[length:]
            self.evaluations = [each for each in self.evaluations if each.step <= step]
            self.examples = [each for each in self.examples if each["step"] <= step]
        self.steps_done.append(step + 1)
        numbers = _numbers(record)
        for name in numbers.keys() - self.columns.keys() - {"step"}:
            self.columns[name] = array("d", [math.nan]) * length
        for name, column in self.columns.items():
            column.append(numbers.get(name, math.nan))


def read_run(folder: Path | str) -> RunData:
    """Read a run folder; DataError where it is none, or where a file in it is damaged."""
    paths = RunFolder(folder)
    if not any(path.is_file() for path in (paths.recipe, paths.metrics, paths.status)):
        raise DataError(
            f"{paths.path} is not the folder of a run; expected recipe.json and metrics.jsonl in it"
        )
    status = _json(paths.status)
    run = RunData(
        name=paths.path.resolve().name or str(paths.path),
        folder=paths.path,
        recipe=_json(paths.recipe),
        environment=_json(paths.environment),
        status=status if isinstance(status, dict) else {},
        dev=_read_dev(paths.path),
    )
    if paths.metrics.is_file():
        run.idle_seconds = max(0.0, time.time() - paths.metrics.stat().st_mtime)
        for record in read_records(paths.metrics):
            run.add(record)
    return run


def _json(path: Path) -> Any:
    """A small file's content; None where it is not there (yet)."""
    try:
        return json.loads(read_bytes(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path} is not JSON: {error}; the file was changed by hand or damaged"
        ) from error


_MAX_NUMBER = 1e100
"""Larger ones are damage, and sums of them would be infinite."""


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """Numbers under today's names; NaN for one that is not finite, a string in JSON."""
    numbers = {}
    for key, value in record.items():
        name = RENAMED.get(key, key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                numbers[name] = float(value) if abs(value) < _MAX_NUMBER else math.nan
            except OverflowError:
                numbers[name] = math.nan
        elif value in ("nan", "inf", "-inf"):
            numbers[name] = math.nan
    return numbers


def _running_maximum(column: "array[float]") -> list[float]:
    """A column that counts up, without its gaps and falls."""
    maxima, highest = [], 0.0
    for value in column:
        highest = value if value > highest else highest
        maxima.append(highest)
    return maxima
