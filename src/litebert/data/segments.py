"""Where a text is cut into two segments. In: one shard and the places where examples begin. Out:
both segments' bounds.
 An example's lengths are drawn before its text is looked at: how long it aims to be, and how many
of these tokens its first segment gets. Then both segments are made alike: sentences from a
sentence's start on until there are enough, the overflow cut from the front or from the back by a
coin. Rows are full, and since neither lengths nor cuts know which segment came first, they cannot
tell whether the two were swapped (ALBERT §3.1: only coherence should). What is left at a document's
end is shorter and stays whole, split at a sentence boundary around its middle.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt64

from litebert.data.random import Purpose, below, bits, coin, keys, seeded, uniform
from litebert.data.spec import ExampleSpec
from litebert.data.texts import Boundaries


class Segments(NamedTuple):
    """Two spans of tokens for each example, in the order of the text, and where the next example
    begins."""

    a_start: Int[np.ndarray, " n"]
    a_size: Int[np.ndarray, " n"]
    b_start: Int[np.ndarray, " n"]
    b_size: Int[np.ndarray, " n"]
    """0 where there is only one segment."""
    next: Int[np.ndarray, " n"]


def cut_keys(seed: int, epoch: int, starts: Int[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
    """One key for the cuts of each example, which begin at token `starts` of the whole corpus."""
    return keys(seeded(seed, Purpose.CUT, epoch), starts)


def draw_sizes(
    spec: ExampleSpec, keys: UInt64[np.ndarray, " n"]
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Tokens of text that each example aims at, and how many of them its first segment gets: 1 …
    target - 1, evenly."""
    short = uniform(bits(keys, 0)) < spec.short_probability
    target = np.where(short, 2 + below(bits(keys, 1), spec.max_text - 1), spec.max_text)
    return target, 1 + below(bits(keys, 2), target - 1)


def cut(
    spec: ExampleSpec,
    boundaries: Boundaries,
    starts: Int[np.ndarray, " n"],
    ends: Int[np.ndarray, " n"],
    keys: UInt64[np.ndarray, " n"],
) -> Segments:
    """Segments of the examples that begin at `starts`; `ends` is where their documents' tokens
    end."""
    target, share = draw_sizes(spec, keys)
    if spec.cutting == "last":
        return _cut_last(spec, boundaries, starts, ends, keys, target)
    middle = boundaries.at_or_after(starts + share)
    full = middle <= ends - (target - share)  # the document goes on long enough for both
    end = np.where(
        full, boundaries.at_or_after(np.where(full, middle, starts) + target - share), ends
    )
    rest = np.flatnonzero(~full)
    # from the middle half: near the ends, a document's first and last sentences would show by their
    # lengths
    middle[rest] = _nearest(
        boundaries, starts[rest], ends[rest], 0.25 + 0.5 * share[rest] / target[rest]
    )

    a_room, b_room = middle - starts, end - middle
    wanted = np.minimum(target, a_room + b_room)
    a_size = np.clip(share, wanted - b_room, np.minimum(a_room, wanted))
    b_size = wanted - a_size
    fronts = bits(keys, 3)
    a_start = starts + np.where(coin(fronts), a_room - a_size, 0)
    b_start = middle + np.where(coin(fronts >> np.uint64(1)), b_room - b_size, 0)
    return Segments(a_start, a_size, b_start, b_size, end)


def _nearest(
    boundaries: Boundaries,
    starts: Int[np.ndarray, " n"],
    ends: Int[np.ndarray, " n"],
    shares: np.ndarray,
) -> Int[np.ndarray, " n"]:
    """The boundary inside (start, end) nearest to the share; `end` itself where there is none."""
    places = starts + np.maximum(1, np.rint(shares * (ends - starts)).astype(np.int64))
    above = boundaries.at_or_after(places)
    under = boundaries.before(places)
    low, high = under > starts, above < ends
    closer = (places - under) < (above - places)
    return np.where(low & (closer | ~high), under, np.where(high, above, ends))


def _cut_last(
    spec: ExampleSpec,
    boundaries: Boundaries,
    starts: Int[np.ndarray, " n"],
    ends: Int[np.ndarray, " n"],
    keys: UInt64[np.ndarray, " n"],
    target: Int[np.ndarray, " n"],
) -> Segments:
    """The plain way: sentences until there are enough, split at any boundary alike, the last one's
    overflow cut off."""
    end = np.minimum(boundaries.at_or_after(starts + target), ends)
    first = np.searchsorted(boundaries.sentences, starts, side="right")
    count = np.searchsorted(boundaries.sentences, end) - first  # boundaries strictly inside
    chosen = first + below(bits(keys, 4), np.maximum(count, 1))
    middle = np.where(
        count > 0, boundaries.sentences[np.minimum(chosen, len(boundaries.sentences) - 1)], end
    )
    a_size = np.minimum(middle - starts, spec.max_text)
    b_size = np.minimum(end - middle, spec.max_text - a_size)
    return Segments(starts, a_size, middle, b_size, end)
