"""Examples and predictions in; the task's official scores, their intervals, and scores by slice out."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from litebert.errors import ConfigError
from litebert.tasks.examples import TaskExample
from litebert.tasks.measures import measure
from litebert.tasks.predictions import Prediction
from litebert.tasks.scores import Weights
from litebert.tasks.task import Task

LESS_IS_BETTER = frozenset({"mean_squared_error"})
CELLS = 4_000_000
"""Weights held at once: resamples × examples."""
MAX_SLICES = 200
"""Slices that are scored: more would be read by nobody."""


@dataclass(frozen=True, kw_only=True)
class SliceScores:
    """Scores of a part of the examples."""

    name: str
    num_examples: int
    scores: dict[str, float]
    """Those that are defined there: a correlation is not where all labels are the same."""


def score(task: Task, examples: Sequence[TaskExample], predictions: Sequence[Prediction]) -> dict[str, float]:
    """Every score of the task, 1 for perfect (mean_squared_error: 0), by name and in the task's order.

    A score that is not defined, as a correlation with a constant, is 0: as scikit-learn has it.
    """
    everything = np.ones((1, len(examples)))
    return {name: float(np.nan_to_num(each(everything)[0])) for name, each in measure(task, examples, predictions).items()}


def bootstrap(
    task: Task,
    examples: Sequence[TaskExample],
    predictions: Sequence[Prediction],
    *,
    samples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, tuple[float, float]]:
    """Interval of each score: the middle `level` of its values over resamples of the examples, drawn with replacement.

    It says how far another set of examples of this size might move the score, and nothing of another seed of training.
    """
    if samples < 1 or not 0 < level < 1:
        raise ConfigError(f"a bootstrap takes samples from 1 and a level between 0 and 1; got {samples} and {level}")
    measures = measure(task, examples, predictions)
    found: dict[str, list[np.ndarray]] = {name: [] for name in measures}
    draw = np.random.default_rng(seed)
    rows = max(CELLS // len(examples), 1)
    for start in range(0, samples, rows):
        weights = _resamples(draw, min(rows, samples - start), len(examples))
        for name, each in measures.items():
            found[name].append(each(weights))
    edges = [(1 - level) / 2, (1 + level) / 2]
    return {name: _interval(np.concatenate(parts), edges) for name, parts in found.items()}


def by_slice(
    task: Task,
    examples: Sequence[TaskExample],
    predictions: Sequence[Prediction],
    *,
    slice_of: Callable[[TaskExample], str] = lambda example: example.slice,
) -> list[SliceScores]:
    """Scores of each slice, the largest first and MAX_SLICES at most; none where the examples are not told apart."""
    names = [slice_of(example) for example in examples]
    sizes = Counter(names)
    slices = sorted(sizes, key=lambda name: (-sizes[name], name))[:MAX_SLICES]
    if len(sizes) < 2:
        return []
    measures = measure(task, examples, predictions)
    weights = np.array([[mine == name for mine in names] for name in slices], float)
    values = {name: each(weights) for name, each in measures.items()}
    return [
        SliceScores(
            name=name,
            num_examples=sizes[name],
            scores={score: float(column[row]) for score, column in values.items() if np.isfinite(column[row])},
        )
        for row, name in enumerate(slices)
    ]


def _resamples(draw: np.random.Generator, rows: int, size: int) -> Weights:
    """How often each example is drawn when as many are drawn as there are."""
    return np.stack([np.bincount(draw.integers(0, size, size), minlength=size) for _ in range(rows)]).astype(np.float64)


def _interval(values: Float[np.ndarray, " samples"], edges: list[float]) -> tuple[float, float]:
    """Quantiles of the resamples in which the score is defined; 0 if there is none."""
    defined = values[np.isfinite(values)]
    low, high = np.quantile(defined, edges) if len(defined) else (0.0, 0.0)
    return float(low), float(high)
