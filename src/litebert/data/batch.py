"""Examples side by side, as arrays. In: both segments of each example. Out: a Batch, of which
layout.py makes tensors."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Int, UInt8


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Masked, ordered examples: [CLS] a [SEP] b [SEP] and padding in each row."""

    token_ids: Int[np.ndarray, "batch seq"]
    """int32, with the hidden tokens already replaced."""
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
    _cuts: "dict[tuple[int, int], Batch]" = field(default_factory=dict, init=False, repr=False)
    """Parts that were asked for, by their first row and the row after their last."""

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
        """Rows start … stop - 1 as a batch of their own: a microbatch, or a rank's part; this batch
        itself where it is all.

        Asked for again it is the same object, so that what was made of it ahead of time is found.
        """
        if start == 0 and stop >= len(self):
            return self
        if (start, stop) not in self._cuts:
            self._cuts[start, stop] = self._cut(start, stop)
        return self._cuts[start, stop]

    def _cut(self, start: int, stop: int) -> "Batch":
        seq = self.token_ids.shape[1]
        low, high = np.searchsorted(self.masked_positions, [start * seq, stop * seq])
        return Batch(
            token_ids=self.token_ids[start:stop],
            segment_ids=self.segment_ids[start:stop],
            mask=self.mask[start:stop],
            masked_positions=self.masked_positions[low:high] - start * seq,
            masked_labels=self.masked_labels[low:high],
            order_labels=self.order_labels[start:stop],
            indices=self.indices[start:stop],
        )


def padded_width(longest: int, *, max_length: int, pad_multiple: int | None) -> int:
    """Columns of a batch: max_length, or the longest row rounded up to a multiple."""
    if pad_multiple is None:
        return max_length
    return min(max_length, -(-longest // pad_multiple) * pad_multiple)
