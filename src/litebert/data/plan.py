"""Which examples an epoch has. In: shards, a spec, a seed and an epoch. Out: where each example
begins.
 A document is cut from its start: an example, then the next where that one ended. All documents
advance together, one example a turn, so that the work is a few array operations a turn; a very long
document is divided into stretches, which advance together like documents do. An example costs 12
bytes here; its segments are cut again when it is read.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from litebert.data.random import Permutation, Purpose, keys, seeded, uniform
from litebert.data.segments import cut, cut_keys
from litebert.data.spec import ExampleSpec, Split
from litebert.data.texts import Text, Texts

STRETCH = 1 << 16
"""Tokens after which a document is divided, at the next sentence: bounds the number of turns."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """The examples of one epoch, in the order of the corpus."""

    epoch: int
    starts: Int[np.ndarray, " examples"]
    """The token of the corpus at which an example's text begins."""
    rooms: Int[np.ndarray, " examples"]
    """Tokens from there to the end of what it may read: of its document, or of its stretch."""
    order: Permutation
    """Which example stands at each place of the epoch."""
    num_dropped: int
    """Sentences left alone at a document's end, and dropped."""
    num_long: int
    """Sentences longer than a whole example, taken as pieces."""

    def __len__(self) -> int:
        return len(self.starts)


def is_heldout(documents: Int[np.ndarray, " n"], fraction: float) -> Bool[np.ndarray, " n"]:
    """Whether a document is kept for evaluation: decided by its number alone, so that no seed can
    mix the splits."""
    return uniform(keys(seeded(0, Purpose.SPLIT), documents)) < fraction


def plan_epoch(
    texts: Texts, spec: ExampleSpec, *, seed: int, epoch: int, split: Split = "train"
) -> Plan:
    """Cut every document of the split into examples."""
    parts = [
        _plan_text(text, spec, seed=seed, epoch=spec.drawn_epoch(epoch), split=split)
        for text in texts.parts
    ]
    starts = np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)])
    rooms = np.concatenate([np.zeros(0, np.int32), *(part[1] for part in parts)])
    return Plan(
        epoch=epoch,
        starts=starts,
        rooms=rooms,
        order=Permutation(size=len(starts), key=seeded(seed, Purpose.SHUFFLE, epoch)),
        num_dropped=sum(part[2] for part in parts),
        num_long=sum(text.boundaries.num_long for text in texts.parts),
    )


def _plan_text(
    text: Text, spec: ExampleSpec, *, seed: int, epoch: int, split: Split
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"], int]:
    """Starts, rooms and the number of dropped sentences of one shard."""
    start, end = _stretches(text, spec, split)
    starts, rooms, num_dropped = [start[:0]], [start[:0]], 0
    while start.size:
        found = cut(
            spec, text.boundaries, start, end, cut_keys(seed, epoch, start + text.first_token)
        )
        whole = np.full(start.shape, True) if _keeps_one_segment(spec) else found.b_size > 0
        num_dropped += int(np.count_nonzero(~whole))
        starts.append(start[whole])
        rooms.append((end - start)[whole])
        going = found.next < end
        start, end = found.next[going], end[going]
    first, room = np.concatenate(starts), np.concatenate(rooms)
    order = np.argsort(first, kind="stable")
    return first[order] + text.first_token, room[order].astype(np.int32), num_dropped


def _keeps_one_segment(spec: ExampleSpec) -> bool:
    return spec.one_segment == "random" or spec.order == "none"


def _stretches(
    text: Text, spec: ExampleSpec, split: Split
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """Where documents of the split begin and end in tokens, the very long ones divided."""
    bounds = text.sentences[text.documents]
    start, end = np.asarray(bounds[:-1]), np.asarray(bounds[1:])
    if split != "all":
        heldout = is_heldout(np.arange(len(start)) + text.first_document, spec.heldout_fraction)
        chosen = heldout if split == "heldout" else ~heldout
        start, end = start[chosen], end[chosen]
    filled = end > start
    start, end = start[filled], end[filled]
    long = np.flatnonzero(end - start > STRETCH)
    inner = [np.arange(start[d] + STRETCH, end[d], STRETCH) for d in long]
    if not inner:
        return start, end
    places = text.boundaries.at_or_after(np.concatenate(inner))
    starts = np.unique(np.concatenate([start, places]))
    # a stretch ends where the next one or its document does
    ends = np.minimum(
        np.append(starts[1:], np.iinfo(np.int64).max),
        end[np.searchsorted(start, starts, side="right") - 1],
    )
    return starts[starts < ends], ends[starts < ends]
