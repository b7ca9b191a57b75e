"""Paragraphs in, token ids and the length of each sentence out.
 A paragraph is encoded whole, which is faster than sentence by sentence: no piece of the vocabulary
reaches over a space, so a sentence is a run of whole words, and has as many pieces that begin with
▁ as it has words. Where the words do not come out even (scripts without spaces, white space of
other kinds), the paragraph's sentences are encoded one by one.
"""

import numpy as np
from jaxtyping import Int

from litebert.text.sentence_words import sentence_words
from litebert.text.sentences import split_sentences
from litebert.text.tokenizer import Tokenizer


class SentenceEncoder:
    """Splits and encodes; with `split` False each paragraph is one sentence."""

    def __init__(self, tokenizer: Tokenizer, *, split: bool) -> None:
        self._encode = tokenizer.encode_flat
        self._split = split
        self._begins_word = np.array([piece.startswith("▁") for piece in tokenizer.pieces])

    def __call__(
        self, paragraphs: list[str]
    ) -> tuple[
        Int[np.ndarray, " tokens"], Int[np.ndarray, " sentences"], Int[np.ndarray, " paragraphs"]
    ]:
        """Token ids, tokens of each sentence (0 where the clean-up leaves nothing), sentences of
        each paragraph."""
        ids, bounds = self._encode(paragraphs)
        if not self._split:
            return ids, np.diff(bounds), np.ones(len(paragraphs), dtype=np.int64)
        num_sentences, words, regular = sentence_words(paragraphs)
        found = np.diff(_sums(self._begins_word[ids])[bounds])
        alone = (
            num_sentences == 1
        )  # nothing to be found inside: all that is there is the one sentence's
        words[_sums(num_sentences)[:-1][alone]] = found[alone]
        even = alone | (regular & (np.diff(_sums(words)[_sums(num_sentences)]) == found))
        if even.all():
            return ids, self._lengths(ids, words), num_sentences

        # Both kinds are encoded apart and put together again in their places.
        ids = ids[np.repeat(even, np.diff(bounds))]
        of_even = np.repeat(even, num_sentences)
        others = (split_sentences(paragraphs[number]) for number in np.flatnonzero(~even))
        other_ids, other_bounds = self._encode(
            [sentence for sentences in others for sentence in sentences]
        )
        lengths = np.empty(len(words), dtype=np.int64)
        lengths[of_even], lengths[~of_even] = (
            self._lengths(ids, words[of_even]),
            np.diff(other_bounds),
        )
        place = np.repeat(of_even, lengths)
        merged = np.empty(len(place), dtype=ids.dtype)
        merged[place], merged[~place] = ids, other_ids
        return merged, lengths, num_sentences

    def _lengths(self, ids: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Tokens of each sentence, out of its words."""
        starts = np.append(np.flatnonzero(self._begins_word[ids]), len(ids))
        return np.diff(starts[_sums(words)])


def _sums(values: np.ndarray) -> np.ndarray:
    """0, and the sum up to each value."""
    return np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
