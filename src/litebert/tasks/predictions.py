"""What a model predicts for an example, one class for each kind of task; and files of predictions.

Ensembles average predictions, scores compare them with the truth. A file of predictions is JSON
lines: first the task, then each example beside its prediction, so that a report needs no other
file.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from litebert.checks import shorten
from litebert.config import HeadKind
from litebert.errors import CheckpointError, DataError, LitebertError
from litebert.files import check_regular, open_atomic, to_json
from litebert.tasks.examples import (
    Answer,
    AnswerExample,
    ChoiceExample,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.tasks.task import Task, TaskCard


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelPrediction:
    """Of classify and pair."""

    label: str
    """The likeliest."""
    probabilities: dict[str, float]
    """Of every label; they add up to 1."""
    depth: int | None = None
    """Layers after which it was predicted, where rows may leave early."""

    @classmethod
    def of(cls, probabilities: dict[str, float], depth: int | None = None) -> "LabelPrediction":
        """Of equal probabilities the first is the likeliest."""
        label = max(probabilities, key=probabilities.__getitem__)
        return cls(label=label, probabilities=probabilities, depth=depth)


@dataclass(frozen=True, kw_only=True, slots=True)
class MultiLabelPrediction:
    """Of classify and pair where an example may have several labels, or none."""

    probabilities: dict[str, float]
    """Of every label, each between 0 and 1."""
    threshold: float = 0.5
    """Labels with at least this probability are predicted."""
    depth: int | None = None
    """Layers after which it was predicted, where rows may leave early."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The predicted labels, in the task's order."""
        return tuple(label for label, p in self.probabilities.items() if p >= self.threshold)


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberPrediction:
    """Of regress."""

    value: float
    depth: int | None = None
    """Layers after which it was predicted, where rows may leave early."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChoicePrediction:
    """Of choose."""

    index: int
    """The likeliest option, from 0."""
    probabilities: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A candidate for an answer."""

    text: str
    start: int
    """First character in the context."""
    end: int
    """Character after the last."""
    score: float
    """Sum of the log-probabilities of its start and its end; higher is likelier."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanPrediction:
    """Of answer: the best spans, and a score for there being no answer."""

    spans: tuple[Span, ...]
    """The best candidates, the best first; at least one unless the context is empty."""
    null_score: float
    """Higher where an answer is less likely: the joint head's answerability logit, or the plain
    head's null span minus its best span. No answer is given where it exceeds the threshold."""
    null_threshold: float | None = None
    """Chosen on dev, stored with the checkpoint; None where every question has an answer (SQuAD
    1)."""

    @property
    def best(self) -> Span | None:
        """The answer; None for no answer."""
        if self.null_threshold is not None and self.null_score > self.null_threshold:
            return None
        return self.spans[0] if self.spans else None


@dataclass(frozen=True, kw_only=True, slots=True)
class TagPrediction:
    """Of tag: one for each word."""

    tags: tuple[str, ...]
    probabilities: tuple[float, ...]
    """Of each predicted tag."""


Prediction = (
    LabelPrediction
    | MultiLabelPrediction
    | NumberPrediction
    | ChoicePrediction
    | SpanPrediction
    | TagPrediction
)

_CLASSES: dict[HeadKind, tuple[type[TaskExample], type[Prediction]]] = {
    "classify": (TextExample, LabelPrediction),
    "multilabel": (TextExample, MultiLabelPrediction),
    "regress": (TextExample, NumberPrediction),
    "choose": (ChoiceExample, ChoicePrediction),
    "span": (AnswerExample, SpanPrediction),
    "joint_span": (AnswerExample, SpanPrediction),
    "tag": (TagExample, TagPrediction),
}
_NESTED = {"answers": Answer, "spans": Span}


def save_predictions(
    path: Path | str, task: Task, examples: Sequence[TaskExample], predictions: Sequence[Prediction]
) -> None:
    """Write a file of predictions, completely or not at all."""
    with open_atomic(path) as file:

        def write(value: object) -> None:
            file.write(to_json(value, ensure_ascii=False).encode() + b"\n")

        write({"task": asdict(task)})
        for example, prediction in zip(examples, predictions, strict=True):
            values = asdict(prediction)
            if values.get("depth", 0) is None:  # nothing could leave early
                del values["depth"]
            write({"example": asdict(example), "prediction": values})


def check_numbers(predictions: Sequence[Prediction]) -> Sequence[Prediction]:
    """The predictions; CheckpointError where one is NaN, since finite weights too may be so large
    that what is computed from them is no number."""
    for prediction in predictions:
        match prediction:
            case NumberPrediction(value=value) | SpanPrediction(null_score=value):
                is_nan = math.isnan(value)
            case LabelPrediction(probabilities=shares) | MultiLabelPrediction(probabilities=shares):
                is_nan = any(map(math.isnan, shares.values()))
            case ChoicePrediction(probabilities=each) | TagPrediction(probabilities=each):
                is_nan = any(map(math.isnan, each))
        if is_nan:
            raise no_number()
    return predictions


def no_number() -> CheckpointError:
    return CheckpointError(
        "what the model computes is not a number: its weights are too large, as those of a run "
        "that diverged; take an earlier checkpoint"
    )


def load_predictions(path: Path | str) -> tuple[Task, list[TaskExample], list[Prediction]]:
    """Read a file of predictions; a DataError names the line that is damaged."""
    path, examples, predictions = Path(path), [], []
    number = 1
    try:
        check_regular(path)
        # lone surrogates are in files of the first release
        with path.open(encoding="utf-8", errors="surrogatepass") as file:
            header = json.loads(file.readline())
            task = TaskCard.from_dict({"task": header["task"], "max_length": 512}).task
            example_class, prediction_class = _CLASSES[task.head]
            for line in file:
                number += 1
                both = json.loads(line)
                examples.append(example_class(**_fields(both["example"])))
                predictions.append(prediction_class(**_fields(both["prediction"])))
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}; expected a file of predictions, as "
            "fine-tuning writes"
        ) from error
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        LitebertError,
    ) as error:
        raise DataError(
            f"{path}:{number} is no line of a file of predictions: {shorten(error)}; write it anew"
        ) from error
    return task, examples, predictions


def _fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """Lists become tuples, and objects in them answers and spans."""
    values = dict(data)
    for name, value in data.items():
        if name in _NESTED and value:
            values[name] = tuple(_NESTED[name](**each) for each in value)
        elif isinstance(value, list):
            values[name] = tuple(value)
    return values
