"""Paragraphs in, token ids and the length of each sentence out.

A paragraph is encoded whole, which is faster than sentence by sentence: no piece of the vocabulary reaches over a space,
so a sentence is a run of whole words, and has as many pieces that begin with ▁ as it has words. Where the words do not
come out even (scripts without spaces, white space of other kinds), the paragraph's sentences are encoded one by one.
"""

from itertools import repeat

import numpy as np
from jaxtyping import Int

from litebert.text.sentences import sentence_ends
from litebert.text.tokenizer import Tokenizer

_SPACES = repeat(" ")


class SentenceEncoder:
    """Splits and encodes; with `split` False each paragraph is one sentence."""

    def __init__(self, tokenizer: Tokenizer, *, split: bool) -> None:
        self._encode = tokenizer.encode_flat
        self._split = split
        self._begins_word = np.array([piece.startswith("▁") for piece in tokenizer.pieces])

    def __call__(
        self, paragraphs: list[str]
    ) -> tuple[Int[np.ndarray, " tokens"], Int[np.ndarray, " sentences"], Int[np.ndarray, " paragraphs"]]:
        """Token ids, tokens of each sentence (0 where the clean-up leaves nothing), sentences of each paragraph."""
        ids, bounds = self._encode(paragraphs)
        if not self._split:
            return ids, np.diff(bounds), np.ones(len(paragraphs), dtype=np.int64)
        ends = [sentence_ends(paragraph) for paragraph in paragraphs]
        num_sentences = np.fromiter(map(len, ends), np.int64, len(ends))
        words = _count_words(paragraphs, ends)
        words_before = _sums(words)[_sums(num_sentences)]
        begins_before = _sums(self._begins_word[ids])[bounds]
        even = np.diff(words_before) == np.diff(begins_before)
        even &= np.fromiter(map(_is_regular, paragraphs, ends), bool, len(ends))
        if even.all():
            return ids, self._lengths(ids, words), num_sentences

        # Both kinds are encoded apart and put together again in their places.
        ids = ids[np.repeat(even, np.diff(bounds))]
        of_even = np.repeat(even, num_sentences)
        others = (_slices(paragraphs[number], ends[number]) for number in np.flatnonzero(~even))
        other_ids, other_bounds = self._encode([sentence for sentences in others for sentence in sentences])
        lengths = np.empty(len(words), dtype=np.int64)
        lengths[of_even], lengths[~of_even] = self._lengths(ids, words[of_even]), np.diff(other_bounds)
        place = np.repeat(of_even, lengths)
        merged = np.empty(len(place), dtype=ids.dtype)
        merged[place], merged[~place] = ids, other_ids
        return merged, lengths, num_sentences

    def _lengths(self, ids: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Tokens of each sentence, out of its words."""
        starts = np.append(np.flatnonzero(self._begins_word[ids]), len(ids))
        return np.diff(starts[_sums(words)])


def _count_words(paragraphs: list[str], ends: list[list[int]]) -> np.ndarray:
    """Words of each sentence, if single spaces part them: every word but a paragraph's last has one behind it."""
    words: list[int] = []
    for paragraph, stops in zip(paragraphs, ends, strict=True):
        words += map(paragraph.count, _SPACES, [0, *stops], stops)
        words[-1] += 1
    return np.array(words, dtype=np.int64)


def _is_regular(paragraph: str, ends: list[int]) -> bool:
    """Are words parted by single spaces, and sentences too? Else two mistakes in counting could make up for each other."""
    if "  " in paragraph:
        return False
    return paragraph.isascii() or (paragraph.isprintable() and all(paragraph[end - 1] == " " for end in ends[:-1]))


def _slices(paragraph: str, ends: list[int]) -> list[str]:
    return [paragraph[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _sums(values: np.ndarray) -> np.ndarray:
    """0, and the sum up to each value."""
    return np.concatenate([[0], np.cumsum(values, dtype=np.int64)])
