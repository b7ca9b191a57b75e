"""Examples and predictions in; the task's scores, their intervals, and scores by slice out.

Texts are compared once; each score is then a function of weights over the examples, so that a
resample or a slice costs one row of weights.
"""

import math
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from jaxtyping import Bool, Float, Int

from litebert.checks import list_names, shorten
from litebert.errors import ConfigError, DataError
from litebert.tasks.examples import (
    AnswerExample,
    ChoiceExample,
    TagExample,
    TaskExample,
    TextExample,
    only,
)
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    MultiLabelPrediction,
    NumberPrediction,
    Prediction,
    SpanPrediction,
    TagPrediction,
)
from litebert.tasks.scores import metrics
from litebert.tasks.scores.answers import answer_scores
from litebert.tasks.scores.metrics import LabelCounts, Scores, TagCounts, Weights, divide, mean
from litebert.tasks.task import Task

LESS_IS_BETTER = frozenset({"mean_squared_error"})
CELLS = 4_000_000
"""Weights in memory at once: resamples × examples."""
_MAX_SLICES = 200
"""Slices that are scored: nobody would read more."""
_Examples = Sequence[TaskExample]
_Predictions = Sequence[Prediction]
_Measure = Callable[[Weights], Scores]
_Measures = Mapping[str, _Measure]
_FLAT = 1e-12
"""A spread of resamples up to this size is rounding error."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Proportion:
    """The share of the counted examples that are correct, each of them or not at all."""

    correct: Float[np.ndarray, " examples"]
    counted: Float[np.ndarray, " examples"]
    """1 for the examples that count, 0 for the others."""

    def __call__(self, weights: Weights) -> Scores:
        return mean(self.correct, weights * self.counted)


@dataclass(frozen=True, kw_only=True)
class SliceScores:
    """Scores of some of the examples."""

    name: str
    num_examples: int
    scores: dict[str, float]
    """Those that are defined there: a correlation is not where all labels are the same."""


def score(task: Task, examples: _Examples, predictions: _Predictions) -> dict[str, float]:
    """Every score of the task by name, in the task's order; 1 is perfect (mean_squared_error: 0).

    An undefined score, such as a correlation with a constant, is 0, as in scikit-learn; an
    undefined error is infinite.
    """
    everything = np.ones((1, len(examples)))
    values = {
        name: float(measure(everything)[0])
        for name, measure in _measures(task, examples, predictions).items()
    }
    worst = {name: math.inf if name in LESS_IS_BETTER else 0.0 for name in values}
    return {name: value if math.isfinite(value) else worst[name] for name, value in values.items()}


def bootstrap(
    task: Task,
    examples: _Examples,
    predictions: _Predictions,
    *,
    samples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, tuple[float, float]]:
    """Confidence interval of each score: the middle `level` of its values over resamples of the
    examples, drawn with replacement.

    It tells how far another set of examples of this size might move the score, and nothing about
    another training seed. Questions about one text are drawn together: they are not independent.
    """
    measures = _measures(task, examples, predictions)
    return _bootstrap(measures, examples, samples, seed=seed, level=level)


def bootstrap_loss(
    task: Task,
    examples: _Examples,
    predictions: _Predictions,
    others: _Predictions,
    *,
    samples: int = 1000,
) -> tuple[float, float]:
    """95 % confidence interval of how much lower the first score of `others` is than that of
    `predictions`: both are scored on the same resamples."""
    name = task.scores[0]
    ours, theirs = (_measures(task, examples, each)[name] for each in (predictions, others))
    lost: dict[str, _Measure] = {name: lambda weights: ours(weights) - theirs(weights)}
    return _bootstrap(lost, examples, samples)[name]


def intervals(
    task: Task,
    examples: _Examples,
    predictions: _Predictions,
    *,
    samples: int = 1000,
) -> dict[str, tuple[float, float]]:
    """95 % confidence interval of each score: Wilson's for a proportion of independent examples, by
    bootstrap for the others.

    A bootstrap whose resamples all agree, as where every prediction is right, does not tell how
    far the score might be off. A proportion then has Wilson's interval for as many trials as there
    are groups of examples, every other score none.
    """
    measures = _measures(task, examples, predictions)
    drawn, groups = _bootstrap(measures, examples, samples), _groups(examples)
    result = {}
    for name, measure in measures.items():
        low, high = drawn[name]
        is_flat = high - low < _FLAT
        if isinstance(measure, _Proportion):
            counted = measure.counted > 0
            trials = len(np.unique(groups[counted]))
            if trials and (is_flat or trials == counted.sum()):
                result[name] = wilson(float(measure.correct[counted].mean()), trials)
                continue
        if not is_flat:
            result[name] = low, high
    return result


def wilson(proportion: float, trials: int | float, *, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval (1927) of a proportion of independent trials."""
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    center = proportion + z2 / (2 * trials)
    half = math.sqrt(z2 * (proportion * (1 - proportion) + z2 / (4 * trials)) / trials)
    low, high = ((center + sign * half) / (1 + z2 / trials) for sign in (-1, 1))
    # rounding must not exclude what was measured
    return max(min(low, proportion), 0.0), min(max(high, proportion), 1.0)


def by_slice(
    task: Task,
    examples: _Examples,
    predictions: _Predictions,
    *,
    slice_of: Callable[[TaskExample], str] = lambda example: example.slice,
) -> list[SliceScores]:
    """Scores of each slice, the largest first, at most _MAX_SLICES; none where all examples are of
    one slice."""
    names = [slice_of(example) for example in examples]
    sizes = Counter(names)
    slices = sorted(sizes, key=lambda name: (-sizes[name], name))[:_MAX_SLICES]
    if len(sizes) < 2:
        return []
    numbers = {name: number for number, name in enumerate(slices)}
    slice_numbers = np.array([numbers.get(name, -1) for name in names])
    weights = (np.arange(len(slices))[:, None] == slice_numbers).astype(np.float64)
    values = {
        name: measure(weights) for name, measure in _measures(task, examples, predictions).items()
    }
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


def printed_interval(name: str, interval: tuple[float, float] | None) -> str:
    """The ends of a score's interval; a dash where it has none."""
    return "–" if interval is None else " – ".join(printed(name, end) for end in interval)


def group_of(example: TaskExample, number: int) -> int:
    """Examples of one group are resampled together: questions about one text; others are alone."""
    if isinstance(example, AnswerExample | ChoiceExample) and example.context:
        return -1 - zlib.crc32(example.context.encode("utf-8", "surrogatepass"))
    return number


def _groups(examples: _Examples) -> Int[np.ndarray, " examples"]:
    """The number of each example's group, from 0."""
    names = [group_of(example, number) for number, example in enumerate(examples)]
    return np.unique(names, return_inverse=True)[1]


def _measures(task: Task, examples: _Examples, predictions: _Predictions) -> _Measures:
    """The task's scores in its order; where a question may have no answer, also those of either
    half."""
    if len(examples) != len(predictions):
        raise ConfigError(
            f"scores need a prediction for each example; got {len(predictions)} for "
            f"{len(examples)} examples"
        )
    if not examples:
        raise DataError(f"{task.name} has no examples to score")
    known = _MEASURES[task.head](task, examples, predictions)
    unknown = [name for name in task.scores if name not in known]
    if unknown:
        raise ConfigError(
            f"{task.kind} has no score {shorten(unknown[0])}; known: {', '.join(known)}"
        )
    halves = [name for name in known if name.startswith(("has_answer_", "no_answer_"))]
    return {name: known[name] for name in dict.fromkeys([*task.scores, *halves])}


def _label_measures(task: Task, examples: _Examples, predictions: _Predictions) -> _Measures:
    numbers = {label: number for number, label in enumerate(task.labels)}
    true, predicted = np.zeros((2, len(examples)), np.int64)
    pairs = zip(only(examples, TextExample), only(predictions, LabelPrediction), strict=True)
    for row, (example, prediction) in enumerate(pairs):
        label = example.truth()
        if label not in numbers:
            raise _unknown_label(task, example, label)
        true[row], predicted[row] = numbers[str(label)], numbers[prediction.label]

    def over(score: Callable[[LabelCounts], Scores]) -> _Measure:
        return lambda weights: score(LabelCounts.of(true, predicted, weights, len(task.labels)))

    measures: dict[str, _Measure] = {
        "accuracy": _proportion(true == predicted),
        "macro_f1": over(LabelCounts.macro_f1),
        "matthews": over(LabelCounts.matthews),
    }
    return measures | ({"f1": over(LabelCounts.f1)} if len(task.labels) == 2 else {})


def _multilabel_measures(task: Task, examples: _Examples, predictions: _Predictions) -> _Measures:
    numbers = {label: number for number, label in enumerate(task.labels)}
    true, predicted = np.zeros((2, len(examples), len(numbers)), bool)
    pairs = zip(only(examples, TextExample), only(predictions, MultiLabelPrediction), strict=True)
    for row, (example, prediction) in enumerate(pairs):
        for label in example.labels():
            if label not in numbers:
                raise _unknown_label(task, example, label)
            true[row, numbers[label]] = True
        predicted[row, [numbers[label] for label in prediction.labels]] = True

    def over(score: Callable[[LabelCounts], Scores]) -> _Measure:
        return lambda weights: score(LabelCounts.of_sets(true, predicted, weights))

    return {
        "micro_f1": over(LabelCounts.micro_f1),
        "macro_f1": over(LabelCounts.multilabel_macro_f1),
        "subset_accuracy": _proportion((true == predicted).all(1)),
    }


def _unknown_label(task: Task, example: TextExample, label: object) -> DataError:
    return DataError(
        f"{example.where or example.key}: {shorten(label)} is no label of {task.name}; known: "
        f"{list_names(task.labels, limit=10)}"
    )


def _number_measures(task: Task, examples: _Examples, predictions: _Predictions) -> _Measures:
    true = np.array([example.number() for example in only(examples, TextExample)])
    predicted = np.array([each.value for each in only(predictions, NumberPrediction)])
    return {
        "pearson": lambda weights: metrics.pearson(true, predicted, weights),
        "spearman": lambda weights: metrics.spearman(true, predicted, weights),
        "mean_squared_error": lambda weights: metrics.mean_squared_error(true, predicted, weights),
    }


def _choice_measures(task: Task, examples: _Examples, predictions: _Predictions) -> _Measures:
    pairs = zip(only(examples, ChoiceExample), only(predictions, ChoicePrediction), strict=True)
    correct = np.array([guess.index == example.truth() for example, guess in pairs])
    return {"accuracy": _proportion(correct)}


def _answer_measures(task: Task, examples: _Examples, predictions: _Predictions) -> _Measures:
    spans = [prediction.best for prediction in only(predictions, SpanPrediction)]
    texts = [span.text if span else "" for span in spans]
    exact, f1, answerable = answer_scores(
        only(examples, AnswerExample), texts, has_null=task.has_null
    )

    def over(values: np.ndarray, counted: np.ndarray) -> _Measure:
        return lambda weights: mean(values, weights * counted)

    everything = np.ones(len(texts))
    measures: dict[str, _Measure] = {}
    halves = {"": everything}
    if task.has_null:
        halves |= {"has_answer_": answerable, "no_answer_": 1 - answerable}
    for half, counted in halves.items():
        measures[f"{half}exact"] = _Proportion(correct=exact, counted=counted)
        measures[f"{half}f1"] = over(f1, counted)
    return measures


def _tag_measures(task: Task, examples: _Examples, predictions: _Predictions) -> _Measures:
    pairs = zip(only(examples, TagExample), only(predictions, TagPrediction), strict=True)
    counts = [TagCounts.of(example.truth(), prediction.tags) for example, prediction in pairs]
    correct, true, predicted, correct_words, words = np.array(counts, float).T
    return {
        "f1": lambda weights: divide(2 * weights @ correct, weights @ (true + predicted)),
        "precision": lambda weights: divide(weights @ correct, weights @ predicted),
        "recall": lambda weights: divide(weights @ correct, weights @ true),
        "accuracy": lambda weights: divide(weights @ correct_words, weights @ words),
    }


_MEASURES: Mapping[str, Callable[[Task, _Examples, _Predictions], _Measures]] = {
    "classify": _label_measures,
    "multilabel": _multilabel_measures,
    "regress": _number_measures,
    "choose": _choice_measures,
    "span": _answer_measures,
    "joint_span": _answer_measures,
    "tag": _tag_measures,
}


def _proportion(correct: Bool[np.ndarray, " examples"]) -> _Proportion:
    """Of all examples."""
    return _Proportion(correct=correct.astype(float), counted=np.ones(len(correct)))


def _resamples(
    draw: np.random.Generator, rows: int, groups: Int[np.ndarray, " examples"]
) -> Weights:
    """How often each example is drawn when as many groups are drawn as there are."""
    size = int(groups.max()) + 1
    drawn = [np.bincount(draw.integers(0, size, size), minlength=size)[groups] for _ in range(rows)]
    return np.stack(drawn).astype(np.float64)


def _bootstrap(
    measures: _Measures,
    examples: _Examples,
    samples: int,
    *,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, tuple[float, float]]:
    """By name the middle `level` of a measure over resamples of the examples."""
    if samples < 1 or not 0 < level < 1:
        raise ConfigError(
            f"a bootstrap takes samples from 1 and a level between 0 and 1; got {samples} and "
            f"{level}"
        )
    values: dict[str, list[np.ndarray]] = {name: [] for name in measures}
    draw, groups = np.random.default_rng(seed), _groups(examples)
    rows = max(CELLS // len(examples), 1)
    for start in range(0, samples, rows):
        weights = _resamples(draw, min(rows, samples - start), groups)
        for name, measure in measures.items():
            values[name].append(measure(weights))
    edges = [(1 - level) / 2, (1 + level) / 2]
    return {name: _interval(np.concatenate(chunks), edges) for name, chunks in values.items()}


def _interval(values: Float[np.ndarray, " samples"], edges: list[float]) -> tuple[float, float]:
    """Quantiles of the resamples in which the score is defined; 0 if there is none."""
    defined = values[np.isfinite(values)]
    low, high = np.quantile(defined, edges) if len(defined) else (0.0, 0.0)
    return float(low), float(high)
