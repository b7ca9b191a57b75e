"""Retrieval by words, without a model: the baselines that embeddings stand beside. Documents in;
scores of all documents for a query out. Words are runs of letters and digits in lower case; none
is stemmed or left out."""

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from litebert.shapes import Float

_WORD = re.compile(r"\w+")
K1, B = 1.2, 0.75
"""Saturation of repeated words, and weight of the document's length."""


def words(text: str) -> list[str]:
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
