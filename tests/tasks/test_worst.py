"""The worst examples are wrong, the most confident first, and read as a person would say them."""

from dataclasses import replace

import pytest

from litebert.tasks.examples import (
    Answer,
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
    Span,
    SpanPrediction,
    TagPrediction,
)
from litebert.tasks.scores.evaluation import Wrong, worst
from litebert.tasks.scores.score import score
from tests.helpers.predictions import TASKS, made


@pytest.mark.parametrize("kind", sorted(TASKS))
def test_the_worst_are_wrong_and_the_rest_is_right(kind: str) -> None:
    task, examples, predictions = made(kind, 40)
    actual = worst(task, examples, predictions, count=100)
    assert 0 < len(actual) < 40
    assert [each.weight for each in actual] == sorted(
        (each.weight for each in actual), reverse=True
    )
    assert all(examples[each.number] is each.example for each in actual)
    wrong = {each.number for each in actual}
    right = [number for number in range(40) if number not in wrong]
    alone = score(
        replace(task, scores=("exact",)) if "exact" in task.scores else task,
        *_chosen(examples, predictions, right),
    )
    assert next(iter(alone.values())) == pytest.approx(1)
    assert worst(task, examples, predictions, count=3) == actual[:3]


def _chosen(examples, predictions, numbers):  # type: ignore[no-untyped-def]
    return [examples[i] for i in numbers], [predictions[i] for i in numbers]


def wrong(example: TaskExample, prediction: Prediction, kind: str = "pair") -> Wrong:
    (found,) = worst(TASKS[kind], [example], [prediction])
    return found


def test_how_examples_read() -> None:
    text = TextExample(key="1", first="fine", label="good")
    bad = LabelPrediction(label="bad", probabilities={"good": 0.1, "bad": 0.9})
    assert (wrong(text, bad).true, wrong(text, bad).predicted) == ("good", "bad (90%)")
    number = wrong(replace(text, label=2.5), NumberPrediction(value=1.23456), "regress")
    assert (number.true, number.predicted) == ("2.5", "1.23")
    choice = ChoiceExample(key="1", context="", question="", options=("red", "blue"), label=1)
    chosen = wrong(choice, ChoicePrediction(index=0, probabilities=(0.75, 0.25)), "choose")
    assert (chosen.true, chosen.predicted) == ("B: blue", "A: red (75%)")
    tagged = TagExample(key="1", words=("Ada", "Lovelace", "wrote"), tags=("B-PER", "I-PER", "O"))
    none = wrong(tagged, TagPrediction(tags=("O",) * 3, probabilities=(1.0,) * 3), "tag")
    assert (none.true, none.predicted) == ("Ada Lovelace [PER]", "(none)")


def test_how_answers_read() -> None:
    question = AnswerExample(
        key="1",
        question="?",
        context="c b",
        answers=(Answer(text="b", start=2), Answer(text="b", start=2)),
    )
    none = replace(question, answers=())
    span = SpanPrediction(
        spans=(Span(text="c", start=0, end=1, score=0.0),), null_score=1.0, null_threshold=None
    )
    assert (wrong(question, span, "answer").true, wrong(none, span, "answer").true) == (
        "b",
        "(no answer)",
    )
    assert wrong(question, span, "answer").predicted == "c (100%)"
    assert wrong(question, replace(span, null_threshold=1.0), "answer").predicted == "c (50%)"
    silent = replace(span, null_threshold=-800.0)
    assert wrong(question, silent, "answer").predicted == "(no answer) (100%)"


def test_confidence_and_distance_weigh() -> None:
    """A number weighs its distance; half an answer half; each wrong word of a tagging its
    probability."""
    number = TextExample(key="1", first="", label=2.0)
    assert wrong(number, NumberPrediction(value=3.5), "regress").weight == 1.5
    question = AnswerExample(
        key="1", question="?", context="", answers=(Answer(text="red fox ran", start=0),)
    )
    span = SpanPrediction(spans=(Span(text="fox", start=0, end=3, score=0.0),), null_score=0.0)
    assert wrong(question, span, "answer").weight == pytest.approx(0.5)
    tagged = TagExample(key="1", words=("a", "b", "c"), tags=("O", "O", "O"))
    guess = TagPrediction(tags=("B-X", "O", "B-X"), probabilities=(0.6, 0.9, 0.7))
    assert wrong(tagged, guess, "tag").weight == pytest.approx(1.3)
