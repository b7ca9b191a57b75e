"""Where a model errs most: examples and predictions in; the most confidently wrong of them out, as
a person reads them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from litebert.tasks.examples import (
    AnswerExample,
    ChoiceExample,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    NumberPrediction,
    Prediction,
    SpanPrediction,
    TagPrediction,
)
from litebert.tasks.scores import tags
from litebert.tasks.scores.measures import answer_scores, truth
from litebert.tasks.task import Task

NO_ANSWER = "(no answer)"


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """An example that was not answered rightly."""

    number: int
    """Its place among the examples, from 0."""
    example: TaskExample
    weight: float
    """How wrong: the confidence in the wrong answer, less where it is partly right; for numbers the
    distance."""
    true: str
    guessed: str


def worst(
    task: Task,
    examples: Sequence[TaskExample],
    predictions: Sequence[Prediction],
    *,
    count: int = 20,
) -> list[Wrong]:
    """The `count` examples that are furthest off, the worst first; none that is right."""
    weights = [
        how_wrong(task, each, said) for each, said in zip(examples, predictions, strict=True)
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
            true=true_text(examples[number]),
            guessed=guessed_text(examples[number], predictions[number]),
        )
        for number in order[:count]
    ]


def how_wrong(task: Task, example: TaskExample, prediction: Prediction) -> float:
    """0 for what is right; else up to 1, more for more confidence in it; for numbers the distance
    from the truth."""
    match example, prediction:
        case TextExample(label=label), LabelPrediction():
            return (
                0.0
                if prediction.label == truth(example, label)
                else prediction.probabilities[prediction.label]
            )
        case TextExample(label=label), NumberPrediction():
            return abs(
                prediction.value - float(truth(example, None if label is None else float(label)))
            )
        case ChoiceExample(label=label), ChoicePrediction():
            return (
                0.0
                if prediction.index == truth(example, label)
                else prediction.probabilities[prediction.index]
            )
        case AnswerExample(), SpanPrediction():
            best = prediction.best
            _, f1, _ = answer_scores([example], [best.text if best else ""], has_null=task.has_null)
            return (1 - float(f1[0])) * _sure(prediction)
        case TagExample(tags=known), TagPrediction():
            said = zip(
                truth(example, known), prediction.tags, prediction.probabilities, strict=True
            )
            return sum(chance for true, guess, chance in said if true != guess)
    raise AssertionError(
        f"{type(prediction).__name__} is no prediction of a {type(example).__name__}"
    )


def true_text(example: TaskExample) -> str:
    """What is true of an example."""
    match example:
        case TextExample(label=label):
            return f"{label:g}" if isinstance(label, float) else str(label)
        case ChoiceExample(label=label, options=options):
            return _option(truth(example, label), options)
        case AnswerExample(answers=answers):
            return (
                " / ".join(dict.fromkeys(answer.text for answer in truth(example, answers)))
                or NO_ANSWER
            )
        case TagExample(tags=known, words=words):
            return _entities(truth(example, known), words)
    raise AssertionError


def guessed_text(example: TaskExample, prediction: Prediction) -> str:
    """What was said of it."""
    match example, prediction:
        case _, LabelPrediction():
            return f"{prediction.label} ({prediction.probabilities[prediction.label]:.0%})"
        case _, NumberPrediction():
            return f"{prediction.value:.3g}"
        case ChoiceExample(), ChoicePrediction():
            return f"{_option(prediction.index, example.options)} ({prediction.probabilities[prediction.index]:.0%})"
        case _, SpanPrediction():
            return f"{prediction.best.text if prediction.best else NO_ANSWER} ({_sure(prediction):.0%})"
        case TagExample(), TagPrediction():
            return _entities(prediction.tags, example.words)
    raise AssertionError


def _sure(prediction: SpanPrediction) -> float:
    """How sure it is: of the span, and of there being an answer or none where there may be none."""
    threshold = prediction.null_threshold
    answerable = (
        1.0
        if threshold is None
        else 1 / (1 + math.exp(min(prediction.null_score - threshold, 700)))
    )
    return (
        answerable * min(math.exp(prediction.best.score), 1.0)
        if prediction.best
        else 1 - answerable
    )


def _option(index: int, options: Sequence[str]) -> str:
    return (
        f"{chr(ord('A') + index)}: {options[index]}"
        if index < 26
        else f"{index + 1}: {options[index]}"
    )


def _entities(said: Sequence[str], words: Sequence[str]) -> str:
    found = sorted(tags.entities(said), key=lambda entity: entity[1])
    return (
        "; ".join(f"{' '.join(words[start:stop])} [{name}]" for name, start, stop in found)
        or "(none)"
    )
