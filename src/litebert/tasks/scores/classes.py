"""Scores of labels: accuracy, F1, macro F1, Matthews' correlation. Numbers of labels in, true and
guessed."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from litebert.tasks.scores import Scores, Weights, divide


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What a confusion matrix comes to for the scores, without the matrix: a row for each resample,
    a column for each label."""

    right: Float[np.ndarray, "samples labels"]
    """Examples of the label that were guessed so."""
    true: Float[np.ndarray, "samples labels"]
    guessed: Float[np.ndarray, "samples labels"]


def count(
    true: Int[np.ndarray, " examples"],
    guessed: Int[np.ndarray, " examples"],
    weights: Weights,
    labels: int,
) -> Counts:
    """Count labels in every resample."""
    hot = np.eye(labels)
    right = hot[true] * (true == guessed)[:, None]
    return Counts(right=weights @ right, true=weights @ hot[true], guessed=weights @ hot[guessed])


def accuracy(counts: Counts) -> Scores:
    """Part of the examples whose label was guessed."""
    return divide(counts.right.sum(1), counts.true.sum(1))


def f1(counts: Counts, label: int = 1) -> Scores:
    """Harmonic mean of precision and recall of one label: 2 right / (true + guessed)."""
    return divide(2 * counts.right, counts.true + counts.guessed)[:, label]


def macro_f1(counts: Counts) -> Scores:
    """Mean F1 over the labels that occur, be it as truth or as guess."""
    each, seen = (
        divide(2 * counts.right, counts.true + counts.guessed),
        counts.true + counts.guessed > 0,
    )
    return divide(np.where(seen, each, 0).sum(1), seen.sum(1))


def matthews(counts: Counts) -> Scores:
    """Matthews' correlation for any number of labels (Gorodkin 2004): the covariance of truth and
    guess, between -1 and 1."""
    total = counts.true.sum(1)

    def covariance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """total² less the sum over labels of a b; 0 where one label is all there is."""
        return np.asarray(total**2 - (a * b).sum(1))

    together = counts.right.sum(1) * total - (counts.true * counts.guessed).sum(1)
    spread = covariance(counts.true, counts.true) * covariance(counts.guessed, counts.guessed)
    return divide(together, np.sqrt(spread))
