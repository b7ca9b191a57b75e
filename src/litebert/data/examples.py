"""From places in the corpus to a batch. In: texts, plans and the numbers of some examples. Out:
masked, ordered rows.
 The stations in a row: pairs (which segment comes first), layout ([CLS] a [SEP] b [SEP]), masking.
All of it is pure.
"""

import numpy as np
from jaxtyping import Bool, Int, UInt8

from litebert.data.batch import Batch
from litebert.data.masking import Rows, Vocabulary, hide
from litebert.data.pairs import Pairs, make_pairs
from litebert.data.plan import Plan
from litebert.data.random import Purpose, keys, seeded
from litebert.data.spec import ExampleSpec
from litebert.data.texts import Texts
from litebert.packing import SpecialIds, frame_rows, round_up


def make_batch(
    texts: Texts,
    vocabulary: Vocabulary,
    spec: ExampleSpec,
    parts: list[tuple[Plan, Int[np.ndarray, " n"]]],
    *,
    seed: int,
    pad_multiple: int | None = None,
) -> Batch:
    """One batch of examples of one or more epochs; pad_multiple: none pads to max_length."""
    made = [make_pairs(texts, spec, plan, numbers, seed=seed) for plan, numbers in parts]
    pairs = Pairs(*(np.concatenate(columns) for columns in zip(*made, strict=True)))
    choose_keys, replace_keys = (
        np.concatenate(
            [keys(seeded(seed, why, spec.drawn_epoch(p.epoch)), p.starts[n]) for p, n in parts]
        )
        for why in (Purpose.CHOOSE, Purpose.REPLACE)
    )
    rows, segment_ids, mask = lay_out(
        texts, vocabulary, pairs, max_length=spec.max_length, pad_multiple=pad_multiple
    )
    hidden = hide(spec, vocabulary, rows, choose_keys, replace_keys)
    return Batch(
        token_ids=hidden.token_ids,
        segment_ids=segment_ids,
        mask=mask,
        masked_positions=hidden.masked_positions,
        masked_labels=hidden.masked_labels,
        order_labels=pairs.labels,
        indices=np.concatenate([numbers for _, numbers in parts]),
    )


def lay_out(
    texts: Texts,
    vocabulary: Vocabulary,
    pairs: Pairs,
    *,
    max_length: int,
    pad_multiple: int | None = None,
) -> tuple[Rows, UInt8[np.ndarray, "batch seq"], Bool[np.ndarray, "batch seq"]]:
    """[CLS] a [SEP] b [SEP] and padding, nothing masked yet; segment ids; which tokens are real."""
    shape = Rows(np.zeros((0, 0), np.int32), pairs.a_size, pairs.b_size)
    width = max_length
    if pad_multiple is not None:
        width = min(max_length, round_up(int(shape.sizes.max()), pad_multiple))
    special = SpecialIds(vocabulary.cls_id, vocabulary.sep_id, vocabulary.pad_id)
    sizes = pairs.a_size, pairs.b_size, pairs.b_size > 0
    framed = frame_rows(*sizes, special, width=width, dtype=np.int32)
    token_ids = framed.token_ids
    texts.copy(pairs.a_start, pairs.a_size, token_ids, np.ones_like(pairs.a_size))
    texts.copy(pairs.b_start, pairs.b_size, token_ids, pairs.a_size + 2)
    return shape._replace(token_ids=token_ids), framed.is_second.astype(np.uint8), framed.mask
