"""A batch as the model reads it: padded rows side by side, or rows end to end without padding. In:
a Batch. Out: arrays.
 Only the masked tokens and each row's [CLS] are read after the last layer, so their places are
listed: `needed` has for each row [CLS], its masked tokens, and [CLS] again until every row has as
many. Shapes follow from the number of rows, the most tokens a row hides and (packed) a rounded
count of tokens: compiled code and CUDA graphs meet the same few shapes.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Int

from litebert.data.arrays import Arrays
from litebert.data.batch import Batch

if TYPE_CHECKING:
    import torch

IGNORED = -100
"""The label that cross-entropy passes over."""
MULTIPLE = 1024
"""A packed batch is filled up to a multiple of this many tokens, with rows that nobody reads."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout(Arrays):
    """Arrays by the names of TensorBatch."""

    mask: Bool[np.ndarray, "batch seq"] | None = None

    @property
    def is_static(self) -> bool:
        """Whether the arrays are all there is, so that a CUDA graph can read it: a mask is none of
        them."""
        return self.mask is None

    def tensors(self, device: "torch.device | str" = "cpu") -> "TensorBatch":
        """The same on a device."""
        import torch

        mask = None if self.mask is None else torch.from_numpy(self.mask)
        if mask is not None and torch.device(device).type != "cpu":
            mask = mask.pin_memory().to(device, non_blocking=True)
        return TensorBatch(**self.on(device), mask=mask, longest=self.longest)

    def split(self, flat: "torch.Tensor") -> "TensorBatch":
        """The batch that lies in `flat`, which `flat()` filled."""
        assert self.is_static, "a mask lies elsewhere"
        return TensorBatch(**self.views(flat), mask=None, longest=self.longest)


@dataclass(frozen=True, kw_only=True, eq=False)
class TensorBatch:
    """What the objective reads: tensors of int64 but for the mask."""

    token_ids: "torch.Tensor"
    """(rows, seq), or (1, tokens) where rows are packed."""
    segment_ids: "torch.Tensor"
    needed: "torch.Tensor"
    """(rows, needed), or (1, rows × needed): places of the tokens whose last states are read,
    row-major over all."""
    first: "torch.Tensor"
    """(rows,): where in `needed` each row's [CLS] stands."""
    masked: "torch.Tensor"
    """(masked,): where in `needed` each masked token stands."""
    masked_labels: "torch.Tensor"
    """(masked,): the token that stood there, or IGNORED."""
    order_labels: "torch.Tensor"
    """(rows,)"""
    mask: "torch.Tensor | None"
    """(rows, seq), True for a real token; None where all are, or rows are packed."""
    longest: int
    """No row has more tokens."""
    positions: "torch.Tensor | None" = None
    """(1, tokens), packed only: of each token, where it stands in its own row."""
    bounds: "torch.Tensor | None" = None
    """(rows + 1 and more,), packed only: where each row begins; the last rows are filling."""
    needed_bounds: "torch.Tensor | None" = None
    """The same for `needed`."""

    def __len__(self) -> int:
        return len(self.first)


def padded(batch: Batch, *, most_masked: int | None = None) -> Layout:
    """Rows side by side. `most_masked` tokens of a row at most make shapes that do not depend on
    the batch."""
    rows, seq = batch.token_ids.shape
    needed, masked = _needed(batch, np.arange(rows) * seq, most_masked)
    labels = batch.masked_labels.astype(np.int64)
    if most_masked is not None:
        masked, labels = _filled(masked, labels, rows * most_masked)
    return Layout(
        arrays={
            "token_ids": batch.token_ids.astype(np.int64),
            "segment_ids": batch.segment_ids.astype(np.int64),
            "needed": needed,
            "first": np.arange(rows) * needed.shape[1],
            "masked": masked,
            "masked_labels": labels,
            "order_labels": batch.order_labels.astype(np.int64),
        },
        mask=None if batch.is_full else batch.mask,
        longest=seq,
    )


def packed(batch: Batch, *, most_masked: int, fraction: float, multiple: int = MULTIPLE) -> Layout:
    """Rows end to end, filled up to a multiple of `multiple` tokens; `fraction` of the tokens are
    masked at most."""
    rows, seq = batch.token_ids.shape
    sizes = batch.mask.sum(1)
    real = int(sizes.sum())
    tokens = -(-real // multiple) * multiple
    filling = np.diff(
        np.minimum(np.arange(0, multiple + seq, seq), tokens - real)
    )  # rows no longer than the others
    bounds = np.concatenate([[0], np.cumsum(np.concatenate([sizes, filling]))])
    needed, masked = _needed(batch, bounds[:rows], most_masked)
    # each row hides its share, rounded, and one token at least
    masked, labels = _filled(
        masked, batch.masked_labels.astype(np.int64), int(fraction * tokens) + rows
    )
    positions = np.arange(tokens) - np.repeat(bounds[:-1], np.diff(bounds))
    spread = {name: np.zeros((1, tokens), np.int64) for name in ("token_ids", "segment_ids")}
    for name, array in spread.items():
        array[0, :real] = getattr(batch, name)[batch.mask]
    return Layout(
        arrays={
            **spread,
            "needed": needed.reshape(1, -1),
            "first": np.arange(rows) * needed.shape[1],
            "masked": masked,
            "masked_labels": labels,
            "order_labels": batch.order_labels.astype(np.int64),
            "positions": positions[None],
            "bounds": bounds,
            "needed_bounds": np.minimum(np.arange(len(bounds)), rows) * needed.shape[1],
        },
        longest=seq,
    )


def _needed(
    batch: Batch, starts: Int[np.ndarray, " rows"], most_masked: int | None
) -> tuple[Int[np.ndarray, "rows needed"], Int[np.ndarray, " masked"]]:
    """Places of the needed tokens, given where each row starts; and where the masked ones stand
    among them."""
    rows, seq = batch.token_ids.shape
    row, column = np.divmod(batch.masked_positions, seq)
    counts = np.bincount(row, minlength=rows)
    width = 1 + (max(counts, default=0) if most_masked is None else most_masked)
    assert counts.max(initial=0) < width, "more masked positions than the recipe allows"
    rank = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    masked = row * width + 1 + rank
    needed = np.repeat(starts[:, None], width, 1)
    needed.reshape(-1)[masked] = starts[row] + column
    return needed, masked


def _filled(
    masked: Int[np.ndarray, " masked"], labels: Int[np.ndarray, " masked"], size: int
) -> tuple[Int[np.ndarray, " size"], Int[np.ndarray, " size"]]:
    """Exactly `size` masked tokens, the added ones ignored."""
    extra = size - len(masked)
    assert extra >= 0, "more masked positions than the recipe allows"
    return np.pad(masked, (0, extra)), np.pad(labels, (0, extra), constant_values=IGNORED)
