"""Whether the order of two segments can be guessed without reading them. In: a stream. Out: the
accuracy of a classifier that sees lengths and boundaries alone.

The order loss should teach coherence (ALBERT §3.1). If lengths, the place of [SEP] or cut
sentences betray the order, a model learns those. `features` is all that can be seen without
reading; `accuracy` is how far a small logistic regression gets with it on documents that it has not
seen: chance is 0.5.
"""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from litebert.data.pairs import make_pairs
from litebert.data.plan import is_heldout

if TYPE_CHECKING:
    from litebert.data.stream import Stream
    from litebert.data.texts import Texts

NAMES = ("a_size", "b_size", "sep_place", "a_begins", "a_ends", "b_begins", "b_ends")
"""Sizes and the place of [SEP] in parts of the longest text; begins and ends: at a sentence's start
or end."""


def features(
    stream: "Stream", *, epoch: int = 0, limit: int = 200_000
) -> tuple[Float[np.ndarray, "n 7"], Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """What shows of the first `limit` examples; their order labels and their documents."""
    plan = stream.plan(epoch)
    numbers = plan.order.span(0, min(limit, len(plan)))
    pairs = make_pairs(stream.texts, stream.spec, plan, numbers, seed=stream.seed)
    edges = [
        pairs.a_start,
        pairs.a_start + pairs.a_size,
        pairs.b_start,
        pairs.b_start + pairs.b_size,
    ]
    flags = [_at_sentence_edge(stream.texts, edge) for edge in edges]
    sizes = [pairs.a_size, pairs.b_size, pairs.a_size + 1]
    columns = [np.asarray(column / stream.spec.max_text) for column in sizes] + flags
    documents = stream.texts.documents_of(plan.starts[numbers])
    return np.stack(columns, axis=1).astype(np.float64), pairs.labels, documents


def _at_sentence_edge(texts: "Texts", positions: Int[np.ndarray, " n"]) -> np.ndarray:
    """Whether a sentence begins or ends at each place of the corpus."""
    is_edge = np.full(positions.shape, False)
    for shard, chosen in texts.grouped(positions):
        local = positions[chosen] - shard.first_token
        is_edge[chosen] = shard.sentences[np.searchsorted(shard.sentences, local)] == local
    return is_edge


def accuracy(stream: "Stream", *, limit: int = 200_000) -> float:
    """Right answers on a third of the documents by a regression fitted on the others."""
    inputs, labels, documents = features(stream, limit=limit)
    unseen = is_heldout(documents, 1 / 3)
    model = fit(inputs[~unseen], labels[~unseen])
    return float(np.mean((expand(inputs[unseen]) @ model > 0) == labels[unseen]))


def expand(inputs: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n m"]:
    """A constant, the features, and their products in pairs."""
    rows, columns = np.triu_indices(inputs.shape[1])
    return np.concatenate(
        [np.ones((len(inputs), 1)), inputs, inputs[:, rows] * inputs[:, columns]], axis=1
    )


def fit(inputs: Float[np.ndarray, "n k"], labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, " m"]:
    """Weights of a logistic regression by Newton's method, held small by a slight ridge."""
    wide = expand(inputs)
    weights = np.zeros(wide.shape[1])
    ridge = 1e-4 * len(labels) * np.eye(len(weights))
    for _ in range(12):
        chance = 1 / (1 + np.exp(-np.clip(wide @ weights, -30, 30)))
        slope = wide.T @ (chance - labels) + ridge @ weights
        curve = (wide * (chance * (1 - chance))[:, None]).T @ wide + ridge
        weights = weights - np.linalg.solve(curve, slope)
    return weights
