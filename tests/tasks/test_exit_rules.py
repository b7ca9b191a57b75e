"""Criteria of early exit by hand, thresholds that keep the answers, and the exact bound."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from litebert.errors import ConfigError
from litebert.tasks.decode.exits import (
    ExitRule,
    Leaving,
    at_depths,
    calibrate,
    confidence,
    exit_depths,
    upper_bound,
)


def log_odds(*shares: float) -> list[list[float]]:
    """Rows of two logits whose first probability is each of these."""
    return [[math.log(share), math.log(1 - share)] for share in shares]


def depths_of(criterion: Any, threshold: float, logits: Any, head: Any = "classify") -> list[int]:
    rule = ExitRule(criterion=criterion, threshold=threshold, tolerance=0.25)
    return exit_depths(rule, head, np.array(logits, np.float32)).tolist()


# two rows, four depths: probabilities of the first label
TWO = [log_odds(0.6, 0.1), log_odds(0.4, 0.2), log_odds(0.3, 0.05), log_odds(0.1, 0.01)]


def test_confidence_is_the_probability_of_the_answer() -> None:
    assert depths_of("confidence", 0.85, TWO) == [4, 1]
    assert depths_of("confidence", 0.65, TWO) == [3, 1]
    assert depths_of("confidence", 0.94, TWO) == [4, 3]
    assert depths_of("confidence", 0.5, TWO) == [1, 1]


def test_patience_counts_answers_that_stayed() -> None:
    # the first row changes its answer at depth 2, so it has stayed once at depth 3
    assert depths_of("patience", 1.0, TWO) == [3, 2]
    assert depths_of("patience", 2.0, TWO) == [4, 3]
    assert depths_of("patience", 3.0, TWO) == [4, 4]


def test_cumulative_adds_up_confidence_above_chance() -> None:
    # λ of the first row: 0.2, 0.2, 0.4, 0.8: 0.2, 1 − 0.8 · 0.8 = 0.36, 1 − 0.64 · 0.6 = 0.616
    # of the second: 0.8, 0.6, 0.9: 0.8, 1 − 0.2 · 0.4 = 0.92, 1 − 0.08 · 0.1 = 0.992
    assert depths_of("cumulative", 0.35, TWO) == [2, 1]
    assert depths_of("cumulative", 0.61, TWO) == [3, 1]
    assert depths_of("cumulative", 0.91, TWO) == [4, 2]
    assert depths_of("cumulative", 0.99, TWO) == [4, 3]


def test_numbers_stay_within_a_tolerance_and_have_no_probability() -> None:
    values = [[[1.0], [5.0]], [[1.5], [5.2]], [[1.4], [5.3]], [[1.6], [9.0]]]
    assert depths_of("patience", 1.0, values, "regress") == [3, 2]
    assert depths_of("patience", 2.0, values, "regress") == [4, 3]
    with pytest.raises(ConfigError, match="regress leaves by patience; got confidence"):
        depths_of("confidence", 0.9, values, "regress")


def test_of_several_labels_the_least_certain_decides() -> None:
    logits = np.log(np.array([[9.0, 1 / 4], [1.0, 99.0]], np.float32))
    np.testing.assert_allclose(confidence("multilabel", logits), [0.8, 0.5], rtol=1e-6)
    flips = [[[2.0, -1.0]], [[2.0, 1.0]], [[3.0, 2.0]]]
    assert depths_of("patience", 1.0, flips, "multilabel") == [3]


def test_rows_that_left_do_not_disturb_the_others() -> None:
    """One row at a time gives the same depths as all of them together."""
    logits = np.random.default_rng(0).normal(0, 2, (6, 40, 3)).astype(np.float32)
    for criterion, threshold in (("patience", 2.0), ("confidence", 0.8), ("cumulative", 0.9)):
        rule = ExitRule(criterion=criterion, threshold=threshold)
        together = exit_depths(rule, "classify", logits)
        alone = [exit_depths(rule, "classify", logits[:, [row]])[0] for row in range(40)]
        assert together.tolist() == alone
        assert len(set(alone)) > 2
        leaving = Leaving(rule, "classify")
        assert leaving.step(logits[0]).tolist() == (together == 1).tolist()


@pytest.mark.parametrize(
    ("criterion", "threshold", "message"),
    [
        ("confidence", 1.5, r"threshold of confidence is from 0 to 1; got 1\.5"),
        ("patience", 0.0, r"threshold of patience is depths, at least 1; got 0\.0"),
        ("luck", 0.5, "exit is one of patience, confidence, cumulative; got 'luck'"),
    ],
)
def test_rules_that_mean_nothing(criterion: Any, threshold: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ExitRule(criterion=criterion, threshold=threshold)


@pytest.mark.parametrize(("count", "total"), [(0, 598), (0, 10), (3, 2000), (1, 7), (6, 7)])
def test_the_bound_is_exact(count: int, total: int) -> None:
    """At the bound so few are seen with probability 5 %, in exact arithmetic."""
    rate = Fraction(upper_bound(count, total))
    seen = sum(math.comb(total, k) * rate**k * (1 - rate) ** (total - k) for k in range(count + 1))
    assert float(seen) == pytest.approx(0.05, rel=1e-6)


def test_without_a_change_598_texts_are_enough_and_597_are_not() -> None:
    assert upper_bound(0, 598) <= 0.005 < upper_bound(0, 597)
    assert upper_bound(7, 7) == 1


def made(rows: int, seed: int) -> np.ndarray:
    """Logits that become surer with depth: early answers are wrong where they are unsure."""
    draw = np.random.default_rng(seed)
    truth = draw.normal(0, 3, rows)
    noise = draw.normal(0, 1, (6, rows)) * np.array([2, 1.5, 1, 0.7, 0.4, 0.2])[:, None]
    margin = truth + noise
    return np.stack([margin, -margin], -1).astype(np.float32)


def test_calibrated_thresholds_keep_answers_on_other_texts() -> None:
    chosen = calibrate("classify", made(4000, 0))
    assert set(chosen) >= {"confidence", "cumulative"}
    other = made(20_000, 1)
    for name, each in chosen.items():
        assert each.bound <= 0.005
        assert each.bound == upper_bound(each.changed, 4000)
        rule = ExitRule(criterion=name, threshold=each.threshold)
        depths = exit_depths(rule, "classify", other)
        changed = at_depths(other, depths).argmax(1) != other[-1].argmax(1)
        assert changed.mean() <= 0.005
        assert depths.mean() < 6


def test_too_few_texts_calibrate_nothing() -> None:
    assert calibrate("classify", made(500, 0)) == {}
    assert calibrate("classify", made(0, 0)) == {}


def test_good_thresholds_rarely_pass_where_they_are_bad() -> None:
    """Every threshold changes 0.51 % of the answers; one calibration in twenty may pass."""
    draw, passed = np.random.default_rng(2), 0
    for _ in range(200):
        logits = np.zeros((3, 700, 2), np.float32)
        logits[..., 0] = 20
        flipped = draw.random(700) < 0.0051
        logits[2, flipped] = [0, 20]
        passed += "confidence" in calibrate("classify", logits)
    assert passed <= 200 * 0.05 + 3 * math.sqrt(200 * 0.05 * 0.95)
