"""What the demo's numbers are compared with: the majority token, a bag of words, and the embedded
model's guesses for masked words. (The order's own baseline is in data/giveaway.py, the majority era
in tasks/scores.)
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from litebert.data.batch import Batch
from litebert.data.shards import Shards
from litebert.demo.corpus import Speech
from litebert.infer.predictor import Predictor
from litebert.packing import ranges
from litebert.tasks.encode.inputs import Inputs
from litebert.text.sentences import split_sentences


def majority_token(shards: Shards) -> int:
    """The most frequent token of the corpus."""
    counts = sum(
        np.bincount(shards.arrays(number).tokens, minlength=shards.index["vocab_size"])
        for number in range(len(shards))
    )
    return int(np.argmax(counts))


def accuracy_of_token(token_id: int, batches: Iterable[Batch]) -> float:
    """The accuracy of predicting this token for every mask."""
    labels = np.concatenate([batch.masked_labels for batch in batches])
    return float(np.mean(labels == token_id))


def bag_of_words(train: Inputs, test: Inputs, *, vocab_size: int, num_labels: int) -> float:
    """Accuracy of naive Bayes over the same tokens that the model reads, their order forgotten."""
    labels, truth = train.targets, test.targets
    assert labels is not None
    assert truth is not None
    # Laplace's rule
    counts = (
        np.stack([_count(train, labels == label, vocab_size) for label in range(num_labels)]) + 1.0
    )
    words = np.log(counts / counts.sum(1, keepdims=True))
    prior = np.log((np.bincount(labels, minlength=num_labels) + 1.0) / (len(train) + num_labels))
    predicted = [
        int(np.argmax(prior + words[:, test.pool[start:stop]].sum(1)))
        for start, stop in test.first.tolist()
    ]
    return float(np.mean(np.array(predicted) == truth))


def _count(
    texts: Inputs, chosen: Bool[np.ndarray, " texts"], vocab_size: int
) -> Float[np.ndarray, " vocab"]:
    """How often each token stands in the chosen texts."""
    first, last = texts.first[chosen].T
    tokens = texts.pool[ranges(first, last - first)]
    return np.bincount(tokens, minlength=vocab_size).astype(np.float64)


_SENTENCE_WORDS = (6, 30)
"""Words of a sentence to mask: fewer tell too little, more take long."""
_WORD = re.compile(r"[A-Za-z]{2,}")


@dataclass(frozen=True, kw_only=True)
class MaskedWord:
    """A sentence with one word masked, and the model's guesses for it."""

    text: str
    """With [MASK] instead of the word."""
    word: str
    guesses: tuple[tuple[str, float], ...] = ()

    @property
    def is_right(self) -> bool:
        return bool(self.guesses) and self.guesses[0][0] == self.word


def mask_words(speeches: Sequence[Speech], model: Predictor, count: int) -> list[MaskedWord]:
    """Sentences of held-out speeches, spread over them all; in each, the middle one of the words
    that are a single token is masked."""
    sentences = [
        sentence for speech in speeches if speech.heldout for sentence in _sentences(speech)
    ]
    stride = max(len(sentences) // count, 1)
    masked: list[MaskedWord] = []
    for sentence in sentences[::stride]:
        found = _WORD.finditer(sentence)
        words = [word for word in found if len(model.tokenizer.encode(word[0])) == 1]
        if words:
            word = words[len(words) // 2]
            text = f"{sentence[: word.start()]}[MASK]{sentence[word.end() :]}"
            masked.append(MaskedWord(text=text, word=word[0].lower()))
    return masked[:count]


def guess_words(masked: Sequence[MaskedWord], model: Predictor) -> list[MaskedWord]:
    """The same with the model's three best guesses."""
    filled = model.fill([each.text for each in masked], top=3)
    return [
        replace(each, guesses=tuple(guesses))
        for each, (guesses,) in zip(masked, filled, strict=True)
    ]


def _sentences(speech: Speech) -> Iterator[str]:
    for paragraph in speech.paragraphs:
        for sentence in split_sentences(" ".join(paragraph.split())):
            if (
                _SENTENCE_WORDS[0] <= len(sentence.split()) <= _SENTENCE_WORDS[1]
                and "[" not in sentence
            ):
                yield sentence
