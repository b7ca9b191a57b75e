"""Early exit at the end of a run: logits of all depths in; calibrated thresholds, and what they are
worth on dev, out."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from litebert.tasks.decode.exits import (
    ExitRule,
    at_depths,
    calibrate,
    exit_depths,
    grids,
    tolerance_of,
)
from litebert.tasks.heads.heads import decoded
from litebert.tasks.scores.score import bootstrap_loss, score
from litebert.tasks.task import TaskCard
from litebert.train.finetune.prepare import EncodedSplit

_DepthLogits = Float[np.ndarray, "depths units outputs"]


def calibrate_exits(card: TaskCard, logits: _DepthLogits) -> TaskCard:
    """The card with the loosest threshold of each criterion that keeps the answers on texts kept
    aside, and the tolerance of numbers, which a threshold of one's own needs too."""
    head = card.task.head
    chosen = calibrate(head, logits, label_threshold=card.label_threshold)
    return replace(
        card,
        exits={name: asdict(each) for name, each in chosen.items()},
        exit_tolerance=tolerance_of(head, logits[-1]),
    )


def describe_exits(card: TaskCard, dev: EncodedSplit, logits: _DepthLogits) -> dict[str, Any]:
    """For result.json: the scores on dev of each depth, and of each calibrated criterion its mean
    depth, its first score and how much of it is lost, with a 95 % interval."""
    task, examples = card.task, dev.examples
    by_depth = [decoded(card, dev.inputs, examples, each) for each in logits]
    full = score(task, examples, by_depth[-1])[task.scores[0]]
    exits = {}
    for name, numbers in card.exits.items():
        rule = ExitRule(
            criterion=name,
            threshold=numbers["threshold"],
            tolerance=numbers["tolerance"],
            label_threshold=card.label_threshold,
        )
        depths = exit_depths(rule, task.head, logits)
        early = decoded(card, dev.inputs, examples, at_depths(logits, depths))
        reached = score(task, examples, early)[task.scores[0]]
        low, high = bootstrap_loss(task, examples, by_depth[-1], early)
        exits[name] = dict(numbers) | {
            "dev_mean_depth": float(depths.mean()),
            "dev_score": reached,
            "dev_lost": full - reached,
            "dev_lost_interval": [low, high],
        }
    return {
        "depth_scores": [score(task, examples, each) for each in by_depth],
        "exits": exits,
        "exit_curves": _curves(card, dev, logits),
    }


def _curves(
    card: TaskCard, dev: EncodedSplit, logits: _DepthLogits
) -> dict[str, list[dict[str, float]]]:
    """By criterion the mean depth on dev and the first score at every threshold of the list; one
    entry for thresholds at which all rows leave alike."""
    task, head = card.task, card.task.head
    tolerance = tolerance_of(head, logits[-1])
    curves: dict[str, list[dict[str, float]]] = {}
    for criterion, thresholds in grids(head, len(logits)).items():
        by_depths: dict[bytes, dict[str, float]] = {}
        for threshold in thresholds:
            rule = ExitRule(
                criterion=criterion,
                threshold=threshold,
                tolerance=tolerance,
                label_threshold=card.label_threshold,
            )
            depths = exit_depths(rule, head, logits)
            if depths.tobytes() in by_depths:
                continue
            early = decoded(card, dev.inputs, dev.examples, at_depths(logits, depths))
            by_depths[depths.tobytes()] = {
                "threshold": threshold,
                "mean_depth": float(depths.mean()),
                "score": score(task, dev.examples, early)[task.scores[0]],
            }
        curves[criterion] = list(by_depths.values())
    return curves
