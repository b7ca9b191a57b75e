"""Which examples an epoch has, and where each is cut into two segments.

In: shards, a spec, a seed and an epoch. Out: where each example begins; its segments are cut again
when it is read, so that an example costs 12 bytes here.

An example's lengths are drawn before its text is read: its target length, and how many of these
tokens its first segment gets. Then both segments are cut alike: sentences from a sentence's start
until there are enough, the overflow cut from the front or from the back by a coin. Rows are full,
and neither lengths nor cuts depend on which segment came first, so they cannot reveal a swap
(ALBERT §3.1: only coherence should). The shorter rest of a document is split at a sentence boundary
near its middle.

All documents advance together, one example a turn, so that a turn is a few array operations. A very
long document is divided into stretches, which advance together like documents.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from litebert.data.random import Permutation, Purpose, below, bits, coin, keys, seeded, uniform
from litebert.data.spec import ExampleSpec, Split
from litebert.data.texts import Boundaries, Ints, Text, Texts

_Keys = UInt64[np.ndarray, " n"]
STRETCH = 1 << 16
"""Tokens after which a document is divided, at the next sentence; bounds the number of turns."""


class Segments(NamedTuple):
    """Two spans of tokens for each example, in text order, and where the next example begins."""

    a_start: Ints
    a_size: Ints
    b_start: Ints
    b_size: Ints
    """0 where there is only one segment."""
    next: Ints


def cut_keys(seed: int, epoch: int, starts: Ints) -> _Keys:
    """One key for the cuts of each example, which begins at token `starts` of the corpus."""
    return keys(seeded(seed, Purpose.CUT, epoch), starts)


def draw_sizes(spec: ExampleSpec, keys: _Keys) -> tuple[Ints, Ints]:
    """Target length of each example in tokens of text, and how many of them its first segment gets:
    1 … target - 1, uniformly."""
    short = uniform(bits(keys, 0)) < spec.short_probability
    target = np.where(short, 2 + below(bits(keys, 1), spec.max_text - 1), spec.max_text)
    return target, 1 + below(bits(keys, 2), target - 1)


def cut(
    spec: ExampleSpec, boundaries: Boundaries, starts: Ints, ends: Ints, keys: _Keys
) -> Segments:
    """Segments of the examples from `starts` on, whose documents' tokens end at `ends`."""
    target, share = draw_sizes(spec, keys)
    if spec.cutting == "last":
        return _cut_last(spec, boundaries, starts, ends, keys, target)
    middle = boundaries.at_or_after(starts + share)
    full = middle <= ends - (target - share)  # the document is long enough for both
    end = np.where(
        full, boundaries.at_or_after(np.where(full, middle, starts) + target - share), ends
    )
    rest = np.flatnonzero(~full)
    # from the middle half: near the ends, lengths would show first and last sentences
    middle[rest] = _nearest(
        boundaries, starts[rest], ends[rest], 0.25 + 0.5 * share[rest] / target[rest]
    )

    a_room, b_room = middle - starts, end - middle
    size = np.minimum(target, a_room + b_room)
    a_size = np.clip(share, size - b_room, np.minimum(a_room, size))
    b_size = size - a_size
    fronts = bits(keys, 3)
    a_start = starts + np.where(coin(fronts), a_room - a_size, 0)
    b_start = middle + np.where(coin(fronts >> np.uint64(1)), b_room - b_size, 0)
    return Segments(a_start, a_size, b_start, b_size, end)


def _nearest(
    boundaries: Boundaries, starts: Ints, ends: Ints, shares: Float[np.ndarray, " n"]
) -> Ints:
    """The boundary inside (start, end) nearest to the share; `end` itself where there is none."""
    positions = starts + np.maximum(1, np.rint(shares * (ends - starts)).astype(np.int64))
    above = boundaries.at_or_after(positions)
    under = boundaries.before(positions)
    low, high = under > starts, above < ends
    closer = (positions - under) < (above - positions)
    return np.where(low & (closer | ~high), under, np.where(high, above, ends))


def _cut_last(
    spec: ExampleSpec, boundaries: Boundaries, starts: Ints, ends: Ints, keys: _Keys, target: Ints
) -> Segments:
    """Sentences until there are enough, split at a random boundary, the last one truncated."""
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


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """The examples of one epoch, in the order of the corpus."""

    epoch: int
    starts: Int[np.ndarray, " examples"]
    """The token of the corpus at which an example's text begins."""
    rooms: Int[np.ndarray, " examples"]
    """Tokens from there to the end of its document, or of its stretch."""
    order: Permutation
    """The number of the example at each place of the epoch."""

    def __len__(self) -> int:
        return len(self.starts)


def is_heldout(documents: Ints, fraction: float) -> Bool[np.ndarray, " n"]:
    """Whether a document is held out: by its number alone, so that no seed mixes the splits."""
    return uniform(keys(seeded(0, Purpose.SPLIT), documents)) < fraction


def plan_epoch(
    texts: Texts, spec: ExampleSpec, *, seed: int, epoch: int, split: Split = "train"
) -> Plan:
    """Cut every document of the split into examples."""
    of_shards = [
        _plan_text(text, spec, seed=seed, epoch=spec.drawn_epoch(epoch), split=split)
        for text in texts.shards
    ]
    starts = np.concatenate([np.zeros(0, np.int64), *(starts for starts, _ in of_shards)])
    rooms = np.concatenate([np.zeros(0, np.int32), *(rooms for _, rooms in of_shards)])
    return Plan(
        epoch=epoch,
        starts=starts,
        rooms=rooms,
        order=Permutation(size=len(starts), key=seeded(seed, Purpose.SHUFFLE, epoch)),
    )


def _plan_text(
    text: Text, spec: ExampleSpec, *, seed: int, epoch: int, split: Split
) -> tuple[Ints, Ints]:
    """Starts and rooms of one shard."""
    start, end = _stretches(text, spec, split)
    starts, rooms = [start[:0]], [start[:0]]
    keeps_one = spec.one_segment == "random" or spec.order == "none"
    while start.size:
        segments = cut(
            spec, text.boundaries, start, end, cut_keys(seed, epoch, start + text.first_token)
        )
        is_kept = (segments.b_size > 0) | keeps_one
        starts.append(start[is_kept])
        rooms.append((end - start)[is_kept])
        goes_on = segments.next < end
        start, end = segments.next[goes_on], end[goes_on]
    first, room = np.concatenate(starts), np.concatenate(rooms)
    order = np.argsort(first, kind="stable")
    return first[order] + text.first_token, room[order].astype(np.int32)


def _stretches(text: Text, spec: ExampleSpec, split: Split) -> tuple[Ints, Ints]:
    """Where documents of the split begin and end in tokens, the very long ones divided."""
    bounds = text.sentences[text.documents]
    start, end = np.asarray(bounds[:-1]), np.asarray(bounds[1:])
    if split != "all":
        heldout = is_heldout(np.arange(len(start)) + text.first_document, spec.heldout_fraction)
        chosen = heldout if split == "heldout" else ~heldout
        start, end = start[chosen], end[chosen]
    has_text = end > start
    start, end = start[has_text], end[has_text]
    long = np.flatnonzero(end - start > STRETCH)
    inner = [np.arange(start[d] + STRETCH, end[d], STRETCH) for d in long]
    if not inner:
        return start, end
    positions = text.boundaries.at_or_after(np.concatenate(inner))
    starts = np.unique(np.concatenate([start, positions]))
    # a stretch ends where the next one or its document does
    ends = np.minimum(
        np.append(starts[1:], np.iinfo(np.int64).max),
        end[np.searchsorted(start, starts, side="right") - 1],
    )
    return starts[starts < ends], ends[starts < ends]
