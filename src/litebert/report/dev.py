"""What a fine-tuning run says of dev, as the report reads it: dev_predictions.jsonl and result.json
in; an evaluation out."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litebert.errors import DataError
from litebert.tasks.examples import TaskExample, TextExample
from litebert.tasks.predictions import LabelPrediction, Prediction
from litebert.tasks.scores.evaluation import Evaluation, evaluate
from litebert.tasks.scores.kept import load_predictions

PREDICTIONS, RESULT = "dev_predictions.jsonl", "result.json"
MOST_LABELS = 12
"""Labels up to which it is counted which was taken for which."""
WORST = 12


@dataclass(frozen=True, kw_only=True)
class Dev:
    """A finished run's predictions, measured."""

    evaluation: Evaluation
    taken: "Counter[tuple[str, str]]" = field(default_factory=Counter)
    """How often one label (the first) was taken for another; empty where there are none, or
    many."""
    predictions: dict[int, Prediction] = field(default_factory=dict)
    """What was said of the worst examples, by their number."""
    result: dict[str, Any] = field(default_factory=dict)
    """What the run itself found."""


def read_dev(folder: Path) -> Dev | None:
    """Measure a run's predictions; none where it has not come to its end."""
    if not (folder / PREDICTIONS).is_file():
        return None
    task, examples, predictions = load_predictions(folder / PREDICTIONS)
    if not examples:
        raise DataError(f"{folder / PREDICTIONS} has no examples; the file was cut or damaged")
    try:
        found = evaluate(task, examples, predictions, count=WORST)
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError) as error:
        raise DataError(
            f"{folder / PREDICTIONS} cannot be scored: {error!r}; the file was changed by hand or "
            "damaged"
        ) from error
    return Dev(
        evaluation=found,
        taken=_taken(examples, predictions) if len(task.labels) <= MOST_LABELS else Counter(),
        predictions={each.number: predictions[each.number] for each in found.worst},
        result=_result(folder / RESULT),
    )


def _taken(
    examples: Sequence[TaskExample], predictions: Sequence[Prediction]
) -> "Counter[tuple[str, str]]":
    both = zip(examples, predictions, strict=True)
    return Counter(
        (str(example.label), said.label)
        for example, said in both
        if isinstance(example, TextExample) and isinstance(said, LabelPrediction)
    )


def _result(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path} is not JSON: {error}; the file was changed by hand or damaged"
        ) from error
    return found if isinstance(found, dict) else {}
