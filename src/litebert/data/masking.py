"""Which tokens are masked, and what replaces them. ALBERT §4.1 (n-gram masking), BERT §3.1
(80/10/10).

In: rows [CLS] a [SEP] b [SEP], where words begin, one key a row. Out: the rows with tokens
replaced, the flat positions to predict, and what stood there.

Candidates are runs of 1 … max_ngram whole words of one segment. They are tried in random order: a
length n is drawn in proportion to 1/n, shortened until it fits into what is left of the row's
budget, and taken unless it meets a word already taken, as in the reference. All rows take their
turn at once, so that the loop runs once a candidate, not once a token.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt32, UInt64

from litebert.data.random import below, bits, uniform
from litebert.data.spec import ExampleSpec
from litebert.packing import ranges, row_lengths
from litebert.text.tokenizer import Tokenizer

_Keys = UInt64[np.ndarray, " batch"]
_TURNS = 8
"""Turns whose random bits are drawn together, and after which finished rows are put aside."""
_TOO_MANY = 2**30


class Vocabulary(NamedTuple):
    """What masking reads of a tokenizer."""

    word_starts: Bool[np.ndarray, " vocab"]
    """Whether a token begins a word."""
    replacements: Int[np.ndarray, " ordinary"]
    """The tokens a random replacement is drawn from."""
    cls_id: int
    sep_id: int
    mask_id: int
    pad_id: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, *, random_specials: bool = False) -> "Vocabulary":
        excluded = [] if random_specials else list(tokenizer.special_ids)
        return cls(
            word_starts=tokenizer.word_starts,
            replacements=np.setdiff1d(np.arange(tokenizer.vocab_size), excluded),
            cls_id=tokenizer.cls_id,
            sep_id=tokenizer.sep_id,
            mask_id=tokenizer.mask_id,
            pad_id=tokenizer.pad_id,
        )


class Rows(NamedTuple):
    """[CLS] a [SEP] b [SEP] and padding; where b_sizes is 0 only [CLS] a [SEP]."""

    token_ids: Int[np.ndarray, "batch seq"]
    a_sizes: Int[np.ndarray, " batch"]
    b_sizes: Int[np.ndarray, " batch"]

    @property
    def sizes(self) -> Int[np.ndarray, " batch"]:
        return row_lengths(self.a_sizes, self.b_sizes, self.b_sizes > 0)


class MaskedRows(NamedTuple):
    token_ids: Int[np.ndarray, "batch seq"]
    masked_positions: Int[np.ndarray, " num_masked"]
    masked_labels: Int[np.ndarray, " num_masked"]


def mask_rows(
    spec: ExampleSpec, vocabulary: Vocabulary, rows: Rows, choose_keys: _Keys, replace_keys: _Keys
) -> MaskedRows:
    """Choose n-grams and replace them; the rows' own array is written to."""
    positions = _choose_positions(spec, vocabulary.word_starts, rows, choose_keys)
    seq = rows.token_ids.shape[1]
    flat = rows.token_ids.reshape(-1)
    labels = flat[positions]
    # for each token by itself, as in the reference, not for each n-gram
    words = bits(replace_keys[positions // seq], positions % seq)
    kind = uniform(words)
    pick = (
        ((words & np.uint64(0xFFFFFFFF)) * np.uint64(len(vocabulary.replacements))) >> np.uint64(32)
    ).astype(np.int64)
    others = np.where(
        kind < 1 - spec.random_share, labels, vocabulary.replacements[pick].astype(labels.dtype)
    )
    flat[positions] = np.where(
        kind < spec.mask_share, np.asarray(vocabulary.mask_id, labels.dtype), others
    )
    return MaskedRows(rows.token_ids, positions, labels)


class _Words(NamedTuple):
    """The words of a batch, row after row."""

    breaks: Int[np.ndarray, " breaks"]
    """Flat positions where a word begins or a special token stands; words end at the next."""
    starts: Int[np.ndarray, " words"]
    """Which breaks are words."""
    counts: Int[np.ndarray, " batch"]
    """Words in each row."""


def _find_words(word_starts: Bool[np.ndarray, " vocab"], rows: Rows) -> _Words:
    """A word is a token that begins one and those that follow; a segment begins with one."""
    batch, seq = rows.token_ids.shape
    line, last = np.arange(batch), rows.sizes - 1
    middle = rows.a_sizes + 1
    breaks = word_starts.take(rows.token_ids)
    for column in (0, 1, middle, np.minimum(middle + 1, last), last):
        breaks[line, column] = True
    if last.min() < seq - 1:
        breaks &= np.arange(seq) <= last[:, None]
    flat_positions = np.flatnonzero(breaks)
    edges = np.searchsorted(
        flat_positions, line * seq + np.stack([np.zeros_like(last), middle, last])
    )
    is_word = np.full(len(flat_positions), True)
    is_word[edges] = False
    counts = edges[2] - edges[0] - np.where(rows.b_sizes > 0, 2, 1)
    return _Words(flat_positions, np.flatnonzero(is_word), counts)


def _choose_positions(
    spec: ExampleSpec, word_starts: Bool[np.ndarray, " vocab"], rows: Rows, keys: _Keys
) -> Int[np.ndarray, " num_masked"]:
    """Flat positions of the tokens to mask, ascending."""
    words = _find_words(word_starts, rows)
    taken = np.flatnonzero(_take_ngrams(spec, words, spec.num_to_mask(rows.sizes), keys))
    firsts = words.breaks[taken]
    return ranges(firsts, words.breaks[taken + 1] - firsts)


def _take_ngrams(
    spec: ExampleSpec, words: _Words, budgets: Int[np.ndarray, " batch"], keys: _Keys
) -> Bool[np.ndarray, " breaks"]:
    """Which words are masked: all unfinished rows try a candidate, then the next."""
    sizes = _ngram_sizes(words, spec.max_ngram)
    weights = 1 / np.arange(1, spec.max_ngram + 1)
    limits = [np.uint32(share * 2**32) for share in np.cumsum(weights)[:-1] / weights.sum()]
    taken = np.full(len(words.breaks) + spec.max_ngram, False)
    deck = words.starts.copy()  # each row's candidates; a turn draws one of those not yet drawn
    firsts = np.cumsum(words.counts) - words.counts

    left = np.where(words.counts > 0, budgets, 0).astype(np.int32)
    row, turn = np.flatnonzero(left), 0
    while row.size:
        first, undrawn, row_left = firsts[row] + turn, words.counts[row] - turn, left[row]
        turns = min(_TURNS, int(undrawn.min()))
        for drawn in bits(keys[row], np.arange(turn, turn + turns)[:, None]):
            pick = first + below(drawn, undrawn)
            start = deck[pick]
            deck[pick] = deck[first]
            row_left -= _take(sizes, limits, taken, start, drawn.astype(np.uint32), row_left)
            first += 1
            undrawn -= 1
        turn += turns
        left[row] = row_left
        row = row[(row_left > 0) & (undrawn > 0)]
    return taken[: len(words.breaks)]


def _ngram_sizes(words: _Words, max_ngram: int) -> list[Int[np.ndarray, " breaks"]]:
    """Tokens in the run of 1, 2, … words from each break on; _TOO_MANY beyond the segment."""
    num = len(words.breaks)
    ends = np.append(words.breaks, np.full(max_ngram, words.breaks[-1] + 1)).astype(np.int32)
    outside = np.full(len(ends), True)
    outside[words.starts] = False
    sizes, beyond = [], np.full(num, False)
    for length in range(1, max_ngram + 1):
        beyond |= outside[length - 1 : length - 1 + num]
        run = ends[length : length + num] - ends[:num]
        run[beyond] = _TOO_MANY
        sizes.append(run)
    return sizes


def _take(
    sizes: list[Int[np.ndarray, " breaks"]],
    limits: list[np.uint32],
    taken: Bool[np.ndarray, " breaks_and_ngram"],
    start: Int[np.ndarray, " rows"],
    drawn: UInt32[np.ndarray, " rows"],
    left: Int[np.ndarray, " rows"],
) -> Int[np.ndarray, " rows"]:
    """Take the longest run up to the drawn length that fits, if no word is taken; its tokens."""
    cost = np.zeros_like(left)
    clash = np.full(left.shape, False)
    reaches = []
    for length, size in enumerate(sizes):
        run = size[start]
        reach = run <= left
        if length:
            reach &= drawn >= limits[length - 1]
        np.copyto(cost, run, where=reach)
        clash |= reach & taken[start + length]
        reaches.append(reach)
    cost[clash] = 0
    for length, reach in enumerate(reaches):
        taken[start[reach & ~clash] + length] = True
    return cost
