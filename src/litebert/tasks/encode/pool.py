"""Texts in, their token ids out: every text once, however many inputs share it (a RACE article has
up to 20 options)."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from litebert.text.pieces import Ids
from litebert.text.tokenizer import Tokenizer

Slices = Int[np.ndarray, "rows 2"]
"""From and up to which token of the pool."""
_CHUNK = 8192  # texts at a time: SentencePiece gives an array for each


def pool_texts(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[Ids, Slices]:
    """The ids of all different texts, one after another, and where each of `texts` lies."""
    different, numbers = distinct(texts)
    parts = [
        tokenizer.encode_flat(different[at : at + _CHUNK])
        for at in range(0, len(different), _CHUNK)
    ]
    lengths = [np.diff(bounds) for _, bounds in parts]
    ids = np.concatenate([np.zeros(0, np.int32), *(ids for ids, _ in parts)], dtype=np.int32)
    return ids, side_by_side(np.concatenate([np.zeros(0, np.int64), *lengths]))[numbers]


def distinct(texts: Sequence[str]) -> tuple[list[str], Int[np.ndarray, " texts"]]:
    """The different texts in the order they first come, and for each text which one of these it
    is."""
    numbers: dict[str, int] = {}
    found = np.fromiter(
        (numbers.setdefault(text, len(numbers)) for text in texts), np.int64, len(texts)
    )
    return list(numbers), found


def side_by_side(lengths: Int[np.ndarray, " parts"]) -> Slices:
    """Where parts of these lengths lie, one after another."""
    stops = np.cumsum(lengths)
    return np.stack([stops - lengths, stops], 1)


def gather(ids: Ids, slices: Slices) -> Ids:
    """The slices of `ids`, one after another."""
    lengths = slices[:, 1] - slices[:, 0]
    starts = np.cumsum(lengths) - lengths
    chosen: Ids = ids[np.arange(lengths.sum()) + np.repeat(slices[:, 0] - starts, lengths)]
    return chosen
