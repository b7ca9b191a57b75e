"""How well cosines of text vectors follow the similarity that people gave pairs of texts: scored
pairs and vectors in; correlations with intervals out."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from litebert.shapes import Float
from litebert.tasks.examples import TextExample
from litebert.tasks.predictions import NumberPrediction
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
