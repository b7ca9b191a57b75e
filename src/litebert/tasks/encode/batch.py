"""Some units side by side, as tensors; and which units go together: in training by length but
mixed, in prediction by budget.
 A unit is what is drawn and never divided: a text or pair, a question with all its options, a
window. Which batch comes when is a pure function of (seed, epoch, number): nothing is carried.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from litebert.config import HeadKind

POOL = 32
"""Batches whose units are sorted by length together: enough to leave little padding, few enough to
stay mixed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskBatch:
    """Units padded to the longest row."""

    head: HeadKind
    """What reads them."""
    token_ids: Int[Tensor, "rows seq"]
    segment_ids: Int[Tensor, "rows seq"]
    mask: Bool[Tensor, "rows seq"] | None
    """True for a real token; None where no row is padded, so that attention needs no mask."""
    sizes: Int[Tensor, " units"] | None = None
    """Options of each unit, a row for each (choose); words of each unit (tag). None elsewhere: a
    unit is a row."""
    positions: Int[Tensor, " words"] | None = None
    """Row × seq + column of each word's first piece (tag)."""
    allowed: Bool[Tensor, "rows seq"] | None = None
    """Where an answer may start or end: in the context, and at [CLS], which stands for no answer
    (span, joint_span)."""
    targets: Tensor | None = None
    """What is to be said, None where it is not known. classify: number of the label; regress: the
    number; choose: number of the option; span: columns of the first and last token, both 0 for no
    answer; tag: number of each word's label."""

    is_spare: bool = False
    """Whether these are read along by a rank that has none of its own, and count for nothing."""

    def __len__(self) -> int:
        """Number of units."""
        return len(self.token_ids if self.sizes is None else self.sizes)

    @property
    def num_targets(self) -> int:
        """What the loss is a sum over: units, or words (tag)."""
        return len(self) if self.positions is None else len(self.positions)

    @property
    def num_tokens(self) -> int:
        """Real tokens, without padding."""
        return int(self.token_ids.numel() if self.mask is None else self.mask.sum())

    def rows(self, start: int, stop: int) -> "TaskBatch":
        """Units start … stop - 1 as a batch of their own, padded to their own longest row: a
        microbatch; this batch itself where it is all."""
        if start == 0 and stop >= len(self):
            return self
        units = rows = words = slice(start, stop)
        if self.sizes is not None:
            before, among = int(self.sizes[:start].sum()), int(self.sizes[units].sum())
            words = slice(before, before + among)
            rows = words if self.positions is None else rows
        seq = width = self.token_ids.shape[1]
        mask = None if self.mask is None else self.mask[rows]
        if mask is not None and len(mask):
            width = int(mask.sum(1).max())
            mask = None if mask[:, :width].all() else mask[:, :width]
        positions = None if self.positions is None else self.positions[words] - start * seq
        return replace(
            self,
            token_ids=self.token_ids[rows, :width],
            segment_ids=self.segment_ids[rows, :width],
            mask=mask,
            sizes=None if self.sizes is None else self.sizes[units],
            positions=None if positions is None else positions // seq * width + positions % seq,
            allowed=None if self.allowed is None else self.allowed[rows, :width],
            targets=None
            if self.targets is None
            else self.targets[units if positions is None else words],
        )

    def to(self, device: torch.device | str) -> "TaskBatch":
        """The same on a device; pinned first where that lets the copy overlap."""
        pin = torch.device(device).type == "cuda"
        moved: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                moved[field.name] = (value.pin_memory() if pin else value).to(
                    device, non_blocking=pin
                )
        return replace(self, **moved)


def epoch_batches(
    lengths: Int[np.ndarray, " units"], batch_size: int, *, seed: int, epoch: int
) -> list[Int[np.ndarray, " batch"]]:
    """Every unit once: shuffled, sorted by length inside pools, cut into batches, and the batches
    shuffled."""
    draw = np.random.default_rng((seed, epoch))
    order = draw.permutation(len(lengths))
    pools = [order[at : at + POOL * batch_size] for at in range(0, len(order), POOL * batch_size)]
    ranked = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
    batches = [ranked[at : at + batch_size] for at in range(0, len(ranked), batch_size)]
    return [batches[number] for number in draw.permutation(len(batches))]


def budget_batches(
    lengths: Int[np.ndarray, " units"],
    *,
    tokens: int,
    sizes: Int[np.ndarray, " units"] | None = None,
) -> list[Int[np.ndarray, " batch"]]:
    """Every unit once, sorted by length, at most `tokens` padded tokens in a batch, or one unit;
    the longest come first.

    `sizes` are the rows of each unit, one where None.
    """
    order = np.argsort(lengths, kind="stable")
    rows = np.ones_like(order) if sizes is None else sizes[order]
    cuts, held = [0], 0
    for number, (length, size) in enumerate(
        zip(lengths[order].tolist(), rows.tolist(), strict=True)
    ):
        if held and (held + size) * length > tokens:
            cuts.append(number)
            held = 0
        held += size
    batches = np.split(order, cuts[1:])
    return [batch for batch in reversed(batches) if batch.size]
