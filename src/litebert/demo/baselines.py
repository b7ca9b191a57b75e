"""What each number of the demo is to be compared with: guessing the most frequent token, the most frequent era, and a bag
of words. Counts in; accuracies out. The order's own rival, the give-away classifier, stands in data/giveaway.py.
"""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

from litebert.data.batch import Batch
from litebert.data.shards import Shards
from litebert.train.labelled import Labelled


def most_frequent_token(shards: Shards) -> int:
    """The token that a guesser who looks at nothing would always say."""
    counts = sum(
        np.bincount(shards.arrays(number).tokens, minlength=shards.index["vocab_size"]) for number in range(len(shards))
    )
    return int(np.argmax(counts))


def share_of(token_id: int, batches: Iterable[Batch]) -> float:
    """How many of the hidden tokens are this one."""
    labels = np.concatenate([batch.masked_labels for batch in batches])
    return float(np.mean(labels == token_id))


def majority(train: Labelled, test: Labelled) -> float:
    """Accuracy of always saying the label that is most frequent in train."""
    return float(np.mean(test.labels == np.bincount(train.labels).argmax()))


def bag_of_words(train: Labelled, test: Labelled, *, vocab_size: int, num_labels: int) -> float:
    """Accuracy of naive Bayes over the same tokens that the model reads, their order forgotten."""
    counts = np.stack([_count(train, label, vocab_size) for label in range(num_labels)]) + 1.0  # Laplace's rule
    words = np.log(counts / counts.sum(1, keepdims=True))
    prior = np.log((np.bincount(train.labels, minlength=num_labels) + 1.0) / (len(train) + num_labels))
    guesses = [int(np.argmax(prior + words[:, list(ids)].sum(1))) for ids in test.token_ids]
    return float(np.mean(np.array(guesses) == test.labels))


def _count(texts: Labelled, label: int, vocab_size: int) -> Float[np.ndarray, " vocab"]:
    """How often each token stands in the texts of a label."""
    ids = [np.asarray(ids) for ids, mine in zip(texts.token_ids, texts.labels, strict=True) if mine == label]
    return np.bincount(np.concatenate([np.zeros(0, np.int64), *ids]), minlength=vocab_size).astype(np.float64)
