"""What each number of the demo is to be compared with: guessing the most frequent token, and a bag
of words. Counts in; accuracies out. The order's own rival, the give-away classifier, stands in
data/giveaway.py; always saying the most frequent era in tasks/scores/baselines.py.
"""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Bool, Float

from litebert.data.batch import Batch
from litebert.data.shards import Shards
from litebert.packing import ranges
from litebert.tasks.encode.inputs import Inputs


def most_frequent_token(shards: Shards) -> int:
    """The token that a guesser who looks at nothing would always say."""
    counts = sum(
        np.bincount(shards.arrays(number).tokens, minlength=shards.index["vocab_size"])
        for number in range(len(shards))
    )
    return int(np.argmax(counts))


def share_of(token_id: int, batches: Iterable[Batch]) -> float:
    """How many of the hidden tokens are this one."""
    labels = np.concatenate([batch.masked_labels for batch in batches])
    return float(np.mean(labels == token_id))


def bag_of_words(train: Inputs, test: Inputs, *, vocab_size: int, num_labels: int) -> float:
    """Accuracy of naive Bayes over the same tokens that the model reads, their order forgotten."""
    labels, truth = train.targets, test.targets
    assert labels is not None
    assert truth is not None
    counts = (
        np.stack([_count(train, labels == label, vocab_size) for label in range(num_labels)]) + 1.0
    )  # Laplace's rule
    words = np.log(counts / counts.sum(1, keepdims=True))
    prior = np.log((np.bincount(labels, minlength=num_labels) + 1.0) / (len(train) + num_labels))
    said = [
        int(np.argmax(prior + words[:, test.pool[start:stop]].sum(1)))
        for start, stop in test.first.tolist()
    ]
    return float(np.mean(np.array(said) == truth))


def _count(
    texts: Inputs, chosen: Bool[np.ndarray, " texts"], vocab_size: int
) -> Float[np.ndarray, " vocab"]:
    """How often each token stands in the chosen texts."""
    first, last = texts.first[chosen].T
    tokens = texts.pool[ranges(first, last - first)]
    return np.bincount(tokens, minlength=vocab_size).astype(np.float64)
