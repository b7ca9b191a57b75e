"""Examples and predictions in; each score as a function of weights out, for score, bootstrap and
slices alike.

Texts are compared once, here; what is left for every resample is sums.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, cast

import numpy as np

from litebert.errors import ConfigError, DataError
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
from litebert.tasks.scores import Scores, Weights, answers, classes, divide, mean, numbers, tags
from litebert.tasks.task import Task

Measure = Callable[[Weights], Scores]
Measures = Mapping[str, Measure]
One = TypeVar("One")
Other = TypeVar("Other")


def measure(
    task: Task, examples: Sequence[TaskExample], predictions: Sequence[Prediction]
) -> dict[str, Measure]:
    """The task's scores in its order, and where a question may have no answer, those of either half
    as well."""
    if len(examples) != len(predictions):
        raise ConfigError(
            f"scores need a prediction for each example; got {len(predictions)} for "
            f"{len(examples)} examples"
        )
    if not examples:
        raise DataError(f"{task.name} has no examples to score")
    known = _MEASURES[task.kind](task, examples, predictions)
    unknown = [name for name in task.scores if name not in known]
    if unknown:
        raise ConfigError(f"{task.kind} has no score {unknown[0]!r}; known: {', '.join(known)}")
    halves = [name for name in known if name.startswith(("has_answer_", "no_answer_"))]
    return {name: known[name] for name in dict.fromkeys([*task.scores, *halves])}


def answer_scores(
    examples: Sequence[AnswerExample], guesses: Sequence[str], *, has_null: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each question: exact match and F1 of the guess, and whether it has an answer; "" guesses
    that it has none."""
    exact, f1, answerable = np.zeros((3, len(examples)))
    for number, (example, guess) in enumerate(zip(examples, guesses, strict=True)):
        right = answers.accepted(
            [answer.text for answer in truth(example, example.answers)], has_null=has_null
        )
        said = answers.normalize(guess)
        exact[number], f1[number] = answers.exact(said, right), answers.f1(said, right)
        answerable[number] = bool(example.answers)
    return exact, f1, answerable


def only(found: Sequence[object], kind: type[One]) -> list[One]:
    """The same, known to be all of one kind."""
    other = next((each for each in found if not isinstance(each, kind)), None)
    assert other is None, f"expected {kind.__name__}, got {other!r}"
    return cast(list[One], list(found))


def pairs(
    examples: Sequence[TaskExample],
    predictions: Sequence[Prediction],
    kind: type[One],
    said: type[Other],
) -> list[tuple[One, Other]]:
    """Examples beside predictions, all of one kind."""
    return list(zip(only(examples, kind), only(predictions, said), strict=True))


def truth(example: TaskExample, known: One | None) -> One:
    """What is true of an example; a DataError where the file does not say."""
    if known is None:
        place = example.where or f"example {example.key}"
        raise DataError(
            f"{place} has no label; scores need a split whose labels are known, such as dev"
        )
    return known


def _labels(
    task: Task, examples: Sequence[TaskExample], predictions: Sequence[Prediction]
) -> Measures:
    numbers_of = {label: number for number, label in enumerate(task.labels)}
    true, guessed = np.zeros((2, len(examples)), np.int64)
    for number, (example, prediction) in enumerate(
        pairs(examples, predictions, TextExample, LabelPrediction)
    ):
        label = truth(example, example.label)
        if label not in numbers_of:
            raise DataError(
                f"{example.where or example.key}: {label!r} is no label of {task.name}; known: "
                f"{_some(task.labels)}"
            )
        true[number], guessed[number] = numbers_of[str(label)], numbers_of[prediction.label]

    def over(score: Callable[[classes.Counts], Scores]) -> Measure:
        return lambda weights: score(classes.count(true, guessed, weights, len(task.labels)))

    found = {
        "accuracy": over(classes.accuracy),
        "macro_f1": over(classes.macro_f1),
        "matthews": over(classes.matthews),
    }
    return found | ({"f1": over(classes.f1)} if len(task.labels) == 2 else {})


def _numbers(
    task: Task, examples: Sequence[TaskExample], predictions: Sequence[Prediction]
) -> Measures:
    true, guessed = np.zeros((2, len(examples)))
    for number, (example, prediction) in enumerate(
        pairs(examples, predictions, TextExample, NumberPrediction)
    ):
        true[number] = truth(example, None if example.label is None else float(example.label))
        guessed[number] = prediction.value
    return {
        "pearson": lambda weights: numbers.pearson(true, guessed, weights),
        "spearman": lambda weights: numbers.spearman(true, guessed, weights),
        "mean_squared_error": lambda weights: numbers.mean_squared_error(true, guessed, weights),
    }


def _choices(
    task: Task, examples: Sequence[TaskExample], predictions: Sequence[Prediction]
) -> Measures:
    right = np.zeros(len(examples))
    for number, (example, prediction) in enumerate(
        pairs(examples, predictions, ChoiceExample, ChoicePrediction)
    ):
        right[number] = prediction.index == truth(example, example.label)
    return {"accuracy": lambda weights: mean(right, weights)}


def _answers(
    task: Task, examples: Sequence[TaskExample], predictions: Sequence[Prediction]
) -> Measures:
    both = pairs(examples, predictions, AnswerExample, SpanPrediction)
    guesses = [span.text if (span := prediction.best) else "" for _, prediction in both]
    exact, f1, answerable = answer_scores(
        [example for example, _ in both], guesses, has_null=task.has_null
    )

    def over(values: np.ndarray, part: np.ndarray) -> Measure:
        return lambda weights: mean(values, weights * part)

    everything = np.ones(len(both))
    found = {"exact": over(exact, everything), "f1": over(f1, everything)}
    if task.has_null:
        for half, part in (("has_answer", answerable), ("no_answer", 1 - answerable)):
            found |= {f"{half}_exact": over(exact, part), f"{half}_f1": over(f1, part)}
    return found


def _tags(
    task: Task, examples: Sequence[TaskExample], predictions: Sequence[Prediction]
) -> Measures:
    both = pairs(examples, predictions, TagExample, TagPrediction)
    counted = [
        tags.count(truth(example, example.tags), prediction.tags) for example, prediction in both
    ]
    right, true, guessed = (
        np.array([getattr(each, name) for each in counted], float)
        for name in ("right", "true", "guessed")
    )
    right_words, words = (
        np.array([getattr(each, name) for each in counted], float)
        for name in ("right_words", "words")
    )
    return {
        "f1": lambda weights: divide(2 * weights @ right, weights @ (true + guessed)),
        "precision": lambda weights: divide(weights @ right, weights @ guessed),
        "recall": lambda weights: divide(weights @ right, weights @ true),
        "accuracy": lambda weights: divide(weights @ right_words, weights @ words),
    }


def _some(labels: Sequence[str]) -> str:
    return ", ".join(labels[:10]) + (" …" if len(labels) > 10 else "")


_MEASURES = {
    "classify": _labels,
    "pair": _labels,
    "regress": _numbers,
    "choose": _choices,
    "answer": _answers,
    "tag": _tags,
}
