"""Whether probabilities mean what they say (Guo et al. 2017): predictions and labels in;
reliability bins, the expected calibration error and the temperature that makes it small out. numpy
only."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from litebert.shapes import Float, Int
from litebert.tasks.examples import TaskExample, TextExample
from litebert.tasks.predictions import LabelPrediction, Prediction

BINS = 10
LOWEST, HIGHEST = 0.05, 20.0
"""Bounds of a temperature: where every answer is right, none would be low enough."""


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Predictions of like confidence."""

    lowest: float
    """Confidence from which the bin begins."""
    highest: float
    """Confidence at which it ends; 1 belongs to the last."""
    num_examples: int
    confidence: float
    """Mean probability of the predicted label."""
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How far confidence and accuracy are apart."""

    error: float
    """Expected calibration error: the mean over examples of |confidence − accuracy| of their
    bin."""
    bins: tuple[Bin, ...]
    """Ten of equal width, without those that are empty."""

    @classmethod
    def of(
        cls, examples: Sequence[TaskExample], predictions: Sequence[Prediction]
    ) -> "Calibration | None":
        """Of predictions with one label each; None for others."""
        pairs = [
            (prediction.probabilities[prediction.label], prediction.label == example.truth())
            for example, prediction in zip(examples, predictions, strict=True)
            if isinstance(prediction, LabelPrediction) and isinstance(example, TextExample)
        ]
        if not pairs or len(pairs) < len(examples):
            return None
        confidence, is_right = np.array(pairs, np.float64).T
        numbers = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
        bins = tuple(
            Bin(
                lowest=number / BINS,
                highest=(number + 1) / BINS,
                num_examples=int((numbers == number).sum()),
                confidence=float(confidence[numbers == number].mean()),
                accuracy=float(is_right[numbers == number].mean()),
            )
            for number in np.unique(numbers).tolist()
        )
        apart = sum(each.num_examples * abs(each.confidence - each.accuracy) for each in bins)
        return cls(error=apart / len(confidence), bins=bins)


def fit_temperature(
    logits: Float[np.ndarray, "examples labels"], targets: Int[np.ndarray, " examples"]
) -> float:
    """The temperature at which softmax(logits / temperature) has the lowest cross-entropy.

    In 1 / temperature the cross-entropy is convex, so its derivative is bisected."""
    logits = logits.astype(np.float64)
    of_target = logits[np.arange(len(logits)), targets].mean()

    def slope(inverse: float) -> float:
        scaled = inverse * logits
        powers = np.exp(scaled - scaled.max(1, keepdims=True))
        expected = (powers * logits).sum(1) / powers.sum(1)
        return float(expected.mean() - of_target)

    low, high = 1 / HIGHEST, 1 / LOWEST
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return 1 / middle
