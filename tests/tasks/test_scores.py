"""Scores equal those of scikit-learn, scipy and torchmetrics on random cases, with and without
weights."""

import warnings

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import torch
import torchmetrics.functional as reference
from torchmetrics.functional.text import squad

from litebert.tasks.examples import Answer, AnswerExample
from litebert.tasks.scores import metrics
from litebert.tasks.scores.answers import answer_scores
from litebert.tasks.scores.metrics import LabelCounts, TagCounts, entities

SEEDS = range(8)


def resamples(draw: np.random.Generator, size: int, rows: int = 3) -> np.ndarray:
    """Weights as a bootstrap has them, and as a score has them in the first row."""
    drawn = [np.bincount(draw.integers(0, size, size), minlength=size) for _ in range(rows)]
    return np.stack([np.ones(size), *drawn]).astype(float)


def repeated(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.repeat(values, weights.astype(int))


@pytest.mark.parametrize("labels", [2, 3, 7])
@pytest.mark.parametrize("seed", SEEDS)
def test_labels_are_scored_as_by_scikit_learn_and_torchmetrics(seed: int, labels: int) -> None:
    """Weights mean the same as repeating examples."""
    draw = np.random.default_rng((seed, labels))
    size = int(draw.integers(20, 60))
    true = draw.integers(0, labels, size)
    guessed = np.where(draw.random(size) < 0.6, true, draw.integers(0, labels, size))
    weights = resamples(draw, size)
    counts = LabelCounts.of(true, guessed, weights, labels)
    for row, mine in enumerate(weights):
        a, b = repeated(true, mine), repeated(guessed, mine)
        assert counts.accuracy()[row] == pytest.approx(
            sklearn.metrics.accuracy_score(a, b), abs=1e-12
        )
        assert counts.matthews()[row] == pytest.approx(
            sklearn.metrics.matthews_corrcoef(a, b), abs=1e-12
        )
        assert counts.macro_f1()[row] == pytest.approx(
            sklearn.metrics.f1_score(a, b, average="macro"), abs=1e-12
        )
        theirs = sklearn.metrics.f1_score(a, b, labels=[1], average="macro", zero_division=0)
        assert np.nan_to_num(counts.f1()[row]) == pytest.approx(theirs, abs=1e-12)
        tensors = torch.from_numpy(b), torch.from_numpy(a)
        mcc = reference.matthews_corrcoef(*tensors, task="multiclass", num_classes=labels)
        assert counts.matthews()[row] == pytest.approx(float(mcc), abs=1e-6)
        if labels == 2:
            assert counts.f1()[row] == pytest.approx(
                float(reference.f1_score(*tensors, task="binary")), abs=1e-6
            )


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_numbers_are_scored_as_by_scipy_and_torchmetrics(seed: int, ties: bool) -> None:
    draw = np.random.default_rng((seed, ties))
    true = draw.random(40) * 5
    guessed = true + draw.normal(0, 1.5, 40)
    if ties:
        true, guessed = np.round(true), np.round(guessed)
    weights = resamples(draw, 40)
    for row, mine in enumerate(weights):
        a, b = repeated(true, mine), repeated(guessed, mine)
        assert metrics.pearson(true, guessed, weights)[row] == pytest.approx(
            scipy.stats.pearsonr(a, b)[0], abs=1e-12
        )
        assert metrics.spearman(true, guessed, weights)[row] == pytest.approx(
            scipy.stats.spearmanr(a, b)[0], abs=1e-12
        )
        error = sklearn.metrics.mean_squared_error(a, b)
        assert metrics.mean_squared_error(true, guessed, weights)[row] == pytest.approx(
            error, abs=1e-12
        )
        theirs = float(reference.spearman_corrcoef(torch.from_numpy(b), torch.from_numpy(a)))
        assert metrics.spearman(true, guessed, weights)[row] == pytest.approx(theirs, abs=1e-6)


def test_a_correlation_survives_numbers_far_from_zero() -> None:
    """The mean is taken off first: 1e8 and a little more is no less exact than a little more."""
    draw = np.random.default_rng(0)
    true, guessed = draw.random(50), draw.random(50)
    weights = np.ones((1, 50))
    near, far = (
        metrics.pearson(true, guessed, weights),
        metrics.pearson(true + 1e8, guessed, weights),
    )
    assert far[0] == pytest.approx(near[0], abs=1e-6)


@pytest.mark.parametrize("score", [metrics.pearson, metrics.spearman])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e9])
def test_a_constant_has_no_correlation(score, value: float) -> None:  # type: ignore[no-untyped-def]
    """Not defined, rather than a number made of rounding errors."""
    true = np.arange(9.0)
    assert np.isnan(score(true, np.full(9, value), np.ones((1, 9)))[0])
    assert np.isnan(score(np.full(9, value), true, np.ones((1, 9)))[0])


WORKED = [
    ("the Eiffel Tower!", ["Eiffel  tower"], 1, 1),
    ("Paris, France", ["Paris"], 0, 2 / 3),
    ("an answer", ["A", "answer"], 1, 1),
    ("1,000", ["1000"], 1, 1),
    ("it is is", ["is it"], 0, 0.8),
    ("Berlin", ["Paris", "London"], 0, 0),
    ("", ["Paris"], 0, 0),
    ("thefts", ["fts"], 0, 0),
]


def scored(guess: str, accepted: list[str], *, has_null: bool = False) -> tuple[float, float]:
    """Exact match and F1 of one answer."""
    answers = tuple(Answer(text=text, start=0) for text in accepted)
    question = AnswerExample(key="1", question="?", context="", answers=answers)
    exact, f1, _ = answer_scores([question], [guess], has_null=has_null)
    return float(exact[0]), float(f1[0])


@pytest.mark.parametrize(("guess", "right", "exact", "f1"), WORKED)
def test_answers_of_squad_by_hand(guess: str, right: list[str], exact: float, f1: float) -> None:
    assert scored(guess, right) == (exact, pytest.approx(f1))


def test_no_answer_rules_of_squad_2() -> None:
    """No answer is right where there is none and only there; an accepted answer without a word does
    not count."""
    assert scored("", [], has_null=True) == (1, 1)
    assert scored("Paris", [], has_null=True) == (0, 0)
    assert scored("", [".", "interventionism"], has_null=True) == (0, 0)
    assert scored("", [".", "interventionism"], has_null=False) == (1, 1)
    assert scored("", ["."], has_null=True) == (1, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_answers_are_scored_as_by_torchmetrics(seed: int) -> None:
    draw = np.random.default_rng(seed)
    words = np.array(["The", "a", "red,", "fox", "Fox", "ran", "home.", "--", "an", "42"])

    def text() -> str:
        return " ".join(draw.choice(words, draw.integers(1, 5))) + " fox"

    for _ in range(10):
        guess, right = text(), [text() for _ in range(3)]
        target = {"answers": {"answer_start": [0] * 3, "text": right}, "id": "1"}
        theirs = squad([{"prediction_text": guess, "id": "1"}], [target])
        exact, f1 = scored(guess, right)
        assert exact * 100 == pytest.approx(float(theirs["exact_match"]), abs=1e-4)
        assert f1 * 100 == pytest.approx(float(theirs["f1"]), abs=1e-4)


TAGGED = [
    ("O B-PER I-PER O", {("PER", 1, 3)}),
    ("B-PER B-PER", {("PER", 0, 1), ("PER", 1, 2)}),
    ("I-PER I-LOC I-LOC", {("PER", 0, 1), ("LOC", 1, 3)}),
    ("B-PER I-LOC", {("PER", 0, 1), ("LOC", 1, 2)}),
    ("B-X-Y I-X-Y E-X-Y I-X-Y", {("X-Y", 0, 3), ("X-Y", 3, 4)}),
    ("S-PER I-PER U-PER L-PER", {("PER", 0, 1), ("PER", 1, 2), ("PER", 2, 3), ("PER", 3, 4)}),
    ("B I O B", {("", 0, 2), ("", 3, 4)}),
    ("NOUN VERB VERB O", {("NOUN", 0, 1), ("VERB", 1, 2), ("VERB", 2, 3)}),
    ("PRE-X", {("PRE-X", 0, 1)}),
    ("O O", set()),
    ("", set()),
]


@pytest.mark.parametrize(("line", "found"), TAGGED)
def test_entities_by_hand(line: str, found: set[tuple[str, int, int]]) -> None:
    assert entities(line.split()) == found


def test_entities_need_both_ends_and_their_name() -> None:
    counted = TagCounts.of(["B-PER", "I-PER", "O", "B-LOC"], ["B-PER", "O", "O", "B-PER"])
    assert counted == TagCounts(correct=0, true=2, predicted=2, correct_words=2, words=4)


def test_nothing_over_nothing_is_not_a_number_and_no_warning() -> None:
    """f1 of a label that is neither there nor guessed; Matthews where one label is all there is."""
    zeros = np.zeros(4, int)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        counts = LabelCounts.of(zeros, zeros, np.ones((2, 4)), 2)
        assert np.isnan(counts.f1()).all()
        assert np.isnan(counts.matthews()).all()
        assert counts.macro_f1().tolist() == [1, 1]
