"""The official scores of labels, numbers and tags as pure functions (ALBERT §4.2, A.3).

Each is a function of weighted sums. With weights of one it is the score itself; a bootstrap's
weights are how often each example was drawn, and each row of weights gives one score, so that a
thousand resamples are a few matrix products. 0/0 is NaN here, for "undefined"; score() reports 0
then, as scikit-learn does, and tables leave it out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

Weights = Float[np.ndarray, "samples examples"]
"""How often each example counts; one row for each score."""
Scores = Float[np.ndarray, " samples"]
Numbers = Float[np.ndarray, " examples"]
_OUTSIDE = "O"
_FLAT = 1e-12  # a relative variance of this size is rounding error: the numbers are all equal
_ENTERS, _STAYS = frozenset("BI"), frozenset("IEL")
_LETTERS = frozenset("BIELSU")


def divide(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """above / below; NaN where below is 0."""
    undefined = np.full(np.broadcast(above, below).shape, np.nan)
    return np.asarray(np.divide(above, below, out=undefined, where=below != 0))


def mean(values: Numbers, weights: Weights) -> Scores:
    """The weighted mean of one number for each example."""
    return divide(weights @ values, weights.sum(1))


@dataclass(frozen=True, kw_only=True)
class LabelCounts:
    """What the scores need of a confusion matrix: a row for each resample, a column for each
    label."""

    correct: Float[np.ndarray, "samples labels"]
    """Examples of the label that were predicted so."""
    true: Float[np.ndarray, "samples labels"]
    predicted: Float[np.ndarray, "samples labels"]

    @classmethod
    def of(
        cls,
        true: Int[np.ndarray, " examples"],
        predicted: Int[np.ndarray, " examples"],
        weights: Weights,
        num_labels: int,
    ) -> "LabelCounts":
        """Count the labels of every resample; labels are numbers from 0."""
        one_hot = np.eye(num_labels, dtype=bool)
        return cls.of_sets(one_hot[true], one_hot[predicted], weights)

    @classmethod
    def of_sets(
        cls,
        true: Bool[np.ndarray, "examples labels"],
        predicted: Bool[np.ndarray, "examples labels"],
        weights: Weights,
    ) -> "LabelCounts":
        """Count the labels of every resample where an example has any number of labels."""
        return cls(
            correct=weights @ (true & predicted),
            true=weights @ true,
            predicted=weights @ predicted,
        )

    def accuracy(self) -> Scores:
        """Share of the examples whose label was predicted."""
        return divide(self.correct.sum(1), self.true.sum(1))

    def f1(self) -> Scores:
        """Harmonic mean of precision and recall of the second label."""
        return self._f1_by_label()[:, 1]

    def macro_f1(self) -> Scores:
        """Mean F1 over the labels that occur, as truth or as prediction."""
        occurs = self.true + self.predicted > 0
        return divide(np.where(occurs, self._f1_by_label(), 0).sum(1), occurs.sum(1))

    def multilabel_macro_f1(self) -> Scores:
        """Mean F1 over all labels, 0 for one that does not occur, as in scikit-learn."""
        return np.asarray(np.nan_to_num(self._f1_by_label()).mean(1))

    def micro_f1(self) -> Scores:
        """F1 over all labels of all examples together."""
        return divide(2 * self.correct.sum(1), (self.true + self.predicted).sum(1))

    def matthews(self) -> Scores:
        """Matthews' correlation for any number of labels (Gorodkin 2004), between -1 and 1."""
        total = self.true.sum(1)

        def covariance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            """total² minus the sum over labels of a b; 0 where there is one label only."""
            return np.asarray(total**2 - (a * b).sum(1))

        together = self.correct.sum(1) * total - (self.true * self.predicted).sum(1)
        spread = covariance(self.true, self.true) * covariance(self.predicted, self.predicted)
        return divide(together, np.sqrt(spread))

    def _f1_by_label(self) -> Float[np.ndarray, "samples labels"]:
        return divide(2 * self.correct, self.true + self.predicted)


def pearson(true: Numbers, predicted: Numbers, weights: Weights) -> Scores:
    """Correlation of the numbers themselves."""
    # centered, so that little precision is lost where numbers are large and close together
    return _correlation((true - true.mean())[None], (predicted - predicted.mean())[None], weights)


def spearman(true: Numbers, predicted: Numbers, weights: Weights) -> Scores:
    """Correlation of the ranks, computed anew in each resample; equal numbers share their mean
    rank."""
    return _correlation(_ranks(true, weights), _ranks(predicted, weights), weights)


def mean_squared_error(true: Numbers, predicted: Numbers, weights: Weights) -> Scores:
    """Mean of the squared differences; less is better."""
    return mean((true - predicted) ** 2, weights)


class TagCounts(NamedTuple):
    """Entities and words of one text; scores are ratios of their sums."""

    correct: int
    """Entities predicted with both ends and their name."""
    true: int
    predicted: int
    correct_words: int
    words: int

    @classmethod
    def of(cls, true: Sequence[str], predicted: Sequence[str]) -> "TagCounts":
        ours, theirs = entities(predicted), entities(true)
        return cls(
            correct=len(ours & theirs),
            true=len(theirs),
            predicted=len(ours),
            correct_words=sum(a == b for a, b in zip(true, predicted, strict=True)),
            words=len(true),
        )


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Name, first word and word after the last of each entity: B-PER I-PER O is {("PER", 0, 2)}.

    As CoNLL's script and seqeval read them: B- begins, I- continues, E- (or L-) ends, S- (or U-)
    stands alone; an entity without its beginning counts all the same. Tags without such letters,
    as those of parts of speech, are entities of one word. O is outside.
    """
    spans, start, before = set(), 0, (_OUTSIDE, "")
    for position, tag in enumerate([*tags, _OUTSIDE]):
        letter, name = _split_tag(tag)
        continues = before[0] in _ENTERS and letter in _STAYS and before[1] == name
        if not continues:
            if before[0] != _OUTSIDE:
                spans.add((before[1], start, position))
            start = position
        before = (letter, name)
    return spans


def entity_type(tag: str) -> str:
    """PER of B-PER; O stays O, and a tag without a letter is its own type."""
    letter, name = _split_tag(tag)
    return name or (_OUTSIDE if letter == _OUTSIDE else "entity")


def _split_tag(tag: str) -> tuple[str, str]:
    """B-PER → B, PER; a tag without a letter stands alone."""
    if tag in (_OUTSIDE, *_ENTERS):
        return tag, ""
    letter, dash, name = tag.partition("-")
    return (letter, name) if dash and letter in _LETTERS else ("S", tag)


def _correlation(a: np.ndarray, b: np.ndarray, weights: Weights) -> Scores:
    """Of numbers with a row for each resample, or one row for all."""
    total = weights.sum(1)

    def moment(values: np.ndarray) -> np.ndarray:
        return divide((weights * values).sum(1), total)

    mean_a, mean_b, square_a, square_b = moment(a), moment(b), moment(a * a), moment(b * b)
    variance_a, variance_b = square_a - mean_a**2, square_b - mean_b**2
    varies = (variance_a > _FLAT * square_a) & (variance_b > _FLAT * square_b)
    together = moment(a * b) - mean_a * mean_b
    correlation = np.where(
        varies, divide(together, np.sqrt(np.where(varies, variance_a * variance_b, 0))), np.nan
    )
    return np.clip(correlation, -1, 1)  # rounding may exceed 1 by a hair


def _ranks(values: Numbers, weights: Weights) -> Float[np.ndarray, "samples examples"]:
    """Centered ranks as if each example occurred `weights` times: those below, and the middle of
    those that are equal."""
    _, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    sizes = np.add.reduceat(weights[:, order], starts, axis=1)
    ranks = np.cumsum(sizes, axis=1) - sizes + (sizes + 1) / 2
    return np.asarray(ranks - ranks.mean(1, keepdims=True))[:, group]
