"""Everything that is said of a set of predictions: scores with intervals, scores by slice, the
worst examples."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from litebert.tasks.examples import (
    AnswerExample,
    ChoiceExample,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.tasks.predictions import Prediction
from litebert.tasks.scores.score import SliceScores, bootstrap, by_slice, score
from litebert.tasks.scores.worst import Wrong, worst
from litebert.tasks.task import Task

LEVEL = 0.95
MAX_LABELS = 20
"""Labels up to which each is a slice."""
_ASKS = re.compile(r"\b(who|whom|whose|what|when|where|why|which|how)\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a model is worth on some examples."""

    task: Task
    num_examples: int
    scores: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    """Of LEVEL, by bootstrap over the examples."""
    slices: Mapping[str, list[SliceScores]]
    """By what they are told apart by: the file's own slice (a genre, a title), the truth, the
    length, what is asked."""
    worst: list[Wrong]

    def to_dict(self) -> dict[str, Any]:
        """For --json: numbers and keys, no texts."""
        return {
            "task": self.task.name,
            "num_examples": self.num_examples,
            "scores": self.scores,
            "intervals": {name: list(interval) for name, interval in self.intervals.items()},
            "slices": {
                by: {
                    part.name: {"num_examples": part.num_examples, "scores": part.scores}
                    for part in parts
                }
                for by, parts in self.slices.items()
            },
            "worst": [
                {
                    "key": each.example.key,
                    "weight": each.weight,
                    "true": each.true,
                    "guessed": each.guessed,
                }
                for each in self.worst
            ],
        }


def evaluate(
    task: Task,
    examples: Sequence[TaskExample],
    predictions: Sequence[Prediction],
    *,
    samples: int = 1000,
    count: int = 20,
) -> Evaluation:
    """Score predictions in every way; `samples` resamples for the intervals, `count` of the worst
    examples."""
    return Evaluation(
        task=task,
        num_examples=len(examples),
        scores=score(task, examples, predictions),
        intervals=bootstrap(task, examples, predictions, samples=samples, level=LEVEL),
        slices={by: parts for by, parts in _sliced(task, examples, predictions).items() if parts},
        worst=worst(task, examples, predictions, count=count),
    )


def is_labelled(examples: Sequence[TaskExample]) -> bool:
    """Whether the truth is known of every example."""
    return not unlabelled(examples)


def unlabelled(examples: Sequence[TaskExample]) -> list[TaskExample]:
    """Those whose truth is not known."""
    return [example for example in examples if _truth(example) is None]


def text_of(example: TaskExample) -> str:
    """All that is read to answer."""
    match example:
        case TextExample():
            return example.first if example.second is None else f"{example.first} {example.second}"
        case ChoiceExample() | AnswerExample():
            return f"{example.context} {example.question}"
        case TagExample():
            return " ".join(example.words)


def _sliced(
    task: Task, examples: Sequence[TaskExample], predictions: Sequence[Prediction]
) -> dict[str, list[SliceScores]]:
    def scored(slice_of: Callable[[TaskExample], str], task: Task = task) -> list[SliceScores]:
        return by_slice(task, examples, predictions, slice_of=slice_of)

    found = {"slice": scored(lambda example: example.slice or "(none)")}
    if task.kind in ("classify", "pair") and len(task.labels) <= MAX_LABELS:
        # of one label alone only the share that is right says something
        found["truth"] = scored(
            lambda example: str(_truth(example)), replace(task, scores=("accuracy",))
        )
    if task.kind in ("choose", "answer"):
        found["question"] = scored(_asked)
    order = {"up to": 0, "over": 2}
    return found | {
        "length": sorted(
            scored(_lengths(examples)), key=lambda part: order.get(part.name.rsplit(" ", 2)[0], 1)
        )
    }


def _truth(example: TaskExample) -> object:
    match example:
        case AnswerExample():
            return example.answers
        case TagExample():
            return example.tags
        case _:
            return example.label


def _asked(example: TaskExample) -> str:
    """The first word that asks."""
    found = (
        _ASKS.search(example.question)
        if isinstance(example, ChoiceExample | AnswerExample)
        else None
    )
    return found[0].lower() if found else "other"


def _lengths(examples: Sequence[TaskExample]) -> Callable[[TaskExample], str]:
    """Short, middle or long: thirds by the number of words."""
    sizes = [len(text_of(example).split()) for example in examples]
    low, high = (int(edge) for edge in np.quantile(sizes, [1 / 3, 2 / 3]))

    def third(example: TaskExample) -> str:
        size = len(text_of(example).split())
        return (
            f"up to {low} words"
            if size <= low
            else f"{low + 1} to {high} words"
            if size <= high
            else f"over {high} words"
        )

    return third
