"""Laws of averaging: models alike change nothing, their order neither; each kind by hand."""

import pytest

from litebert.errors import ConfigError
from litebert.tasks.examples import only
from litebert.tasks.heads.heads import average
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    NumberPrediction,
    Span,
    SpanPrediction,
    TagPrediction,
)
from litebert.tasks.scores.score import score
from tests.helpers.predictions import TASKS, made, made_models


@pytest.mark.parametrize("kind", sorted(TASKS))
def test_models_that_agree_are_one(kind: str) -> None:
    task, examples, predictions = made(kind)
    assert average(task, [predictions]) == predictions
    thrice = average(task, [predictions] * 3)
    assert score(task, examples, thrice) == pytest.approx(score(task, examples, predictions))


@pytest.mark.parametrize("kind", sorted(TASKS))
def test_order_does_not_matter(kind: str) -> None:
    task, examples, said = made_models(kind, [0.6, 0.7, 0.8])
    first, last = average(task, said), average(task, said[::-1])
    assert score(task, examples, first) == pytest.approx(score(task, examples, last))


def test_probabilities_and_numbers_by_hand() -> None:
    """A confident model outvotes two that are not."""
    said = [
        [LabelPrediction(label=label, probabilities={"no": 1 - yes, "yes": yes})]
        for label, yes in (("no", 0.4), ("no", 0.4), ("yes", 1.0))
    ]
    both = only(average(TASKS["classify"], said), LabelPrediction)[0]
    assert (both.label, both.probabilities["yes"]) == ("yes", pytest.approx(0.6))
    numbers = average(
        TASKS["regress"], [[NumberPrediction(value=1.0)], [NumberPrediction(value=4.0)]]
    )
    assert numbers == [NumberPrediction(value=2.5)]
    options = [
        [ChoicePrediction(index=0, probabilities=(0.6, 0.4))],
        [ChoicePrediction(index=1, probabilities=(0.1, 0.9))],
    ]
    assert average(TASKS["choose"], options) == [
        ChoicePrediction(index=1, probabilities=(pytest.approx(0.35), pytest.approx(0.65)))
    ]
    tagged = [
        [TagPrediction(tags=("O", "B-X"), probabilities=(0.5, 0.5))],
        [TagPrediction(tags=("B-X", "B-X"), probabilities=(0.9, 0.7))],
        [TagPrediction(tags=("O", "O"), probabilities=(0.5, 0.5))],
    ]
    actual = only(average(TASKS["tag"], tagged), TagPrediction)[0]
    assert (actual.tags, actual.probabilities) == (
        ("O", "B-X"),
        (pytest.approx(1 / 3), pytest.approx(0.4)),
    )


def spans(
    *scores: tuple[int, float], null: float = 0.0, threshold: float | None = None
) -> list[SpanPrediction]:
    actual = tuple(
        Span(text=str(place), start=place, end=place + 1, score=score) for place, score in scores
    )
    return [SpanPrediction(spans=actual, null_score=null, null_threshold=threshold)]


def test_a_span_that_all_name_is_preferred() -> None:
    """Who does not name a span gives it the score of the last that it names."""
    both = only(
        average(TASKS["answer"], [spans((0, -0.1), (1, -1.0)), spans((2, -0.5), (1, -0.9))]),
        SpanPrediction,
    )[0]
    assert [(span.start, span.score) for span in both.spans] == [
        (0, pytest.approx(-0.5)),
        (2, pytest.approx(-0.75)),
    ]
    many = only(
        average(
            TASKS["answer"],
            [spans((0, -0.1), (1, -0.2), (3, -9.0)), spans((2, -0.1), (1, -0.2), (4, -9.0))],
        ),
        SpanPrediction,
    )[0]
    assert [span.start for span in many.spans] == [1, 0, 2]


def test_null_scores_count_from_their_own_threshold() -> None:
    """Models whose null scores have other units can be averaged."""
    task = TASKS["answer or none"]
    both = only(
        average(
            task,
            [spans((0, 0.0), null=3.0, threshold=2.0), spans((0, 0.0), null=-9.0, threshold=-7.0)],
        ),
        SpanPrediction,
    )[0]
    assert (both.null_score, both.null_threshold) == (-0.5, 0.0)
    assert both.best is not None
    always = only(average(TASKS["answer"], [spans((0, 0.0)), spans((0, 0.0))]), SpanPrediction)[0]
    assert always.null_threshold is None


def test_a_model_without_spans_does_not_vote() -> None:
    both = only(average(TASKS["answer"], [spans(), spans((0, -1.0))]), SpanPrediction)[0]
    assert [span.start for span in both.spans] == [0]
    assert only(average(TASKS["answer"], [spans(), spans()]), SpanPrediction)[0].best is None


def test_models_answer_the_same_examples() -> None:
    with pytest.raises(ConfigError, match=r"answered the same examples; got \[1, 0\]"):
        average(TASKS["answer"], [spans(), []])
    with pytest.raises(ConfigError, match=r"got \[\]"):
        average(TASKS["answer"], [])
