"""Some units of a task side by side, as arrays; and as the arrays that travel to a device.

A unit is what is drawn and never divided: a text or pair, a question with all its options, a
window. Only the encoder reads packed rows. Heads read [CLS] of each row, each word's first token,
or (span) rows side by side again, which costs one copy of the states. With `bucketed`, tokens, rows
and words are rounded up to few numbers, so that compiled code and CUDA graphs see few shapes;
padding rows have one token each and no target.
"""

from dataclasses import dataclass, replace

import numpy as np

from litebert.config import POOLED_HEADS, HeadKind
from litebert.packing import (
    IGNORED,
    HostBatch,
    bucket,
    bucket_step,
    pad_to,
    padding_rows,
    round_up,
    row_bounds,
    row_bucket,
    row_positions,
    unpack_indices,
)
from litebert.shapes import Bool, Int, Num

_POOL = 32
"""Batches whose units are sorted by length together: enough to leave little padding, few enough to
stay mixed."""
_COLUMNS = 64  # unpacked rows are padded to a multiple of this


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskBatch:
    """Units padded to the longest row."""

    head: HeadKind
    """What reads them."""
    token_ids: Int[np.ndarray, "rows seq"]
    segment_ids: Int[np.ndarray, "rows seq"]
    mask: Bool[np.ndarray, "rows seq"] | None
    """True for a real token; None where no row is padded, so that attention needs no mask."""
    sizes: Int[np.ndarray, " units"] | None = None
    """Options of each unit, a row for each (choose); words of each unit (tag). None elsewhere: a
    unit is a row."""
    words: Int[np.ndarray, " words"] | None = None
    """Row × seq + column of each word's first token (tag)."""
    allowed: Bool[np.ndarray, "rows seq"] | None = None
    """Where an answer may start or end: in the context, and at [CLS], which stands for no answer
    (span, joint_span)."""
    targets: Num[np.ndarray, "..."] | None = None
    """What is to be predicted, None where it is unknown. classify: number of the label; multilabel:
    0 or 1 for each label, float32; regress: the number, float32; choose: number of the option;
    span: columns of the first and last token, both 0 for no answer; tag: number of each word's
    label."""
    is_spare: bool = False
    """Whether a rank without units of its own reads these along; they count for nothing."""

    def __len__(self) -> int:
        """Number of units."""
        return len(self.token_ids if self.sizes is None else self.sizes)

    @property
    def num_targets(self) -> int:
        """What the loss is a sum over: units, or words (tag)."""
        return len(self) if self.words is None else len(self.words)

    @property
    def num_tokens(self) -> int:
        """Real tokens, without padding."""
        return int(self.token_ids.size if self.mask is None else self.mask.sum())

    def rows(self, start: int, stop: int) -> "TaskBatch":
        """Units start … stop - 1 as a batch of their own, padded to their own longest row: a
        microbatch; this batch itself where it is all."""
        if start == 0 and stop >= len(self):
            return self
        units = rows = words = slice(start, stop)
        if self.sizes is not None:
            before, among = int(self.sizes[:start].sum()), int(self.sizes[units].sum())
            words = slice(before, before + among)
            rows = words if self.words is None else rows
        seq = width = self.token_ids.shape[1]
        mask = None if self.mask is None else self.mask[rows]
        if mask is not None and len(mask):
            width = int(mask.sum(1).max())
            mask = None if mask[:, :width].all() else mask[:, :width]
        row, column = (None, None) if self.words is None else np.divmod(self.words[words], seq)
        return replace(
            self,
            token_ids=self.token_ids[rows, :width],
            segment_ids=self.segment_ids[rows, :width],
            mask=mask,
            sizes=None if self.sizes is None else self.sizes[units],
            words=None if row is None else (row - start) * width + column,
            allowed=None if self.allowed is None else self.allowed[rows, :width],
            targets=None if self.targets is None else self.targets[units if row is None else words],
        )

    def padded(self) -> HostBatch:
        """Rows side by side."""
        rows, seq = self.token_ids.shape
        arrays = {"token_ids": self.token_ids, "segment_ids": self.segment_ids}
        if self.mask is not None:
            arrays["mask"] = self.mask
        if self.head in POOLED_HEADS:
            arrays["needed"] = (np.arange(rows) * seq)[:, None]
        if self.head == "choose":
            arrays["options"] = self._options()
        for name in ("words", "allowed", "targets"):
            if getattr(self, name) is not None:
                arrays[name] = getattr(self, name)
        return HostBatch(arrays=arrays, longest=seq, most_needed=1, head=self.head)

    def packed(self, *, longest: int, bucketed: bool = False, most_tokens: int = 0) -> HostBatch:
        """Rows end to end. `longest` and `most_tokens` hold for all batches of a run, so that
        shapes do not follow the batch; `bucketed` rounds them up. Spare units have no targets."""
        seq = self.token_ids.shape[1]
        mask = np.ones(self.token_ids.shape, bool) if self.mask is None else self.mask
        lengths = mask.sum(1)
        assert lengths.max(initial=0) <= longest, f"a row has more than {longest} tokens"
        units, rows = len(self), len(lengths)
        if bucketed:
            units, rows = row_bucket(units), row_bucket(rows)
            lengths = pad_to(lengths, rows, 1)  # attention over no token would be NaN
            tokens = bucket(int(lengths.sum()))
            most = bucket_step(max(most_tokens, tokens))
            padding = padding_rows(tokens - int(lengths.sum()), longest=longest, most=most)
            lengths = np.append(lengths, padding)
        bounds = row_bounds(lengths)
        arrays = {
            "positions": row_positions(bounds)[None],
            "bounds": bounds.astype(np.int32),
            "token_ids": pad_to(self.token_ids[mask], int(bounds[-1]), 0)[None],
            "segment_ids": pad_to(self.segment_ids[mask], int(bounds[-1]), 0)[None],
        }
        if self.head in POOLED_HEADS:
            arrays["needed"] = bounds[None, :rows]
            arrays["needed_bounds"] = np.minimum(np.arange(len(bounds)), rows).astype(np.int32)
        if self.head == "choose":
            arrays["options"] = pad_to(self._options(), units, -1)
        elif self.words is not None:
            row, column = np.divmod(self.words, seq)
            units = bucket(len(row)) if bucketed else len(row)
            arrays["words"] = pad_to(bounds[row] + column, units, 0)
        elif self.allowed is not None:
            width = min(round_up(seq, _COLUMNS), longest) if bucketed else seq
            arrays["columns"] = unpack_indices(bounds[: rows + 1], width)
            arrays["allowed"] = np.zeros((rows, width), bool)
            arrays["allowed"][: len(mask), :seq] = self.allowed
        if self.targets is not None:
            empty = 0 if self.targets.dtype == np.float32 else IGNORED
            targets = np.full_like(self.targets, empty) if self.is_spare else self.targets
            arrays["targets"] = pad_to(targets, units, empty)
            if bucketed:
                num_real = 0 if self.is_spare else len(targets)
                arrays["is_real"] = (np.arange(units) < num_real).astype(np.int64)
        return HostBatch(arrays=arrays, longest=longest, most_needed=1, head=self.head)

    def _options(self) -> Int[np.ndarray, "units most"]:
        """The row of each option; -1 where a question has fewer."""
        assert self.sizes is not None
        option = np.arange(int(self.sizes.max(initial=1)))
        rows = row_bounds(self.sizes)[:-1, None] + option
        return np.where(option < self.sizes[:, None], rows, -1)


def epoch_batches(
    lengths: Int[np.ndarray, " units"], batch_size: int, *, seed: int, epoch: int
) -> list[Int[np.ndarray, " _batch"]]:
    """Every unit once: shuffled, sorted by length inside pools, cut into batches, and the batches
    shuffled."""
    draw = np.random.default_rng((seed, epoch))
    order = draw.permutation(len(lengths))
    pools = [order[at : at + _POOL * batch_size] for at in range(0, len(order), _POOL * batch_size)]
    ranked = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
    batches = [ranked[at : at + batch_size] for at in range(0, len(ranked), batch_size)]
    return [batches[number] for number in draw.permutation(len(batches))]
