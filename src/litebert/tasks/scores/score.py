"""Examples and predictions in; the task's official scores, their intervals, and scores by slice
out."""

import math
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from litebert.errors import ConfigError
from litebert.tasks.examples import AnswerExample, ChoiceExample, TaskExample
from litebert.tasks.predictions import Prediction
from litebert.tasks.scores import Weights
from litebert.tasks.scores.measures import measure
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


def score(
    task: Task, examples: Sequence[TaskExample], predictions: Sequence[Prediction]
) -> dict[str, float]:
    """Every score of the task, 1 for perfect (mean_squared_error: 0), by name and in the task's
    order.

    A score that is not defined, as a correlation with a constant, is 0, as scikit-learn has it; an
    error then is infinite.
    """
    everything = np.ones((1, len(examples)))
    values = {
        name: float(each(everything)[0])
        for name, each in measure(task, examples, predictions).items()
    }
    worst = {name: math.inf if name in LESS_IS_BETTER else 0.0 for name in values}
    return {name: value if math.isfinite(value) else worst[name] for name, value in values.items()}


def bootstrap(
    task: Task,
    examples: Sequence[TaskExample],
    predictions: Sequence[Prediction],
    *,
    samples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, tuple[float, float]]:
    """Interval of each score: the middle `level` of its values over resamples of the examples,
    drawn with replacement.

    It says how far another set of examples of this size might move the score, and nothing of
    another seed of training. Questions about one text are drawn together: they stand or fall with
    it, and many of them say less than as many texts.
    """
    if samples < 1 or not 0 < level < 1:
        raise ConfigError(
            f"a bootstrap takes samples from 1 and a level between 0 and 1; got {samples} and "
            f"{level}"
        )
    measures = measure(task, examples, predictions)
    found: dict[str, list[np.ndarray]] = {name: [] for name in measures}
    draw = np.random.default_rng(seed)
    rows = max(CELLS // len(examples), 1)
    _, groups = np.unique(
        [group_of(example, number) for number, example in enumerate(examples)], return_inverse=True
    )
    for start in range(0, samples, rows):
        weights = _resamples(draw, min(rows, samples - start), groups)
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
    """Scores of each slice, the largest first and MAX_SLICES at most; none where the examples are
    not told apart."""
    names = [slice_of(example) for example in examples]
    sizes = Counter(names)
    slices = sorted(sizes, key=lambda name: (-sizes[name], name))[:MAX_SLICES]
    if len(sizes) < 2:
        return []
    measures = measure(task, examples, predictions)
    places = {name: place for place, name in enumerate(slices)}
    mine = np.array([places.get(name, -1) for name in names])
    weights = (np.arange(len(slices))[:, None] == mine).astype(np.float64)
    values = {name: each(weights) for name, each in measures.items()}
    return [
        SliceScores(
            name=name,
            num_examples=sizes[name],
            scores={
                score: float(column[row])
                for score, column in values.items()
                if np.isfinite(column[row])
            },
        )
        for row, name in enumerate(slices)
    ]


def printed(name: str, value: float) -> str:
    """A score as papers print it: times 100; an error as it is."""
    return f"{value:.3f}" if name in LESS_IS_BETTER else f"{100 * value:.1f}"


def group_of(example: TaskExample, number: int) -> int:
    """What examples have in common that are not drawn apart: the text that they ask about; of the
    others, nothing."""
    if isinstance(example, AnswerExample | ChoiceExample) and example.context:
        return -1 - zlib.crc32(example.context.encode("utf-8", "surrogatepass"))
    return number


def _resamples(
    draw: np.random.Generator, rows: int, groups: Int[np.ndarray, " examples"]
) -> Weights:
    """How often each example is drawn when as many groups are drawn as there are."""
    size = int(groups.max()) + 1
    drawn = [np.bincount(draw.integers(0, size, size), minlength=size)[groups] for _ in range(rows)]
    return np.stack(drawn).astype(np.float64)


def _interval(values: Float[np.ndarray, " samples"], edges: list[float]) -> tuple[float, float]:
    """Quantiles of the resamples in which the score is defined; 0 if there is none."""
    defined = values[np.isfinite(values)]
    low, high = np.quantile(defined, edges) if len(defined) else (0.0, 0.0)
    return float(low), float(high)
