"""Intervals of scores: Wilson's for proportions, and none where resamples tell nothing."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from litebert.tasks.examples import ChoiceExample
from litebert.tasks.scores.evaluation import evaluate
from litebert.tasks.scores.score import bootstrap, intervals, printed_interval, score, wilson
from tests.helpers.predictions import TASKS, made

PROPORTIONS = {"accuracy", "exact", "subset_accuracy", "has_answer_exact", "no_answer_exact"}


@pytest.mark.parametrize(("right", "trials"), [(0, 1), (7, 7), (40, 40), (3, 17), (861, 1000)])
def test_wilson_equals_scipy(right: int, trials: int) -> None:
    for level in (0.8, 0.95):
        expected = binomtest(right, trials).proportion_ci(level, method="wilson")
        assert wilson(right / trials, trials, level=level) == pytest.approx(
            (expected.low, expected.high), abs=1e-12
        )


def test_forty_of_forty_is_not_certain() -> None:
    task, examples, predictions = made("classify", 40, skill=1)
    task = replace(task, scores=("accuracy", "macro_f1"))
    result = intervals(task, examples, predictions, samples=50)
    # 1 / (1 + z²/n) with z = 1.96
    assert result["accuracy"] == (pytest.approx(0.9124, abs=1e-4), 1.0)
    assert "macro_f1" not in result
    assert printed_interval("accuracy", result["accuracy"]) == "91.2 – 100.0"
    assert printed_interval("macro_f1", result.get("macro_f1")) == "–"


@pytest.mark.parametrize("kind", sorted(TASKS))
def test_other_scores_keep_their_bootstrap(kind: str) -> None:
    task, examples, predictions = made(kind)
    drawn = bootstrap(task, examples, predictions, samples=50)
    for name, interval in intervals(task, examples, predictions, samples=50).items():
        is_wilson = name in PROPORTIONS and kind != "tag"
        assert (interval != drawn[name]) == is_wilson
        assert interval[0] <= score(task, examples, predictions)[name] <= interval[1]


def test_questions_about_few_texts_count_as_few() -> None:
    """Resampled by text; where all are right, as many trials as there are texts."""
    task, examples, predictions = made("choose", 40, skill=1)
    by_text = [
        replace(each, context=f"text {number % 5}")
        for number, each in enumerate(examples)
        if isinstance(each, ChoiceExample)
    ]
    assert intervals(task, by_text, predictions)["accuracy"] == wilson(1.0, 5)
    _, _, mixed = made("choose", 40)
    drawn = bootstrap(task, by_text, mixed, samples=50)
    assert intervals(task, by_text, mixed, samples=50) == drawn


def test_wilson_holds_the_truth_where_a_proportion_is_high() -> None:
    """2,000 sets of 30 trials that succeed in 97 %: at least 92 % of the intervals hold it."""
    draw = np.random.default_rng(0).binomial(30, 0.97, 2000)
    inside = [low <= 0.97 <= high for low, high in (wilson(k / 30, 30) for k in draw.tolist())]
    assert math.fsum(inside) / 2000 >= 0.92


@pytest.mark.parametrize("kind", ["classify", "pair"])
def test_the_confusion_matrix_counts_every_example(kind: str) -> None:
    task, examples, predictions = made(kind, 60)
    result = evaluate(task, examples, predictions, samples=10)
    assert list(result.confusion) == list(task.labels)
    counts = np.array([[row[label] for label in task.labels] for row in result.confusion.values()])
    assert counts.sum() == 60
    assert (
        counts.trace() / 60
        == score(replace(task, scores=("accuracy",)), examples, predictions)["accuracy"]
    )
    assert result.to_dict()["confusion"] == result.confusion


def test_labels_of_several_are_counted_one_by_one() -> None:
    task, examples, predictions = made("several labels", 30)
    rows = evaluate(task, examples, predictions, samples=10).confusion
    assert all(sum(row.values()) == 30 for row in rows.values())
    hits = sum(row["true_positive"] for row in rows.values())
    misses = sum(row["false_positive"] + row["false_negative"] for row in rows.values())
    assert 2 * hits / (2 * hits + misses) == pytest.approx(
        score(task, examples, predictions)["micro_f1"]
    )


def test_words_of_a_tagger_are_counted_by_type_of_entity() -> None:
    task, examples, predictions = made("tag")
    rows = evaluate(task, examples, predictions, samples=10).confusion
    assert set(rows) == {tag.removeprefix("B-").removeprefix("I-") for tag in task.labels}
    right = sum(row[name] for name, row in rows.items())
    total = sum(sum(row.values()) for row in rows.values())
    assert right / total >= score(task, examples, predictions)["accuracy"]  # B for I is right here


def test_other_heads_have_no_confusion() -> None:
    for kind in ("regress", "choose", "answer"):
        assert evaluate(*made(kind), samples=10).confusion == {}
