"""Predictions kept in a file: a task, its examples and what was said of them in; JSON lines out,
and back.
 The first line is the task, each other one an example beside its prediction: a report or a person
needs no other file.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from litebert.errors import DataError, LitebertError
from litebert.files import open_atomic
from litebert.tasks.card import TaskCard
from litebert.tasks.examples import (
    Answer,
    AnswerExample,
    ChoiceExample,
    Kind,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    NumberPrediction,
    Prediction,
    Span,
    SpanPrediction,
    TagPrediction,
)
from litebert.tasks.task import Task

CLASSES: dict[Kind, tuple[type[TaskExample], type[Prediction]]] = {
    "classify": (TextExample, LabelPrediction),
    "pair": (TextExample, LabelPrediction),
    "regress": (TextExample, NumberPrediction),
    "choose": (ChoiceExample, ChoicePrediction),
    "answer": (AnswerExample, SpanPrediction),
    "tag": (TagExample, TagPrediction),
}
ODD = "surrogatepass"
"""JSON may hold half a pair of surrogates; it is kept."""
_PARTS = {"answers": Answer, "spans": Span}


def save_predictions(
    path: Path | str, task: Task, examples: Sequence[TaskExample], predictions: Sequence[Prediction]
) -> None:
    """Write a file of predictions, whole or not at all."""
    with open_atomic(path) as file:

        def write(value: object) -> None:
            file.write((json.dumps(value, ensure_ascii=False) + "\n").encode(errors=ODD))

        write({"task": asdict(task)})
        for example, prediction in zip(examples, predictions, strict=True):
            write({"example": asdict(example), "prediction": asdict(prediction)})


def load_predictions(path: Path | str) -> tuple[Task, list[TaskExample], list[Prediction]]:
    """Read a file of predictions; DataError names the line that is not one."""
    path, examples, predictions = Path(path), [], []
    number = 1
    try:
        with path.open(encoding="utf-8", errors=ODD) as file:
            task = TaskCard.from_dict(
                {"task": json.loads(file.readline())["task"], "max_length": 512}
            ).task
            example_class, prediction_class = CLASSES[task.kind]
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
            f"{path}:{number} is no line of a file of predictions: {error!r}; write it anew"
        ) from error
    return task, examples, predictions


def _fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """Lists become tuples, and those of answers and spans what they were."""
    found = {
        name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
    }
    return {
        name: tuple(_PARTS[name](**each) for each in value) if name in _PARTS and value else value
        for name, value in found.items()
    }
