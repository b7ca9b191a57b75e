"""Predictions as plain data: what the command line prints, files hold and a service sends. A
Prediction in, a dict out."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    NumberPrediction,
    Prediction,
    SpanPrediction,
    TagPrediction,
)

DIGITS = 6
"""Of a probability or a score: more would be noise of the arithmetic."""


def as_answer(prediction: Prediction) -> dict[str, Any]:
    """The prediction's fields, numbers rounded; of a span prediction the answer first, null where
    there is none."""
    return ANSWERS[type(prediction)](prediction)


def as_masks(masks: Sequence[Sequence[tuple[str, float]]]) -> dict[str, Any]:
    """The guesses of fill for one text: for each mask a list of tokens with their probabilities."""
    return {
        "masks": [
            [{"token": token, "probability": round(p, DIGITS)} for token, p in mask]
            for mask in masks
        ]
    }


def _label(said: LabelPrediction) -> dict[str, Any]:
    return {
        "label": said.label,
        "probabilities": {label: round(p, DIGITS) for label, p in said.probabilities.items()},
    }


def _number(said: NumberPrediction) -> dict[str, Any]:
    return {"value": round(said.value, DIGITS)}


def _choice(said: ChoicePrediction) -> dict[str, Any]:
    return {"index": said.index, "probabilities": [round(p, DIGITS) for p in said.probabilities]}


def _span(said: SpanPrediction) -> dict[str, Any]:
    best = said.best
    answer = dict.fromkeys(("text", "start", "end", "score")) if best is None else asdict(best)
    spans = [asdict(span) | {"score": round(span.score, DIGITS)} for span in said.spans]
    score = None if best is None else round(best.score, DIGITS)
    return answer | {"score": score, "null_score": round(said.null_score, DIGITS), "spans": spans}


def _tags(said: TagPrediction) -> dict[str, Any]:
    return {
        "tags": list(said.tags),
        "probabilities": [round(p, DIGITS) for p in said.probabilities],
    }


ANSWERS: dict[type, Callable[[Any], dict[str, Any]]] = {
    LabelPrediction: _label,
    NumberPrediction: _number,
    ChoicePrediction: _choice,
    SpanPrediction: _span,
    TagPrediction: _tags,
}
