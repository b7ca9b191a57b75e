"""When a row leaves: criteria of early exit, and thresholds that keep the answers. numpy only.

Three criteria read the logits after each layer, the depths 1, 2, …; a row leaves at the first depth
where its criterion reaches the threshold, and at the last depth in any case.

patience (PABEE, Zhou et al. 2020): how many times in a row the answer stayed as it was one depth
before. confidence: the probability of the answer; of several labels the least certain one's.
cumulative, in the manner of PALBERT (Balagansky & Gavrilov 2022), whose exit probabilities are
trained and these are not: 1 − Π (1 − λ_i) over the depths so far, where λ_i is the confidence at
depth i, scaled so that a guess among all labels is 0 and certainty is 1. Numbers have no
probability, so regress has patience alone: there a number counts as unchanged within a tolerance.

A threshold is chosen by agreement with the full depth on texts that need no labels: thresholds of a
fixed list are tested from the strictest on, and the first that fails ends the search. Each test is
exact (binomial) at 5 %, and in a fixed order the chance that any bad threshold passes is 5 % in
all; so at most 0.5 % of the answers change, with 95 % confidence for each criterion, on texts like
those of the calibration.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from litebert.checks import is_number, shorten
from litebert.config import HeadKind
from litebert.errors import ConfigError
from litebert.shapes import Bool, Float, Int
from litebert.tasks.decode.decode import sigmoid, softmax

Criterion = Literal["patience", "confidence", "cumulative"]
CRITERIA: tuple[Criterion, ...] = get_args(Criterion)
_CHANGED = 0.005
"""Largest rate of changed answers."""
_CERTAIN = 0.95
"""Confidence with which the rate is no larger."""
_TOLERANCE = 0.1
"""Standard deviations of the full depth's numbers within which a number counts as unchanged."""
_CONFIDENCES = (
    *(0.9999, 0.9995, 0.999, 0.998, 0.995, 0.99, 0.98, 0.97, 0.96, 0.95, 0.93, 0.9),
    *(0.87, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.4),
)
_CUMULATIVES = (
    *(1 - 10.0**-power for power in (12, 10, 9, 8, 7, 6, 5, 4, 3)),
    *(0.998, 0.995, 0.99, 0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4),
)
Logits = Float[np.ndarray, "rows outputs"]
Memory = Float[np.ndarray, "rows _remembered"]
"""Of each row: how many times in a row its answer stayed (patience), 1 minus its cumulative
probability (cumulative), and its last answer."""


@dataclass(frozen=True, kw_only=True)
class ExitRule:
    """A criterion with its threshold."""

    criterion: str
    """One of CRITERIA."""
    threshold: float
    """Depths in a row (patience), or a probability."""
    tolerance: float = 0.0
    """Distance within which numbers count as the same (regress)."""
    label_threshold: float = 0.5
    """Probability from which a label is predicted (multilabel)."""

    def __post_init__(self) -> None:
        if self.criterion not in CRITERIA:
            raise ConfigError(
                f"exit is one of {', '.join(CRITERIA)}; got {shorten(self.criterion)}"
            )
        low, high = (1.0, 1e6) if self.criterion == "patience" else (0.0, 1.0)
        if not is_number(self.threshold) or not low <= self.threshold <= high:
            expected = "depths, at least 1" if self.criterion == "patience" else "from 0 to 1"
            raise ConfigError(
                f"the threshold of {self.criterion} is {expected}; got {shorten(self.threshold)}"
            )

    def check_head(self, head: HeadKind) -> None:
        """Refuse a criterion that the head has no numbers for."""
        if head == "regress" and self.criterion != "patience":
            raise ConfigError(
                f"numbers have no probability, so regress leaves by patience; got {self.criterion}"
            )


class Leaving:
    """Decides depth by depth which of the rows that are left leave now."""

    def __init__(self, rule: ExitRule, head: HeadKind) -> None:
        rule.check_head(head)
        self.rule, self.head = rule, head
        self._memory: Memory | None = None

    def step(self, logits: Logits) -> Bool[np.ndarray, " rows"]:
        """True for each row that leaves; those are not in the next step."""
        memory = new_memory(self.head, logits) if self._memory is None else self._memory
        leaves, memory = judge(self.rule, self.head, logits, memory)
        self._memory = memory[~leaves]
        return leaves


def new_memory(head: HeadKind, logits: Logits) -> Memory:
    """Of rows before their first depth: no answer yet, so that none has stayed."""
    answers = logits.shape[1] if head == "multilabel" else 1
    return np.tile(np.array([0.0, 1.0, *[np.nan] * answers]), (len(logits), 1))


def judge(
    rule: ExitRule, head: HeadKind, logits: Logits, memory: Memory
) -> tuple[Bool[np.ndarray, " rows"], Memory]:
    """Which rows leave by the logits of one more depth, and what is remembered of them all."""
    if rule.criterion == "confidence":
        return confidence(head, logits) >= rule.threshold, memory
    memory = memory.copy()
    if rule.criterion == "patience":
        answers = _answers_of(head, logits, rule.label_threshold)
        same = _agree(answers, memory[:, 2:], rule.tolerance)
        memory[:, 0] = np.where(same, memory[:, 0] + 1, 0)
        memory[:, 2:] = answers
        leaves = memory[:, 0] >= rule.threshold
    else:
        memory[:, 1] *= 1 - _above_chance(head, logits)
        leaves = 1 - memory[:, 1] >= rule.threshold
    return leaves, memory


def _answers_of(
    head: HeadKind, logits: Logits, label_threshold: float = 0.5
) -> Float[np.ndarray, "rows answers"]:
    """What is predicted: the label's number, 0 or 1 for each label, or the number itself."""
    if head == "classify":
        return np.asarray(logits.argmax(1)[:, None].astype(np.float64))
    numbers = sigmoid(logits) >= label_threshold if head == "multilabel" else logits
    return numbers.astype(np.float64)


def _agree(
    answers: Float[np.ndarray, "rows answers"],
    others: Float[np.ndarray, "rows answers"],
    tolerance: float,
) -> Bool[np.ndarray, " rows"]:
    """Whether answers are the same: exactly, or within the tolerance for numbers."""
    return np.asarray((np.abs(answers - others) <= tolerance).all(1))


def confidence(head: HeadKind, logits: Logits) -> Float[np.ndarray, " rows"]:
    """The probability of the answer; of several labels the least certain one's."""
    if head == "classify":
        return np.asarray(softmax(logits.astype(np.float64)).max(1))
    return np.asarray(sigmoid(np.abs(logits.astype(np.float64))).min(1))


def _above_chance(head: HeadKind, logits: Logits) -> Float[np.ndarray, " rows"]:
    """Confidence from 0 for a guess among all labels to 1 for certainty."""
    chance = 1 / logits.shape[1] if head == "classify" else 0.5
    if chance == 1:
        return np.ones(len(logits))
    return np.clip((confidence(head, logits) - chance) / (1 - chance), 0, 1)


def exit_depths(
    rule: ExitRule, head: HeadKind, logits: Float[np.ndarray, "depths rows outputs"]
) -> Int[np.ndarray, " rows"]:
    """The depth, from 1, at which each row leaves."""
    depths = np.full(logits.shape[1], len(logits))
    left, leaving = np.arange(logits.shape[1]), Leaving(rule, head)
    for depth, each in enumerate(logits[:-1], start=1):
        leaves = leaving.step(each[left])
        depths[left[leaves]] = depth
        left = left[~leaves]
    return depths


def at_depths(
    logits: Float[np.ndarray, "depths rows outputs"], depths: Int[np.ndarray, " rows"]
) -> Logits:
    """The logits with which rows leave."""
    return np.asarray(logits[depths - 1, np.arange(logits.shape[1])])


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """A threshold, and what it was chosen by."""

    threshold: float
    tolerance: float
    rows: int
    """Texts of the calibration."""
    changed: int
    """Those with another answer than at the full depth."""
    bound: float
    """Rate of changed answers that is not exceeded, with 95 % confidence."""
    mean_depth: float


def calibrate(
    head: HeadKind,
    logits: Float[np.ndarray, "depths rows outputs"],
    *,
    label_threshold: float = 0.5,
) -> dict[Criterion, Calibrated]:
    """By criterion the loosest threshold that passes; none where the strictest fails already."""
    full, rows = _answers_of(head, logits[-1], label_threshold), logits.shape[1]
    tolerance = tolerance_of(head, logits[-1])
    chosen: dict[Criterion, Calibrated] = {}
    for criterion, thresholds in grids(head, len(logits)).items():
        for threshold in thresholds:
            rule = ExitRule(
                criterion=criterion,
                threshold=threshold,
                tolerance=tolerance,
                label_threshold=label_threshold,
            )
            depths = exit_depths(rule, head, logits)
            answers = _answers_of(head, at_depths(logits, depths), label_threshold)
            changed = rows - int(_agree(answers, full, tolerance).sum())
            bound = upper_bound(changed, rows)
            if bound > _CHANGED:
                break
            chosen[criterion] = Calibrated(
                threshold=threshold,
                tolerance=tolerance,
                rows=rows,
                changed=changed,
                bound=bound,
                mean_depth=float(depths.mean()),
            )
    return chosen


def tolerance_of(head: HeadKind, logits: Logits) -> float:
    """The distance within which numbers of the full depth count as the same; 0 for labels."""
    return _TOLERANCE * float(logits.std(dtype=np.float64)) if head == "regress" else 0.0


def grids(head: HeadKind, depths: int) -> Mapping[Criterion, tuple[float, ...]]:
    """The thresholds that are tested, the strictest first."""
    patience = tuple(float(count) for count in range(depths - 2, 0, -1))
    if head == "regress":
        return {"patience": patience}
    return {"patience": patience, "confidence": _CONFIDENCES, "cumulative": _CUMULATIVES}


def upper_bound(count: int, total: int) -> float:
    """The rate that `count` of `total` do not speak against (Clopper & Pearson 1934, one-sided):
    the p at which so few are seen with probability 1 − _CERTAIN."""
    if count >= total:
        return 1.0
    ways = [
        math.lgamma(total + 1) - math.lgamma(seen + 1) - math.lgamma(total - seen + 1)
        for seen in range(count + 1)
    ]
    low, high = count / total, 1.0
    for _ in range(100):
        rate = (low + high) / 2
        at_most = (
            math.fsum(
                math.exp(each + seen * math.log(rate) + (total - seen) * math.log1p(-rate))
                for seen, each in enumerate(ways)
            )
            if 0 < rate < 1
            else float(rate == 0)
        )
        low, high = (rate, high) if at_most > 1 - _CERTAIN else (low, rate)
    return high
