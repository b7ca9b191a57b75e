"""From spans of the corpus to a batch of masked, ordered examples; and to the arrays that travel to
a device.

Examples are paired (which segment comes first), assembled ([CLS] a [SEP] b [SEP]) and masked. All
of it is pure.

After the last layer only the masked tokens and each row's [CLS] are read, so `needed` lists those:
for each row [CLS], its masked tokens, and [CLS] again until every row has as many. Shapes follow
from the number of rows, the most masked tokens in a row and (packed) a rounded number of tokens, so
that compiled code and CUDA graphs see few of them.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8, UInt64

from litebert.data.masking import Rows, Vocabulary, mask_rows
from litebert.data.pairs import Pairs, make_pairs
from litebert.data.plan import Plan
from litebert.data.random import Purpose, bits, keys, seeded
from litebert.data.spec import ExampleSpec
from litebert.data.texts import Texts
from litebert.packing import (
    IGNORED,
    PACKED_MULTIPLE,
    HostBatch,
    SpecialIds,
    frame_rows,
    needed_positions,
    pad_to,
    padding_rows,
    round_up,
    row_bounds,
    row_positions,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Masked, ordered examples: [CLS] a [SEP] b [SEP] and padding in each row."""

    token_ids: Int[np.ndarray, "batch seq"]
    """int32, with the masked tokens already replaced."""
    segment_ids: UInt8[np.ndarray, "batch seq"]
    """0 for [CLS] a [SEP] and padding, 1 for b [SEP]."""
    mask: Bool[np.ndarray, "batch seq"]
    """True for a real token."""
    masked_positions: Int[np.ndarray, " num_masked"]
    """int64, row × seq + column of each token to predict, ascending."""
    masked_labels: Int[np.ndarray, " num_masked"]
    """int32, the token that stood there."""
    order_labels: Int[np.ndarray, " batch"]
    """int32: 0 in order or next, 1 swapped or of another document."""
    indices: Int[np.ndarray, " batch"]
    """int64, the number of each example in its epoch's plan."""
    mask_fraction: float = 1.0
    """Fraction of an example's tokens to predict, at most."""
    sample_keys: UInt64[np.ndarray, " batch"] | None = None
    """A key for each example, from which a generator's samples are drawn."""
    _cuts: "dict[tuple[int, int], Batch]" = field(default_factory=dict, init=False, repr=False)
    """Slices returned by `rows`, by their first row and the row after their last."""

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def num_masked(self) -> int:
        return len(self.masked_positions)

    @property
    def num_tokens(self) -> int:
        """Real tokens, without padding."""
        return int(np.count_nonzero(self.mask))

    @property
    def is_full(self) -> bool:
        """Whether no row is padded, so that attention needs no mask."""
        return bool(self.mask.all())

    def rows(self, start: int, stop: int) -> "Batch":
        """Rows start … stop - 1 as a batch of their own, this batch itself where it is all; the
        same object each time, by which a prefetched HostBatch is recognized."""
        if start == 0 and stop >= len(self):
            return self
        if (start, stop) in self._cuts:
            return self._cuts[start, stop]
        seq = self.token_ids.shape[1]
        low, high = np.searchsorted(self.masked_positions, [start * seq, stop * seq])
        self._cuts[start, stop] = Batch(
            token_ids=self.token_ids[start:stop],
            segment_ids=self.segment_ids[start:stop],
            mask=self.mask[start:stop],
            masked_positions=self.masked_positions[low:high] - start * seq,
            masked_labels=self.masked_labels[low:high],
            order_labels=self.order_labels[start:stop],
            indices=self.indices[start:stop],
            mask_fraction=self.mask_fraction,
            sample_keys=None if self.sample_keys is None else self.sample_keys[start:stop],
        )
        return self._cuts[start, stop]

    def padded(self, *, most_masked: int | None = None, draws: bool = False) -> HostBatch:
        """Rows side by side. With `most_masked`, the most masked tokens in a row, shapes do not
        depend on the content. `draws`: with the uniform numbers that a generator samples by."""
        rows, seq = self.token_ids.shape
        needed, masked = self._needed(np.arange(rows) * seq, most_masked)
        size = self.num_masked if most_masked is None else rows * most_masked
        arrays = {
            "token_ids": self.token_ids.astype(np.int64),
            "segment_ids": self.segment_ids.astype(np.int64),
            "needed": needed,
            **self._targets(masked, size, needed.shape[1], draws=draws),
        }
        if not self.is_full:
            arrays["mask"] = self.mask
        return HostBatch(arrays=arrays, longest=seq, most_needed=needed.shape[1])

    def packed(
        self,
        *,
        most_masked: int,
        fraction: float,
        multiple: int = PACKED_MULTIPLE,
        draws: bool = False,
    ) -> HostBatch:
        """Rows end to end; at most `fraction` of the tokens are masked."""
        rows, seq = self.token_ids.shape
        lengths = self.mask.sum(1)
        real = int(lengths.sum())
        tokens = round_up(real, multiple)
        padding = padding_rows(tokens - real, longest=seq, most=multiple)
        bounds = row_bounds(np.concatenate([lengths, padding]))
        needed, masked = self._needed(bounds[:rows], most_masked)
        width = needed.shape[1]
        arrays = {
            "token_ids": pad_to(self.token_ids[self.mask].astype(np.int64), tokens, 0)[None],
            "segment_ids": pad_to(self.segment_ids[self.mask].astype(np.int64), tokens, 0)[None],
            "needed": needed.reshape(1, -1),
            # each row masks its share, rounded, and one token at least
            **self._targets(masked, int(fraction * tokens) + rows, width, draws=draws),
            "positions": row_positions(bounds)[None],
            "bounds": bounds.astype(np.int32),
            "needed_bounds": (np.minimum(np.arange(len(bounds)), rows) * width).astype(np.int32),
        }
        return HostBatch(arrays=arrays, longest=seq, most_needed=width)

    def _needed(
        self, starts: Int[np.ndarray, " rows"], most_masked: int | None
    ) -> tuple[Int[np.ndarray, "rows needed"], Int[np.ndarray, " num_masked"]]:
        row, column = np.divmod(self.masked_positions, self.token_ids.shape[1])
        return needed_positions(starts, row, column, most=most_masked)

    def _targets(
        self, masked: Int[np.ndarray, " num_masked"], size: int, num_needed: int, *, draws: bool
    ) -> dict[str, np.ndarray]:
        """What the losses read, with exactly `size` masked tokens: the added ones are ignored."""
        assert len(masked) <= size, "more masked positions than the recipe allows"
        return ({"draws": pad_to(self._draws(), size, 0)} if draws else {}) | {
            "first": np.arange(len(self)) * num_needed,
            "masked": pad_to(masked, size, 0),
            "masked_labels": pad_to(self.masked_labels.astype(np.int64), size, IGNORED),
            "order_labels": self.order_labels.astype(np.int64),
        }

    def _draws(self) -> Float[np.ndarray, "num_masked 2"]:
        """Two uniform numbers in [0, 1) for each masked token, of its example and column alone."""
        assert self.sample_keys is not None, "a batch of a stream has keys to sample by"
        row, column = np.divmod(self.masked_positions, self.token_ids.shape[1])
        words = bits(self.sample_keys[row][:, None], 2 * column[:, None] + np.arange(2))
        # 24 bits, which float32 holds exactly: rounding up to 1 would leave the distribution
        return (words >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def make_batch(
    texts: Texts,
    vocabulary: Vocabulary,
    spec: ExampleSpec,
    chosen: list[tuple[Plan, Int[np.ndarray, " _n"]]],
    *,
    seed: int,
) -> Batch:
    """One batch of examples of one or more epochs, padded to max_length."""
    drawn = [make_pairs(texts, spec, plan, numbers, seed=seed) for plan, numbers in chosen]
    pairs = Pairs(*(np.concatenate(columns) for columns in zip(*drawn, strict=True)))
    choose_keys, replace_keys = (
        np.concatenate(
            [keys(seeded(seed, why, spec.drawn_epoch(p.epoch)), p.starts[n]) for p, n in chosen]
        )
        for why in (Purpose.CHOOSE, Purpose.REPLACE)
    )
    rows, segment_ids, mask = assemble_rows(texts, vocabulary, pairs, max_length=spec.max_length)
    masked = mask_rows(spec, vocabulary, rows, choose_keys, replace_keys)
    return Batch(
        token_ids=masked.token_ids,
        segment_ids=segment_ids,
        mask=mask,
        masked_positions=masked.masked_positions,
        masked_labels=masked.masked_labels,
        order_labels=pairs.labels,
        indices=np.concatenate([numbers for _, numbers in chosen]),
        mask_fraction=spec.mask_fraction,
        sample_keys=np.concatenate(
            [keys(seeded(seed, Purpose.SAMPLE, p.epoch), p.starts[n]) for p, n in chosen]
        ),
    )


def assemble_rows(
    texts: Texts, vocabulary: Vocabulary, pairs: Pairs, *, max_length: int
) -> tuple[Rows, UInt8[np.ndarray, "batch seq"], Bool[np.ndarray, "batch seq"]]:
    """[CLS] a [SEP] b [SEP] and padding, nothing masked yet; segment ids; which tokens are real."""
    special = SpecialIds(vocabulary.cls_id, vocabulary.sep_id, vocabulary.pad_id)
    sizes = pairs.a_size, pairs.b_size, pairs.b_size > 0
    framed = frame_rows(*sizes, special, width=max_length, dtype=np.int32)
    token_ids = framed.token_ids
    texts.copy(pairs.a_start, pairs.a_size, token_ids, np.ones_like(pairs.a_size))
    texts.copy(pairs.b_start, pairs.b_size, token_ids, pairs.a_size + 2)
    rows = Rows(token_ids, pairs.a_size, pairs.b_size)
    return rows, framed.is_second.astype(np.uint8), framed.mask
