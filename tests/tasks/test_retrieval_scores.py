"""Scores of rankings and retrieval by words, on examples worked by hand, and TF-IDF as
scikit-learn has it."""

import math

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from litebert.tasks.scores.vectors import (
    WordIndex,
    interval,
    ndcg,
    recall,
    reciprocal_rank,
    words,
)

DOCUMENTS = ["the sea, the sea", "the farm", "a ship at SEA", ""]


def test_ndcg_by_hand() -> None:
    relevant = {7: 2.0, 3: 1.0, 9: 0.0}
    gained = 1 / math.log2(2) + 2 / math.log2(4)  # document 3 at rank 1, 7 at rank 3
    best = 2 / math.log2(2) + 1 / math.log2(3)
    assert ndcg([3, 9, 7], relevant) == pytest.approx(gained / best)
    assert ndcg([7, 3, 9], relevant) == pytest.approx(1)
    assert ndcg([3, 9, 7], relevant, cut=2) == pytest.approx(1 / best)
    assert ndcg([1, 2], relevant) == 0


def test_the_ideal_ranking_is_cut_too() -> None:
    relevant = dict.fromkeys(range(20), 1.0)
    assert ndcg(list(range(20)), relevant) == pytest.approx(1)


def test_reciprocal_rank_by_hand() -> None:
    assert reciprocal_rank([5, 6, 7], {7: 1.0, 6: 0.0}) == pytest.approx(1 / 3)
    assert reciprocal_rank([5, 6, 7], {7: 1.0}, cut=2) == 0


def test_recall_by_hand() -> None:
    relevant = {1: 1.0, 2: 3.0, 3: 1.0, 4: 0.0}
    assert recall([1, 4, 8, 2], relevant) == pytest.approx(2 / 3)
    assert recall([1, 4, 8, 2], relevant, cut=3) == pytest.approx(1 / 3)


def test_an_interval_is_around_the_mean() -> None:
    values = np.array([0.0, 1.0] * 50)
    low, high = interval(values, samples=500)
    # two standard errors of a share of a half, of 100
    assert low == pytest.approx(0.4, abs=0.03)
    assert high == pytest.approx(0.6, abs=0.03)


def test_bm25_by_hand() -> None:
    scores = WordIndex(DOCUMENTS).bm25("Sea sea unknown")
    idf = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5))
    mean_length = (4 + 2 + 4 + 0) / 4

    def weight(count: int, length: int) -> float:
        return idf * count * 2.2 / (count + 1.2 * (1 - 0.75 + 0.75 * length / mean_length))

    np.testing.assert_allclose(scores, [2 * weight(2, 4), 0, 2 * weight(1, 4), 0])


@pytest.mark.parametrize("query", ["the sea", "sea sea farm", "ship", "unknown"])
def test_tfidf_is_that_of_scikit_learn(query: str) -> None:
    reference = TfidfVectorizer(token_pattern=r"\w+")
    documents = reference.fit_transform(DOCUMENTS)
    expected = (documents @ reference.transform([query]).T).toarray()[:, 0]
    np.testing.assert_allclose(WordIndex(DOCUMENTS).tfidf(query), expected, atol=1e-12)


def test_words_are_letters_and_digits() -> None:
    assert words("Übers Meer, 3-mal!") == ["übers", "meer", "3", "mal"]
