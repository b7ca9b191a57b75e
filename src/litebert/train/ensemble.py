"""Who belongs to an ensemble (ALBERT §4.9): what models say of dev in; those that together say it
best out.

Chosen greedily: the best model, then the one that helps most, and so on to all of them; the best
point of this path is the ensemble. Two models may be no better than one where seven are, so the
path is walked to its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from litebert.tasks.examples import TaskExample
from litebert.tasks.heads.heads import average
from litebert.tasks.predictions import Prediction
from litebert.tasks.scores.score import group_of, score
from litebert.tasks.task import Task

One = TypeVar("One")


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """Who was chosen, and what it is worth on the examples that it was chosen on."""

    members: tuple[int, ...]
    """Numbers of the models, in the order in which they came in."""
    steps: tuple[float, ...]
    """The task's first score after each."""
    singles: tuple[dict[str, float], ...]
    """Scores of every model alone."""
    together: dict[str, float]
    """Scores of the chosen ones."""
    everyone: dict[str, float]
    """Scores of all models together."""
    crossed: dict[str, float]
    """Scores of members chosen on one half of the examples, on the other half: choosing by a score
    flatters it, not this."""


def choose_on_dev(
    task: Task, examples: Sequence[TaskExample], predictions: Sequence[Sequence[Prediction]]
) -> Ensemble:
    """Choose the members of an ensemble by their score on these examples, and score it and
    each model alone."""
    members, steps = _greedy(task, examples, predictions)
    return Ensemble(
        members=members,
        steps=steps,
        singles=tuple(score(task, examples, each) for each in predictions),
        together=score(task, examples, average(task, [predictions[member] for member in members])),
        everyone=score(task, examples, average(task, predictions)),
        crossed=_crossed(task, examples, predictions),
    )


def _greedy(
    task: Task, examples: Sequence[TaskExample], predictions: Sequence[Sequence[Prediction]]
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Members and the score after each came in."""
    members: list[int] = []
    steps: list[float] = []
    while len(members) < len(predictions):
        rest = [number for number in range(len(predictions)) if number not in members]
        together = [
            average(task, [predictions[member] for member in (*members, number)]) for number in rest
        ]
        values = [score(task, examples, each)[task.scores[0]] for each in together]
        best = int(np.argmax(values))
        members.append(rest[best])
        steps.append(values[best])
    size = int(np.argmax(np.round(steps, 12))) + 1  # of equals the smallest
    return tuple(members[:size]), tuple(steps[:size])


def _crossed(
    task: Task, examples: Sequence[TaskExample], predictions: Sequence[Sequence[Prediction]]
) -> dict[str, float]:
    """Each half of the examples answered by who was chosen on the other; questions about one text
    stay together."""
    halves = np.array([group_of(example, number) & 1 for number, example in enumerate(examples)])
    crossed: list[Prediction] = list(predictions[0])
    for half in (0, 1):
        mine = np.flatnonzero(halves == half).tolist()
        other = np.flatnonzero(halves != half).tolist()
        members: tuple[int, ...] = (0,)
        if other:
            members, _ = _greedy(
                task, _some(examples, other), [_some(each, other) for each in predictions]
            )
        together = average(task, [_some(predictions[member], mine) for member in members])
        for index, each in zip(mine, together, strict=True):
            crossed[index] = each
    return score(task, examples, crossed)


def _some(items: Sequence[One], indices: Sequence[int]) -> list[One]:
    return [items[index] for index in indices]
