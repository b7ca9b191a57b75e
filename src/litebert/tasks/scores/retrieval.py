"""Scores of rankings, as trec_eval defines them: nDCG@10, MRR@10 and recall@100. Pure functions of
one query's ranking."""

from collections.abc import Mapping, Sequence

import numpy as np

from litebert.shapes import Float
from litebert.tasks.scores.metrics import mean

DEPTH = 100
"""Documents of a ranking that scores look at."""
_CUT = 10


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


def interval(
    values: Float[np.ndarray, " queries"], *, samples: int, seed: int = 0
) -> tuple[float, float]:
    """95 % interval of a mean over queries, by bootstrap."""
    draw = np.random.default_rng(seed)
    weights = draw.multinomial(len(values), np.full(len(values), 1 / len(values)), size=samples)
    low, high = np.quantile(mean(values, weights.astype(np.float64)), [0.025, 0.975]).tolist()
    return low, high


def _discounted(gains: Sequence[float]) -> float:
    return float(sum(gain / np.log2(rank + 1) for rank, gain in enumerate(gains, 1)))
