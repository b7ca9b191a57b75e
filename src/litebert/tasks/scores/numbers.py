"""Scores of numbers: Pearson's and Spearman's correlation, mean squared error."""

import numpy as np
from jaxtyping import Float

from litebert.tasks.scores import Scores, Weights, divide, mean

Numbers = Float[np.ndarray, " examples"]
FLAT = 1e-12
"""A variance that is this part of the squared size of the numbers, or less, is rounding error: the
numbers are all the same."""


def pearson(true: Numbers, guessed: Numbers, weights: Weights) -> Scores:
    """Correlation of the numbers themselves."""
    # around their own mean, so that little is lost where numbers are large and close together
    return _correlation((true - true.mean())[None], (guessed - guessed.mean())[None], weights)


def spearman(true: Numbers, guessed: Numbers, weights: Weights) -> Scores:
    """Correlation of their ranks; equal numbers share the mean of their ranks. Each resample has
    ranks of its own."""
    return _correlation(_ranks(true, weights), _ranks(guessed, weights), weights)


def mean_squared_error(true: Numbers, guessed: Numbers, weights: Weights) -> Scores:
    """Mean of the squared differences; less is better."""
    return mean((true - guessed) ** 2, weights)


def _correlation(a: np.ndarray, b: np.ndarray, weights: Weights) -> Scores:
    """Of numbers with a row for each resample, or one row for all."""
    total = weights.sum(1)

    def moment(values: np.ndarray) -> np.ndarray:
        return divide((weights * values).sum(1), total)

    mean_a, mean_b, square_a, square_b = moment(a), moment(b), moment(a * a), moment(b * b)
    variance_a, variance_b = square_a - mean_a**2, square_b - mean_b**2
    varies = (variance_a > FLAT * square_a) & (variance_b > FLAT * square_b)
    together = moment(a * b) - mean_a * mean_b
    found = np.where(
        varies, divide(together, np.sqrt(np.where(varies, variance_a * variance_b, 0))), np.nan
    )
    return np.clip(found, -1, 1)  # a hair beyond 1 by rounding


def _ranks(values: Numbers, weights: Weights) -> Float[np.ndarray, "samples examples"]:
    """Ranks from 1 as if each example stood there `weights` times: those below, and the middle of
    those that are equal."""
    _, group = np.unique(values, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    sizes = np.add.reduceat(weights[:, order], starts, axis=1)
    ranks = np.cumsum(sizes, axis=1) - sizes + (sizes + 1) / 2
    return np.asarray(ranks - ranks.mean(1, keepdims=True))[:, group]
