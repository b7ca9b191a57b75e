"""Long texts in windows: lengths in, where each window begins and ends out, and which tokens each
one answers for.
 Windows overlap, so a token may stand in several; it belongs to the one that shows the most of its
surroundings on its poorer side (BERT's rule of the most context, here in closed form: neighbors
part in the middle of their overlap). (facts: SQuAD)
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

Numbers = Int[np.ndarray, " texts"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Windows:
    """All windows of all texts, one after another; positions are tokens of the text."""

    texts: Int[np.ndarray, " windows"]
    """Number of the text that each window shows."""
    starts: Int[np.ndarray, " windows"]
    stops: Int[np.ndarray, " windows"]
    cores: Int[np.ndarray, "windows 2"]
    """Tokens that each window answers for, from and up to; together every token once."""


def windows(lengths: Numbers, rooms: Numbers, stride: int) -> Windows:
    """Windows of `rooms[i]` tokens over a text of `lengths[i]`, `stride` apart, or half a window
    where that is less.

    windows of 10 tokens, room 6, stride 2 -> 0…6, 2…8, 4…10 with the cores 0…4, 4…6, 6…10
    """
    strides = np.minimum(stride, np.maximum(rooms // 2, 1))
    counts = 1 + -(-np.maximum(lengths - rooms, 0) // strides)
    texts = np.repeat(np.arange(len(lengths)), counts)
    last = np.cumsum(counts) - 1
    numbers = np.arange(len(texts)) - np.repeat(last - counts + 1, counts)
    starts = numbers * strides[texts]
    stops = np.minimum(starts + rooms[texts], lengths[texts])
    cores = np.stack([starts, stops], 1)
    after = np.flatnonzero(numbers > 0)
    cores[after, 0] = cores[after - 1, 1] = (starts[after] + stops[after - 1]) // 2
    return Windows(texts=texts, starts=starts, stops=stops, cores=cores)
