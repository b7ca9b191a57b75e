"""Calibration: bins and their error by a worked example, and a temperature that undoes
overconfidence and changes no answer."""

import numpy as np
import pytest

from litebert.tasks.decode.decode import softmax
from litebert.tasks.examples import TextExample
from litebert.tasks.predictions import LabelPrediction, NumberPrediction
from litebert.tasks.scores.calibration import HIGHEST, LOWEST, Calibration, fit_temperature


def pair(confidence: float, *, right: bool) -> tuple[TextExample, LabelPrediction]:
    example = TextExample(key="1", first="text", label="yes" if right else "no")
    return example, LabelPrediction(
        label="yes", probabilities={"yes": confidence, "no": 1 - confidence}
    )


def test_the_error_is_the_mean_distance_of_confidence_and_accuracy() -> None:
    pairs = [pair(0.95, right=True), pair(0.95, right=False), pair(0.6, right=True)]
    examples, predictions = zip(*pairs, strict=True)
    result = Calibration.of(examples, predictions)
    assert result is not None
    assert result.error == pytest.approx((2 * 0.45 + 0.4) / 3)
    low, high = result.bins
    assert (low.lowest, low.highest, low.num_examples, low.accuracy) == (0.6, 0.7, 1, 1.0)
    assert (high.highest, high.num_examples, high.accuracy) == (1.0, 2, 0.5)
    assert high.confidence == pytest.approx(0.95)


def test_certainty_is_in_the_last_bin_and_numbers_have_no_calibration() -> None:
    example, prediction = pair(1.0, right=True)
    result = Calibration.of([example], [prediction])
    assert result is not None
    assert result.error == 0
    assert result.bins[0].lowest == 0.9
    assert Calibration.of([example], [NumberPrediction(value=1.0)]) is None
    assert Calibration.of([], []) is None


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_temperature_of_logits_that_are_too_large_is_found_again(temperature: float) -> None:
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(20_000, 3))
    chances = softmax(logits).cumsum(1)
    targets = (draw.random((len(logits), 1)) > chances).sum(1).clip(0, 2)
    assert fit_temperature(temperature * logits, targets) == pytest.approx(temperature, rel=0.05)


def test_a_temperature_stays_within_its_bounds() -> None:
    logits = np.array([[2.0, 0.0], [0.0, 2.0]])
    assert fit_temperature(logits, np.array([0, 1])) == pytest.approx(LOWEST, rel=1e-3)
    assert fit_temperature(logits, np.array([1, 0])) == pytest.approx(HIGHEST, rel=1e-3)
