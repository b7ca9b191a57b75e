"""Which segment comes first, and what follows it. ALBERT §3.1 (sentence order), BERT §3.1 (next
sentence).

In: an epoch's plan and the numbers of some examples. Out: segments a and b as spans of the corpus,
and the order label. sop: the two segments of a text, swapped for half of the examples (label 1).
nsp: b is taken from another document for half (label 1). none: as the text has them.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from litebert.data.plan import Plan, Segments, cut, cut_keys, draw_sizes
from litebert.data.random import Purpose, below, bits, coin, keys, seeded
from litebert.data.spec import ExampleSpec
from litebert.data.texts import Ints, Texts

_TRIES = 8
"""Examples tried for a segment of another document that is long enough."""


class Pairs(NamedTuple):
    """Segments a and b of some examples, as spans of the corpus."""

    a_start: Ints
    a_size: Ints
    b_start: Ints
    b_size: Ints
    labels: Ints


def make_pairs(texts: Texts, spec: ExampleSpec, plan: Plan, numbers: Ints, *, seed: int) -> Pairs:
    """The pairs of examples `numbers` of the plan."""
    epoch = spec.drawn_epoch(plan.epoch)
    starts = plan.starts[numbers]
    segments = cut_everywhere(texts, spec, plan, numbers, seed=seed)
    flips = coin(bits(keys(seeded(seed, Purpose.ORDER, epoch), starts), 0))
    pairs = Pairs(*segments[:4], np.zeros(len(starts), np.int32))
    if spec.order == "sop":
        pairs = _swap(pairs, flips & (pairs.b_size > 0))
    strangers = np.full(len(starts), False)
    if spec.order != "none" and spec.one_segment == "random":
        strangers |= pairs.b_size == 0
    if spec.order == "nsp":
        strangers |= flips
    if not strangers.any():
        return pairs
    return _replace(texts, spec, plan, numbers, pairs, strangers, seed=seed)


def cut_everywhere(
    texts: Texts, spec: ExampleSpec, plan: Plan, numbers: Ints, *, seed: int
) -> Segments:
    """The segments of examples of any shards, in positions of the corpus."""
    starts, rooms = plan.starts[numbers], plan.rooms[numbers]
    drawn = cut_keys(seed, spec.drawn_epoch(plan.epoch), starts)
    everywhere = Segments(*(np.zeros_like(starts) for _ in Segments._fields))
    for shard, chosen in texts.grouped(starts):
        first = starts[chosen] - shard.first_token
        segments = cut(spec, shard.boundaries, first, first + rooms[chosen], drawn[chosen])
        for name, values in segments._asdict().items():
            getattr(everywhere, name)[chosen] = (
                values if name.endswith("size") else values + shard.first_token
            )
    return everywhere


def _swap(pairs: Pairs, swapped: Bool[np.ndarray, " n"]) -> Pairs:
    return Pairs(
        np.where(swapped, pairs.b_start, pairs.a_start),
        np.where(swapped, pairs.b_size, pairs.a_size),
        np.where(swapped, pairs.a_start, pairs.b_start),
        np.where(swapped, pairs.a_size, pairs.b_size),
        swapped.astype(np.int32),
    )


def _replace(
    texts: Texts,
    spec: ExampleSpec,
    plan: Plan,
    numbers: Ints,
    pairs: Pairs,
    strangers: Bool[np.ndarray, " n"],
    *,
    seed: int,
) -> Pairs:
    """Replace b by a segment of another document, as long as b was or would have been."""
    chosen = np.flatnonzero(strangers)
    starts, epoch = plan.starts[numbers[chosen]], spec.drawn_epoch(plan.epoch)
    target, share = draw_sizes(spec, cut_keys(seed, epoch, starts))
    alone = pairs.b_size[chosen] == 0
    a_size = np.where(alone, np.minimum(share, pairs.a_size[chosen]), pairs.a_size[chosen])
    wanted = np.where(alone, target - a_size, pairs.b_size[chosen])

    other_keys = keys(seeded(seed, Purpose.OTHER, epoch), starts)
    other = _find_others(texts, plan, starts, wanted, other_keys)
    size = np.minimum(wanted, plan.rooms[other])
    spare = np.zeros_like(size)
    for shard, here in texts.grouped(plan.starts[other]):
        end = plan.starts[other][here] + size[here] - shard.first_token
        spare[here] = shard.boundaries.at_or_after(end) - end
    front = np.where(coin(bits(other_keys, _TRIES)), spare, 0)
    result = Pairs(*(values.copy() for values in pairs))
    result.a_size[chosen], result.b_size[chosen], result.labels[chosen] = a_size, size, 1
    result.b_start[chosen] = plan.starts[other] + front
    return result


def _find_others(
    texts: Texts, plan: Plan, starts: Ints, wanted: Ints, other_keys: np.ndarray
) -> Ints:
    """For each example one of another document, with room for the wanted tokens if possible."""
    tries = below(bits(other_keys[:, None], np.arange(_TRIES)), len(plan))
    own = texts.documents_of(starts)
    away = texts.documents_of(plan.starts[tries.reshape(-1)]).reshape(tries.shape) != own[:, None]
    roomy = away & (plan.rooms[tries] >= wanted[:, None])
    pick = np.where(roomy.any(1), roomy.argmax(1), away.argmax(1))
    others: Ints = tries[np.arange(len(starts)), pick]
    # one document may hold nearly all: then the next document's first, or the corpus's
    lost = np.flatnonzero(~away.any(1))
    if lost.size:
        owners = texts.documents_of(plan.starts)
        others[lost] = np.searchsorted(owners, own[lost], side="right") % len(plan)
    return others
