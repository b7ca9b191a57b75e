"""How well a model's vectors tell how alike texts are: scored pairs in; Spearman's and Pearson's
correlations of their cosines with the scores out. Any model with an encoder will do."""

from typing import Any

from litebert.config import Pooling
from litebert.errors import ConfigError
from litebert.infer.predictor import Predictor
from litebert.tasks.scores.similarity import SimilarityScores
from litebert.tasks.scores.similarity import score_similarity as score_vectors
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.tables.pairs import open_scored_pairs


def score_similarity(
    predictor: Predictor,
    data: Any,
    *,
    options: TableOptions | None = None,
    pooling: Pooling | None = None,
    dimensions: int | None = None,
    samples: int = 1000,
) -> SimilarityScores:
    """Of a file or a table in memory with two texts and a score in each row; with `samples`
    resamples for the intervals."""
    if samples < 1:
        raise ConfigError(f"samples is a number from 1; got {samples}")
    pairs, notes = open_scored_pairs(data, options)
    texts = [*(pair.first for pair in pairs), *(pair.second or "" for pair in pairs)]
    vectors = predictor.embed(texts, pooling=pooling, dimensions=dimensions)
    return score_vectors(pairs, vectors, samples=samples, notes=notes)
