"""Laws of the null threshold: no other threshold is better, ties stay together, perfect predictions
become perfect."""

import numpy as np
import pytest

from litebert.errors import DataError
from litebert.tasks.examples import Answer, AnswerExample
from litebert.tasks.predictions import Span, SpanPrediction
from litebert.tasks.scores.answers import at_threshold, best_threshold
from litebert.tasks.scores.score import score
from tests.helpers.predictions import TASKS

TASK = TASKS["answer or none"]


def question(answer: str = "") -> AnswerExample:
    return AnswerExample(
        key="q", question="?", context="", answers=(Answer(text=answer, start=0),) if answer else ()
    )


def said(text: str, null_score: float) -> SpanPrediction:
    return SpanPrediction(
        spans=(Span(text=text, start=0, end=1, score=0.0),), null_score=null_score
    )


def f1_at(
    threshold: float, examples: list[AnswerExample], predictions: list[SpanPrediction]
) -> float:
    return score(TASK, examples, at_threshold(predictions, threshold))["f1"]


@pytest.mark.parametrize("levels", [4, 1000])
@pytest.mark.parametrize("seed", range(10))
def test_no_threshold_is_better(seed: int, levels: int) -> None:
    """Brute force over every threshold that makes a difference; with few levels, many null scores
    are equal."""
    draw = np.random.default_rng((seed, levels))
    examples = [
        question(str(draw.choice(["", "red fox", "blue sea", "old red fox"]))) for _ in range(40)
    ]
    predictions = [
        said(str(draw.choice(["red fox", "sea", "a"])), float(draw.integers(levels)) / 7)
        for _ in examples
    ]
    nulls = [prediction.null_score for prediction in predictions]
    best = max(f1_at(each, examples, predictions) for each in [min(nulls) - 1, *nulls])
    assert f1_at(best_threshold(examples, predictions), examples, predictions) == pytest.approx(
        best, abs=1e-12
    )


def test_perfect_predictions_score_100() -> None:
    examples = [question("fox"), question(), question("sea"), question()]
    predictions = [said("fox", -1), said("fox", 2), said("sea", 0.5), said("sea", 1)]
    threshold = best_threshold(examples, predictions)
    assert threshold == 0.75  # the middle of the gap
    assert score(TASK, examples, at_threshold(predictions, threshold))["exact"] == 1


@pytest.mark.parametrize(("answer", "text"), [("fox", "fox"), ("", "fox"), ("fox", "sea")])
def test_all_or_none(answer: str, text: str) -> None:
    """Where every question has an answer, and is answered rightly, all are answered; where none is
    right, none need be."""
    examples, predictions = (
        [question(answer)] * 3,
        [said(text, null) for null in (1e300, -5.0, 0.1)],
    )
    best = at_threshold(predictions, best_threshold(examples, predictions))
    assert [each.best is None for each in best] == [answer != text] * 3


def test_neighboring_floats_are_told_apart() -> None:
    """The middle between them is one of them."""
    low = 0.1
    high = float(np.nextafter(low, 1))
    examples, predictions = [question("fox"), question()], [said("fox", low), said("fox", high)]
    assert f1_at(best_threshold(examples, predictions), examples, predictions) == 1


def test_a_context_without_a_word_has_no_answer() -> None:
    """Its null score is infinite; the threshold is not."""
    empty = SpanPrediction(spans=(), null_score=float("inf"))
    examples, predictions = (
        [question("fox"), question("sea"), question()],
        [said("fox", 1.5), empty, empty],
    )
    assert best_threshold(examples, predictions) == 1.5


def test_what_cannot_be_searched_is_said() -> None:
    with pytest.raises(DataError, match="at least one question"):
        best_threshold([], [])
    with pytest.raises(DataError, match="the null score of question q is not a number"):
        best_threshold([question()], [said("fox", float("nan"))])
