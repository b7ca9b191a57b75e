"""Scores of text vectors, and of what vectors compete with.

Similarity: how well cosines follow the similarity that people gave pairs of texts; scored pairs and
vectors in, correlations with intervals out. Retrieval: scores of rankings, as trec_eval defines
them (nDCG@10, MRR@10 and recall@100), and baselines that rank by words, without a model.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from litebert.shapes import Float
from litebert.tasks.examples import TextExample
from litebert.tasks.predictions import NumberPrediction
from litebert.tasks.scores.metrics import mean
from litebert.tasks.scores.score import intervals, score
from litebert.tasks.task import Task

SIMILARITY = Task(name="similarity", kind="regress", scores=("spearman", "pearson"), head="regress")
"""The cosine is the prediction."""


@dataclass(frozen=True, kw_only=True)
class SimilarityScores:
    """Correlations of the cosines of pairs with their scores; 0 where all cosines are equal."""

    num_pairs: int
    scores: dict[str, float]
    """spearman and pearson."""
    intervals: dict[str, tuple[float, float]]
    """95 % intervals by bootstrap."""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def cosines(
    first: Float[np.ndarray, "pairs size"], second: Float[np.ndarray, "pairs size"]
) -> Float[np.ndarray, " pairs"]:
    """The cosine of each pair of vectors, in float64."""
    first, second = first.astype(np.float64), second.astype(np.float64)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.asarray((first * second).sum(1) / np.maximum(lengths, 1e-12))


def score_similarity(
    pairs: Sequence[TextExample],
    vectors: Float[np.ndarray, "texts size"],
    *,
    samples: int = 1000,
    notes: tuple[str, ...] = (),
) -> SimilarityScores:
    """Scores of the vectors of all first texts, then of all second ones; with `samples` resamples
    for the intervals."""
    numbers = cosines(vectors[: len(pairs)], vectors[len(pairs) :]).tolist()
    predictions = [NumberPrediction(value=number) for number in numbers]
    return SimilarityScores(
        num_pairs=len(pairs),
        scores=score(SIMILARITY, pairs, predictions),
        intervals=intervals(SIMILARITY, pairs, predictions, samples=samples) if samples else {},
        notes=notes,
    )


DEPTH = 100
"""Documents of a ranking that scores look at."""
_CUT = 10
_WORD = re.compile(r"\w+")
K1, B = 1.2, 0.75
"""Saturation of repeated words, and weight of the document's length."""


def ndcg(ranking: Sequence[int], relevant: Mapping[int, float], *, cut: int = _CUT) -> float:
    """Discounted gain of the first `cut` documents over that of the best ranking; a document's gain
    is its judgment, divided by log2(rank + 1) (Järvelin & Kekäläinen 2002)."""
    gains = [max(relevant.get(document, 0.0), 0.0) for document in ranking[:cut]]
    ideal = sorted((max(gain, 0.0) for gain in relevant.values()), reverse=True)[:cut]
    best = _discounted(ideal)
    return _discounted(gains) / best if best else 0.0


def reciprocal_rank(
    ranking: Sequence[int], relevant: Mapping[int, float], *, cut: int = _CUT
) -> float:
    """1 / rank of the first relevant document; 0 where none is among the first `cut`."""
    ranks = (
        rank for rank, document in enumerate(ranking[:cut], 1) if relevant.get(document, 0) > 0
    )
    return 1 / next(ranks, float("inf"))


def recall(ranking: Sequence[int], relevant: Mapping[int, float], *, cut: int = DEPTH) -> float:
    """Share of the relevant documents that are among the first `cut`."""
    wanted = {document for document, gain in relevant.items() if gain > 0}
    return len(wanted.intersection(ranking[:cut])) / len(wanted) if wanted else 0.0


MEASURES = {"ndcg_at_10": ndcg, "mrr_at_10": reciprocal_rank, "recall_at_100": recall}


def interval(values: Float[np.ndarray, " queries"], *, samples: int) -> tuple[float, float]:
    """95 % interval of a mean over queries, by bootstrap."""
    draw = np.random.default_rng(0)
    weights = draw.multinomial(len(values), np.full(len(values), 1 / len(values)), size=samples)
    low, high = np.quantile(mean(values, weights.astype(np.float64)), [0.025, 0.975]).tolist()
    return low, high


def _discounted(gains: Sequence[float]) -> float:
    return float(sum(gain / np.log2(rank + 1) for rank, gain in enumerate(gains, 1)))


def words(text: str) -> list[str]:
    """Runs of letters and digits in lower case; none is stemmed or left out."""
    return _WORD.findall(text.lower())


class WordIndex:
    """For each word the documents that have it, and how often."""

    def __init__(self, documents: Sequence[str]) -> None:
        self.num_documents = len(documents)
        counts = [Counter(words(document)) for document in documents]
        lengths = np.array([each.total() for each in counts], np.float64)
        places: dict[str, list[tuple[int, int]]] = {}
        for number, each in enumerate(counts):
            for word, count in each.items():
                places.setdefault(word, []).append((number, count))
        self._postings = {
            word: (np.array([n for n, _ in each]), np.array([c for _, c in each], np.float64))
            for word, each in places.items()
        }
        self._relative = lengths / max(lengths.mean(), 1e-12)
        """Lengths of the documents, in mean lengths."""
        squares = np.zeros(len(documents))
        for word, (numbers, tf) in self._postings.items():
            squares[numbers] += (tf * self._idf(word)) ** 2
        self._norms = np.maximum(np.sqrt(squares), 1e-12)

    def bm25(self, query: str) -> Float[np.ndarray, " documents"]:
        """Okapi BM25 (Robertson & Zaragoza 2009) with Lucene's idf, which is never negative."""
        scores = np.zeros(self.num_documents)
        for word, times in Counter(words(query)).items():
            if word in self._postings:
                numbers, tf = self._postings[word]
                idf = math.log1p((self.num_documents - len(numbers) + 0.5) / (len(numbers) + 0.5))
                length = K1 * (1 - B + B * self._relative[numbers])
                scores[numbers] += times * idf * tf * (K1 + 1) / (tf + length)
        return scores

    def tfidf(self, query: str) -> Float[np.ndarray, " documents"]:
        """Cosines of tf × idf vectors, with scikit-learn's idf: ln((1 + n) / (1 + df)) + 1. Words
        that no document has count for nothing, as they do there."""
        scores, square = np.zeros(self.num_documents), 0.0
        for word, times in Counter(words(query)).items():
            if word in self._postings:
                numbers, tf = self._postings[word]
                idf = self._idf(word)
                scores[numbers] += times * idf * tf * idf
                square += (times * idf) ** 2
        return scores / self._norms / max(math.sqrt(square), 1e-12)

    def _idf(self, word: str) -> float:
        return math.log((1 + self.num_documents) / (1 + len(self._postings[word][0]))) + 1
