"""What leaving early is worth on labelled examples: a model with exits, examples and rules in; for
each rule its score, its mean depth and its measured time beside those of all layers, out.

Time is that of the whole prediction, texts in and predictions out, on this machine with this
engine; the full depth is timed in the same way, first and last, and the less counts.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from litebert.errors import ConfigError
from litebert.infer.exits import check_exits, make_rule
from litebert.infer.predictor import Predictor
from litebert.tasks.decode.exits import CRITERIA, ExitRule, grids
from litebert.tasks.examples import TaskExample
from litebert.tasks.predictions import (
    LabelPrediction,
    MultiLabelPrediction,
    NumberPrediction,
    Prediction,
)
from litebert.tasks.scores.score import bootstrap_loss, intervals, score
from litebert.tasks.task import Task

Predict = Callable[[Sequence[TaskExample]], Sequence[Prediction]]
Interval = tuple[float, float]
_NORMAL_95 = 1.96
_NEVER = ExitRule(criterion="patience", threshold=1e6)
"""Reads every exit, and lets no row leave."""


@dataclass(frozen=True, kw_only=True)
class ExitScore:
    """One rule on one split."""

    criterion: str
    threshold: float
    score: float
    """The task's first."""
    score_interval: Interval | None
    lost: float
    """How much lower the score is than at the full depth."""
    lost_interval: Interval
    changed: float
    """Rate of answers that differ from the full depth's."""
    mean_depth: float
    mean_depth_interval: Interval
    layers_saved: float
    """Layer applications of the full depth, divided by those that were computed."""
    layers_saved_interval: Interval
    seconds: float
    """For all examples."""
    times_faster: float
    """Than the full depth."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class ExitScores:
    """The full depth, and rules beside it."""

    score_name: str
    layers: int
    num_examples: int
    score: float
    seconds: float
    rows: tuple[ExitScore, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def chosen_rules(predictor: Predictor, criterion: str, threshold: float | None) -> list[ExitRule]:
    """The rule of a criterion; of "all" every calibrated one."""
    config, card = predictor.engine.config, predictor.card
    if criterion != "all":
        return [make_rule(config, card, criterion, threshold)]
    if threshold is not None:
        raise ConfigError(
            f"a threshold is of one criterion, and --exit all names them all; got {threshold}"
        )
    check_exits(config)
    names = [name for name in CRITERIA if card is not None and name in card.exits]
    return [make_rule(config, card, name, None) for name in names]


def curve_rules(predictor: Predictor) -> list[ExitRule]:
    """Of every criterion all the thresholds that calibration tries."""
    config, card = predictor.engine.config, predictor.card
    (head,) = (head.kind for head in config.heads if head.exits != "none")
    return [
        make_rule(config, card, criterion, threshold)
        for criterion, thresholds in grids(head, len(config.encoder.plan())).items()
        for threshold in thresholds
    ]


def score_exits(
    predictor: Predictor,
    task: Task,
    examples: Sequence[TaskExample],
    rules: Sequence[ExitRule],
    *,
    predict: Predict,
    samples: int = 1000,
) -> ExitScores:
    """`predict` computes with the predictor's engine, and may give labels the task's names."""
    name, layers = task.scores[0], len(predictor.engine.config.encoder.plan())
    before = predictor.engine.exit_rule

    def run(rule: ExitRule | None) -> tuple[Sequence[Prediction], float]:
        predictor.engine.exit_rule = rule
        began = time.perf_counter()
        predictions = predict(examples)
        return predictions, time.perf_counter() - began

    try:
        run(None)  # graphs are loaded
        if rules:
            run(_NEVER)  # those of the exits too
        full, first = run(None)
        full_score = score(task, examples, full)[name]
        rows = [
            _row(task, examples, full, full_score, layers, rule, *run(rule), samples)
            for rule in rules
        ]
        seconds = min(first, run(None)[1])
    finally:
        predictor.engine.exit_rule = before
    return ExitScores(
        score_name=name,
        layers=layers,
        num_examples=len(examples),
        score=full_score,
        seconds=seconds,
        rows=tuple(replace(row, times_faster=seconds / row.seconds) for row in rows),
    )


def _row(
    task: Task,
    examples: Sequence[TaskExample],
    full: Sequence[Prediction],
    full_score: float,
    layers: int,
    rule: ExitRule,
    predictions: Sequence[Prediction],
    seconds: float,
    samples: int,
) -> ExitScore:
    name = task.scores[0]
    depths = np.array([_depth(each) for each in predictions], np.float64)
    mean = float(depths.mean())
    spread = float(depths.std(ddof=1)) if len(depths) > 1 else 0.0
    half_width = _NORMAL_95 * spread / len(depths) ** 0.5
    low, high = max(mean - half_width, 1.0), min(mean + half_width, float(layers))
    reached = score(task, examples, predictions)[name]
    changed = [not _same(here, there, rule) for here, there in zip(predictions, full, strict=True)]
    ends = bootstrap_loss(task, examples, full, predictions, samples=samples)
    return ExitScore(
        criterion=rule.criterion,
        threshold=rule.threshold,
        score=reached,
        score_interval=intervals(task, examples, predictions, samples=samples).get(name),
        lost=full_score - reached,
        lost_interval=ends,
        changed=float(np.mean(changed)),
        mean_depth=mean,
        mean_depth_interval=(low, high),
        layers_saved=layers / mean,
        layers_saved_interval=(layers / high, layers / low),
        seconds=seconds,
        times_faster=1.0,
    )


def curves(scores: ExitScores) -> dict[str, Any]:
    """For the report: by criterion its points, one for rules that let all rows leave alike."""
    by_criterion: dict[str, dict[tuple[float, float], dict[str, float]]] = {}
    for row in scores.rows:
        point = {
            "threshold": row.threshold,
            "mean_depth": row.mean_depth,
            "score": row.score,
            "seconds": row.seconds,
        }
        points = by_criterion.setdefault(row.criterion, {})
        points.setdefault((row.mean_depth, row.score), point)
    facts = replace(scores, rows=()).to_dict()
    del facts["rows"]
    return facts | {"curves": {name: list(each.values()) for name, each in by_criterion.items()}}


def _depth(prediction: Prediction) -> int:
    assert isinstance(prediction, LabelPrediction | MultiLabelPrediction | NumberPrediction)
    assert prediction.depth is not None
    return prediction.depth


def _same(here: Prediction, there: Prediction, rule: ExitRule) -> bool:
    if isinstance(here, LabelPrediction) and isinstance(there, LabelPrediction):
        return here.label == there.label
    if isinstance(here, MultiLabelPrediction) and isinstance(there, MultiLabelPrediction):
        return here.labels == there.labels
    assert isinstance(here, NumberPrediction)
    assert isinstance(there, NumberPrediction)
    return abs(here.value - there.value) <= rule.tolerance
