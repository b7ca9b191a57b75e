"""Everything that is reported about predictions: scores with intervals, scores by slice, and the
most confidently wrong examples."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

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
from litebert.tasks.scores.answers import answer_scores
from litebert.tasks.scores.calibration import Calibration
from litebert.tasks.scores.metrics import entities, entity_type
from litebert.tasks.scores.score import SliceScores, by_slice, intervals, score
from litebert.tasks.task import Task

_MAX_LABELS = 20
"""Labels up to which each is a slice."""
_MAX_CONFUSED = 100
"""Labels up to which they are counted against each other."""
_NO_ANSWER = "(no answer)"
_QUESTION_WORD = re.compile(r"\b(who|whom|whose|what|when|where|why|which|how)\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """An example whose prediction is wrong."""

    number: int
    """Its position among the examples, from 0."""
    example: TaskExample
    weight: float
    """How wrong: the confidence in the wrong prediction, less where it is partly right; for numbers
    the distance."""
    true: str
    predicted: str


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What a model is worth on some examples."""

    task: Task
    num_examples: int
    scores: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    """95 % confidence intervals of the scores that have one (scores/score.py)."""
    confusion: Mapping[str, Mapping[str, int]]
    """By true label, how often each label was predicted. Where an example may have several labels,
    by label its true and false positives and negatives; of tags, words by their type of entity
    (B-PER and I-PER are PER). Empty for other heads, and for more than 100 labels."""
    slices: Mapping[str, list[SliceScores]]
    """By kind of slice: the file's own (a genre, a title), the truth, the length, the question
    word."""
    worst: list[Wrong]
    calibration: Calibration | None = None
    """Of tasks with one label each: the expected calibration error and its reliability bins."""

    def to_dict(self) -> dict[str, Any]:
        """For --json: numbers and keys, no texts."""
        return {
            "task": self.task.name,
            "num_examples": self.num_examples,
            "scores": self.scores,
            "intervals": {name: list(interval) for name, interval in self.intervals.items()},
            **({"confusion": self.confusion} if self.confusion else {}),
            **({"calibration": asdict(self.calibration)} if self.calibration else {}),
            "slices": {
                by: {
                    each.name: {"num_examples": each.num_examples, "scores": each.scores}
                    for each in slices
                }
                for by, slices in self.slices.items()
            },
            "worst": [
                {
                    "key": each.example.key,
                    "weight": each.weight,
                    "true": each.true,
                    "guessed": each.predicted,
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
    slices = _slices(task, examples, predictions)
    return Evaluation(
        task=task,
        num_examples=len(examples),
        scores=score(task, examples, predictions),
        confusion=_confusion(task, examples, predictions),
        intervals=intervals(task, examples, predictions, samples=samples),
        slices={by: scores for by, scores in slices.items() if scores},
        worst=worst(task, examples, predictions, count=count),
        calibration=Calibration.of(examples, predictions),
    )


def _confusion(
    task: Task, examples: Sequence[TaskExample], predictions: Sequence[Prediction]
) -> dict[str, dict[str, int]]:
    if task.kind == "tag":
        return _confused_words(task, examples, predictions)
    if task.kind not in ("classify", "pair") or len(task.labels) > _MAX_CONFUSED:
        return {}
    pairs = zip(only(examples, TextExample), predictions, strict=True)
    if task.head == "multilabel":
        outcomes = {
            (True, True): "true_positive",
            (False, True): "false_positive",
            (True, False): "false_negative",
            (False, False): "true_negative",
        }
        counts = {label: dict.fromkeys(outcomes.values(), 0) for label in task.labels}
        for example, prediction in pairs:
            assert isinstance(prediction, MultiLabelPrediction)
            for label in task.labels:
                outcome = outcomes[label in example.labels(), label in prediction.labels]
                counts[label][outcome] += 1
        return counts
    counts = {label: dict.fromkeys(task.labels, 0) for label in task.labels}
    for example, prediction in pairs:
        assert isinstance(prediction, LabelPrediction)
        counts[str(example.truth())][prediction.label] += 1
    return counts


def _confused_words(
    task: Task, examples: Sequence[TaskExample], predictions: Sequence[Prediction]
) -> dict[str, dict[str, int]]:
    """Words by true and predicted type of entity, so that B-PER and I-PER are one."""
    types = list(dict.fromkeys(map(entity_type, task.labels)))
    if len(types) > _MAX_CONFUSED:
        return {}
    counts = {name: dict.fromkeys(types, 0) for name in types}
    for example, prediction in zip(only(examples, TagExample), predictions, strict=True):
        assert isinstance(prediction, TagPrediction)
        for true, predicted in zip(example.truth(), prediction.tags, strict=True):
            counts[entity_type(true)][entity_type(predicted)] += 1
    return counts


def worst(
    task: Task,
    examples: Sequence[TaskExample],
    predictions: Sequence[Prediction],
    *,
    count: int = 20,
) -> list[Wrong]:
    """The `count` most confidently wrong examples, the worst first; none that is right."""
    weights = [
        _how_wrong(task, example, prediction)
        for example, prediction in zip(examples, predictions, strict=True)
    ]
    order = sorted(
        (number for number, weight in enumerate(weights) if weight > 0),
        key=lambda number: -weights[number],
    )
    return [
        Wrong(
            number=number,
            example=examples[number],
            weight=weights[number],
            true=_true_text(examples[number]),
            predicted=_predicted_text(examples[number], predictions[number]),
        )
        for number in order[:count]
    ]


def _slices(
    task: Task, examples: Sequence[TaskExample], predictions: Sequence[Prediction]
) -> dict[str, list[SliceScores]]:
    def scored(slice_of: Callable[[TaskExample], str], task: Task = task) -> list[SliceScores]:
        return by_slice(task, examples, predictions, slice_of=slice_of)

    slices = {"slice": scored(lambda example: example.slice or "(none)")}
    if task.head == "multilabel":
        slices["truth"] = scored(_num_labels, replace(task, scores=("subset_accuracy",)))
    elif task.kind in ("classify", "pair") and len(task.labels) <= _MAX_LABELS:
        # within one label, accuracy is the only score with a meaning
        slices["truth"] = scored(
            lambda example: str(example.truth()), replace(task, scores=("accuracy",))
        )
    if task.kind in ("choose", "answer"):
        slices["question"] = scored(_question_word)
    order = {"up to": 0, "over": 2}
    return slices | {
        "length": sorted(
            scored(_lengths(examples)), key=lambda each: order.get(each.name.rsplit(" ", 2)[0], 1)
        )
    }


def _num_labels(example: TaskExample) -> str:
    assert isinstance(example, TextExample)
    count = len(example.labels())
    return f"{count} label{'' if count == 1 else 's'}"


def _question_word(example: TaskExample) -> str:
    """The first word that asks."""
    if not isinstance(example, ChoiceExample | AnswerExample):
        return "other"
    match = _QUESTION_WORD.search(example.question)
    return match[0].lower() if match else "other"


def _lengths(examples: Sequence[TaskExample]) -> Callable[[TaskExample], str]:
    """Short, middle or long: thirds by the number of words."""
    low, high = (int(edge) for edge in np.quantile(list(map(_num_words, examples)), [1 / 3, 2 / 3]))

    def third(example: TaskExample) -> str:
        size = _num_words(example)
        if size <= low:
            return f"up to {low} words"
        return f"{low + 1} to {high} words" if size <= high else f"over {high} words"

    return third


def _num_words(example: TaskExample) -> int:
    """Words of everything that is read."""
    match example:
        case TextExample():
            return len(f"{example.first} {example.second or ''}".split())
        case ChoiceExample() | AnswerExample():
            return len(f"{example.context} {example.question}".split())
        case TagExample():
            return len(" ".join(example.words).split())


def _how_wrong(task: Task, example: TaskExample, prediction: Prediction) -> float:
    """0 for what is right; else up to 1, more with more confidence; for numbers the distance."""
    match example, prediction:
        case TextExample(), LabelPrediction(label=label):
            return 0.0 if label == example.truth() else prediction.probabilities[label]
        case TextExample(), MultiLabelPrediction(labels=labels):
            wrong = set(labels) ^ set(example.labels())
            p = prediction.probabilities
            return max((p[each] if each in labels else 1 - p[each] for each in wrong), default=0.0)
        case TextExample(), NumberPrediction():
            return abs(prediction.value - example.number())
        case ChoiceExample(), ChoicePrediction(index=index):
            return 0.0 if index == example.truth() else prediction.probabilities[index]
        case AnswerExample(), SpanPrediction(best=best):
            _, f1, _ = answer_scores([example], [best.text if best else ""], has_null=task.has_null)
            return (1 - float(f1[0])) * _confidence(prediction)
        case TagExample(), TagPrediction():
            words = zip(example.truth(), prediction.tags, prediction.probabilities, strict=True)
            return sum((p for true, tag, p in words if true != tag), 0.0)
    raise AssertionError(
        f"{type(prediction).__name__} is no prediction of a {type(example).__name__}"
    )


def _true_text(example: TaskExample) -> str:
    match example:
        case TextExample(label=tuple(labels)):
            return ", ".join(labels) or "(none)"
        case TextExample(label=label):
            return f"{label:g}" if isinstance(label, float) else str(label)
        case ChoiceExample():
            return _option(example.truth(), example.options)
        case AnswerExample():
            texts = dict.fromkeys(answer.text for answer in example.truth())
            return " / ".join(texts) or _NO_ANSWER
        case TagExample():
            return _entities(example.truth(), example.words)


def _predicted_text(example: TaskExample, prediction: Prediction) -> str:
    match example, prediction:
        case _, LabelPrediction(label=label):
            return f"{label} ({prediction.probabilities[label]:.0%})"
        case _, MultiLabelPrediction(labels=labels):
            shown = (f"{label} ({prediction.probabilities[label]:.0%})" for label in labels)
            return ", ".join(shown) or "(none)"
        case _, NumberPrediction(value=value):
            return f"{value:.3g}"
        case ChoiceExample(), ChoicePrediction(index=index):
            return f"{_option(index, example.options)} ({prediction.probabilities[index]:.0%})"
        case _, SpanPrediction(best=best):
            return f"{best.text if best else _NO_ANSWER} ({_confidence(prediction):.0%})"
        case TagExample(), TagPrediction():
            return _entities(prediction.tags, example.words)
    raise AssertionError


def _confidence(prediction: SpanPrediction) -> float:
    """Probability of the span, times that of there being an answer where there may be none."""
    threshold, answerable = prediction.null_threshold, 1.0
    if threshold is not None:
        answerable = 1 / (1 + math.exp(min(prediction.null_score - threshold, 700)))
    if prediction.best is None:
        return 1 - answerable
    return answerable * min(math.exp(prediction.best.score), 1.0)


def _option(index: int, options: Sequence[str]) -> str:
    name = chr(ord("A") + index) if index < 26 else str(index + 1)
    return f"{name}: {options[index]}"


def _entities(tags: Sequence[str], words: Sequence[str]) -> str:
    spans = sorted(entities(tags), key=lambda entity: entity[1])
    texts = (f"{' '.join(words[start:stop])} [{name}]" for name, start, stop in spans)
    return "; ".join(texts) or "(none)"
