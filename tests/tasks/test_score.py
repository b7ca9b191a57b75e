"""Laws of scores: perfection is 1, order does not matter, slices add up, intervals hold what they
should."""

import math
from dataclasses import replace

import numpy as np
import pytest

from litebert.errors import ConfigError, DataError
from litebert.tasks.examples import AnswerExample, ChoiceExample, TaskExample, TextExample
from litebert.tasks.predictions import LabelPrediction, NumberPrediction, Prediction
from litebert.tasks.scores.score import LESS_IS_BETTER, bootstrap, by_slice, score
from tests.helpers.predictions import TASKS, made

KINDS = sorted(TASKS)


@pytest.mark.parametrize("kind", KINDS)
def test_perfect_predictions_are_perfect(kind: str) -> None:
    """Under the best score, every resample of it and every slice."""
    task, examples, predictions = made(kind, skill=1)
    best = {
        name: 0.0 if name in LESS_IS_BETTER else 1.0 for name in score(task, examples, predictions)
    }
    assert score(task, examples, predictions) == pytest.approx(best, abs=1e-12)
    for name, interval in bootstrap(task, examples, predictions, samples=50).items():
        assert interval == pytest.approx((best[name], best[name]), abs=1e-12)
    for part in by_slice(task, examples, predictions):
        assert part.scores == pytest.approx({name: best[name] for name in part.scores}, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_task_names_its_scores_in_its_order(kind: str) -> None:
    task, examples, predictions = made(kind)
    names = list(score(task, examples, predictions))
    assert names[: len(task.scores)] == list(task.scores)
    assert ("no_answer_f1" in names) == task.has_null
    assert (
        next(iter(score(replace(task, scores=task.scores[:1]), examples, predictions)))
        == task.scores[0]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_order_does_not_matter(kind: str) -> None:
    task, examples, predictions = made(kind)
    order = np.random.default_rng(3).permutation(len(examples))
    shuffled = score(task, [examples[i] for i in order], [predictions[i] for i in order])
    assert shuffled == pytest.approx(score(task, examples, predictions), abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_slice_scores_as_its_examples_alone(kind: str) -> None:
    task, examples, predictions = made(kind, 41)
    actual = by_slice(task, examples, predictions)
    assert [(each.name, each.num_examples) for each in actual] == [("even", 21), ("odd", 20)]
    for part, first in zip(actual, (0, 1), strict=True):
        assert part.scores == pytest.approx(
            score(task, examples[first::2], predictions[first::2]), abs=1e-12
        )


def test_slices_by_what_one_asks() -> None:
    """Any text made of an example; none where all are alike; a score that is not defined in a slice
    is left out."""
    task, examples, predictions = made("classify")
    actual = by_slice(
        task, examples, predictions, slice_of=lambda example: str(getattr(example, "label", ""))
    )
    assert {each.name for each in actual} == {"no", "yes"}
    assert all("matthews" not in each.scores for each in actual)
    assert by_slice(task, examples, predictions, slice_of=lambda example: "one") == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_interval_holds_its_score_and_is_drawn_alike(kind: str) -> None:
    task, examples, predictions = made(kind, 60)
    found, intervals = (
        score(task, examples, predictions),
        bootstrap(task, examples, predictions, samples=200),
    )
    assert all(low <= found[name] <= high and low < high for name, (low, high) in intervals.items())
    assert intervals == bootstrap(task, examples, predictions, samples=200)
    assert intervals != bootstrap(task, examples, predictions, samples=200, seed=1)
    narrow = bootstrap(task, examples, predictions, samples=200, level=0.5)
    assert all(
        narrow[name][1] - narrow[name][0] < high - low for name, (low, high) in intervals.items()
    )


def test_intervals_do_not_depend_on_the_memory_they_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task, examples, predictions = made("regress", 30)
    full = bootstrap(task, examples, predictions, samples=40)
    monkeypatch.setattr("litebert.tasks.scores.score.CELLS", 7 * 30)
    assert bootstrap(task, examples, predictions, samples=40) == full


def test_an_interval_of_95_percent_holds_the_truth_about_as_often() -> None:
    """300 sets of 100 coins that show heads in 70 %: the interval of each set holds 0.7 in 90 to 99
    % of them."""
    draw, task = np.random.default_rng(0), TASKS["classify"]
    held = 0
    for _ in range(300):
        heads = draw.random(100) < 0.7
        examples: list[TaskExample] = [TextExample(key="", first="", label="yes") for _ in heads]
        said: list[Prediction] = [
            LabelPrediction(label="yes" if each else "no", probabilities={}) for each in heads
        ]
        low, high = bootstrap(replace(task, scores=("accuracy",)), examples, said, samples=200)[
            "accuracy"
        ]
        held += low <= 0.7 <= high
    assert 0.90 <= held / 300 <= 0.99


def test_questions_about_one_text_are_no_more_than_one() -> None:
    """Each question asked ten times again about its text says nothing new; about ten texts it
    does."""
    task, examples, predictions = made("choose", 50)
    texts = [
        replace(each, context=f"text {number}")
        for number, each in enumerate(examples)
        if isinstance(each, ChoiceExample)
    ]
    same = bootstrap(task, texts * 10, predictions * 10)["accuracy"]
    assert same == pytest.approx(bootstrap(task, texts, predictions)["accuracy"])
    other = [
        replace(each, context=f"{each.context}, {time}") for time in range(10) for each in texts
    ]
    low, high = bootstrap(task, other, predictions * 10)["accuracy"]
    assert 2.5 < (same[1] - same[0]) / (high - low) < 4


def test_questions_about_no_text_have_nothing_in_common() -> None:
    task, examples, predictions = made("choose", 50)
    bare = [replace(each, context="") for each in examples if isinstance(each, ChoiceExample)]
    texts = [replace(each, context=f"text {number}") for number, each in enumerate(bare)]
    low, high = bootstrap(task, bare, predictions)["accuracy"]
    assert high - low == pytest.approx(
        np.ptp(bootstrap(task, texts, predictions)["accuracy"]), rel=0.2
    )


def test_what_is_not_defined_scores_0() -> None:
    """A model that always says the same number, as untrained ones do."""
    task, examples, _ = made("regress")
    same: list[Prediction] = [NumberPrediction(value=2.5) for _ in examples]
    actual = score(task, examples, same)
    assert (actual["pearson"], actual["spearman"]) == (0, 0)
    assert bootstrap(task, examples, same, samples=10)["pearson"] == (0, 0)
    lost: list[Prediction] = [NumberPrediction(value=math.nan) for _ in examples]
    assert score(task, examples, lost) == {
        "pearson": 0,
        "spearman": 0,
        "mean_squared_error": math.inf,
    }, "nothing is perfect here"


def test_no_answer_halves_are_scores_of_their_questions() -> None:
    task, examples, predictions = made("answer or none", 60)
    actual = score(task, examples, predictions)
    for half, wanted in (("has_answer", True), ("no_answer", False)):
        chosen = [
            i
            for i, each in enumerate(examples)
            if isinstance(each, AnswerExample) and bool(each.answers) == wanted
        ]
        alone = score(task, [examples[i] for i in chosen], [predictions[i] for i in chosen])
        assert actual[f"{half}_f1"] == pytest.approx(alone["f1"])
        assert actual[f"{half}_exact"] == pytest.approx(alone["exact"])


def test_what_cannot_be_scored_is_said() -> None:
    task, examples, predictions = made("classify", 4)
    with pytest.raises(ConfigError, match="a prediction for each example; got 3 for 4"):
        score(task, examples, predictions[:3])
    with pytest.raises(DataError, match="classify has no examples to score"):
        score(task, [], [])
    with pytest.raises(
        ConfigError,
        match="classify has no score 'pearson'; known: accuracy, macro_f1, matthews, f1",
    ):
        score(replace(task, scores=("pearson",)), examples, predictions)
    with pytest.raises(
        DataError, match=r"test\.tsv:3 has no label; scores need a split whose labels are known"
    ):
        score(task, [TextExample(key="1", first="", where="test.tsv:3")], predictions[:1])
    with pytest.raises(
        DataError, match=r"dev\.tsv:3: 'maybe' is no label of classify; known: no, yes"
    ):
        score(
            task,
            [TextExample(key="1", first="", label="maybe", where="dev.tsv:3")],
            predictions[:1],
        )
    with pytest.raises(DataError, match="example 7 has no label"):
        score(
            TASKS["choose"],
            [ChoiceExample(key="7", context="", question="", options=())],
            made("choose", 1)[2],
        )
    with pytest.raises(ConfigError, match="samples from 1 and a level between 0 and 1; got 0"):
        bootstrap(task, examples, predictions, samples=0)
