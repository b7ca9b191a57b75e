"""Units of a task end to end, without padding, as a GPU reads them (model/layout.py). In: a
TaskBatch. Out: static arrays of int64, and the PackedBatch that they become on a device.
 Only the encoder reads packed rows. Heads read what they always do: [CLS] of each row, each word's
first piece, or (span) rows side by side again, which costs one copy of the states. With filling,
tokens, rows and words are rounded up to few numbers, so that compiled code and CUDA graphs meet few
shapes; rows that fill up have one token each and no target.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from litebert.config import POOLED_HEADS, HeadKind
from litebert.data.arrays import Arrays
from litebert.data.layout import IGNORED
from litebert.model.layout import Needed, Packing, drops_packed
from litebert.model.model import Model
from litebert.tasks.encode.batch import TaskBatch

LEAST_TOKENS, LEAST_ROWS, COLUMNS = 128, 8, 64
"""Tokens are rounded up to a multiple of 128 or an eighth of a power of two, whichever is more;
rows to a power of two from 8; columns of rows side by side to a multiple of 64."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedBatch:
    """What the losses and heads read of it; see TaskBatch for head, positions, allowed and
    targets."""

    head: HeadKind
    token_ids: Int[Tensor, "1 tokens"]
    segment_ids: Int[Tensor, "1 tokens"]
    columns: Int[Tensor, "1 tokens"]
    """Where each token stands in its own row."""
    bounds: Int[Tensor, " rows_and_more"]
    """Where each row begins; the last rows are filling."""
    longest: int
    """No row has more tokens."""
    first: Int[Tensor, "1 rows"] | None = None
    """Places of the rows' [CLS] (heads that pool)."""
    first_bounds: Int[Tensor, " rows_and_more"] | None = None
    """Which of `first` belong to each row."""
    places: Int[Tensor, "rows seq"] | None = None
    """Of each column of each row its token; behind its end, its last (span, joint_span)."""
    options: Int[Tensor, "units most"] | None = None
    """The row of each option; -1 where a question has fewer (choose)."""
    positions: Int[Tensor, " words"] | None = None
    allowed: Bool[Tensor, "rows seq"] | None = None
    targets: Tensor | None = None
    """IGNORED for filling; of regress, 0."""
    is_real: Int[Tensor, " units"] | None = None
    """1 for a unit, 0 for filling; None where nothing is filled."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskLayout(Arrays):
    """Arrays by the names of PackedBatch."""

    head: HeadKind
    is_static = True

    def tensors(self, device: torch.device | str = "cpu") -> PackedBatch:
        """The same on a device."""
        return self._batch(self.on(device))

    def split(self, flat: Tensor) -> PackedBatch:
        """The batch that lies in `flat`, which `flat()` filled."""
        return self._batch(self.views(flat))

    def _batch(self, tensors: dict[str, Tensor]) -> PackedBatch:
        if "allowed" in tensors:
            tensors["allowed"] = tensors["allowed"].bool()
        if self.head == "regress" and "targets" in tensors:
            tensors["targets"] = (
                tensors["targets"].view(torch.float64).float()
            )  # float32 before: exact
        return PackedBatch(head=self.head, longest=self.longest, **tensors)


def packed(
    batch: TaskBatch,
    *,
    longest: int,
    filled: bool = False,
    most_tokens: int = 0,
    learned: bool = True,
) -> TaskLayout:
    """Rows end to end. `longest` and `most_tokens` hold for all batches of a run, so that shapes do
    not follow the batch; `filled` rounds them up. A batch that is not `learned` from counts for
    nothing.
    """
    seq = batch.token_ids.shape[1]
    mask = np.ones(batch.token_ids.shape, bool) if batch.mask is None else batch.mask.numpy()
    sizes = mask.sum(1)
    assert sizes.max(initial=0) <= longest, "a row is longer than was said"
    units, rows = len(batch), len(sizes)
    if filled:
        units, rows = _power(units), _power(rows)
        sizes = np.append(
            sizes, np.ones(rows - len(sizes), np.int64)
        )  # attention over no token would be no number
        tokens = rounded(int(sizes.sum()))
        spare = -(-step(max(most_tokens, tokens)) // longest)
        sizes = np.append(
            sizes, np.diff(np.minimum(np.arange(spare + 1) * longest, tokens - sizes.sum()))
        )
    bounds = np.append(0, np.cumsum(sizes))
    arrays = {
        "columns": (np.arange(bounds[-1]) - np.repeat(bounds[:-1], sizes))[None],
        "bounds": bounds,
    }
    for name, source in (("token_ids", batch.token_ids), ("segment_ids", batch.segment_ids)):
        real = source.numpy()[mask]
        arrays[name] = np.append(real, np.zeros(bounds[-1] - len(real), np.int64))[None]
    if batch.head in POOLED_HEADS:
        arrays |= {
            "first": bounds[None, :rows],
            "first_bounds": np.minimum(np.arange(len(bounds)), rows),
        }
    targets = None if batch.targets is None else batch.targets.numpy()
    if batch.head == "choose":
        assert batch.sizes is not None
        arrays["options"] = _options(batch.sizes.numpy(), units)
    elif batch.head == "tag":
        assert batch.positions is not None
        row, column = np.divmod(batch.positions.numpy(), seq)
        units = rounded(len(row)) if filled else len(row)
        arrays["positions"] = _filled(bounds[row] + column, units, 0)
    elif batch.allowed is not None:
        width = min(-(-seq // COLUMNS) * COLUMNS, longest) if filled else seq
        arrays["places"] = bounds[:rows, None] + np.minimum(
            np.arange(width), sizes[:rows, None] - 1
        )
        allowed = np.zeros((rows, width), np.int64)
        allowed[: len(mask), :seq] = batch.allowed.numpy()
        arrays["allowed"] = allowed
    if targets is not None:
        empty = 0 if batch.head == "regress" else IGNORED
        known = (
            targets.astype(np.float64).view(np.int64)
            if batch.head == "regress"
            else targets.astype(np.int64)
        )
        arrays["targets"] = _filled(known if learned else np.full_like(known, empty), units, empty)
        if filled:
            arrays["is_real"] = (np.arange(units) < (len(known) if learned else 0)).astype(np.int64)
    return TaskLayout(arrays=arrays, longest=longest, head=batch.head)


def packed_states(model: Model, batch: PackedBatch) -> Tensor:
    """What the head reads: (rows, 1, H) of [CLS], (1, tokens, H) for words, (rows, seq, H) for
    spans."""
    needed = None
    if batch.first is not None:
        assert batch.first_bounds is not None
        needed = Needed(places=batch.first, bounds=batch.first_bounds.int(), longest=1)
    packing = Packing(bounds=batch.bounds.int(), longest=batch.longest)
    states: Tensor = model.encoder(
        token_ids=batch.token_ids,
        segment_ids=batch.segment_ids,
        mask=packing,
        positions=batch.columns,
        needed=needed,
    )
    if needed is not None:
        return states.transpose(0, 1)
    return states if batch.places is None else states[0][batch.places]


def can_pack(model: Model, device: torch.device | str, longest: int) -> bool:
    """Whether rows no longer than this are read end to end: attention does that on a GPU, in half
    precision; with dropout, by our own kernels alone."""
    dtype, config = model.encoder.embedding.token.weight.dtype, model.config.encoder
    is_able = torch.device(device).type == "cuda" and dtype in (torch.bfloat16, torch.float16)
    drops = model.training and config.attention_dropout
    return is_able and (not drops or drops_packed(config, longest, dtype))


def reach(longest: int, limit: int) -> int:
    """A power of two for the longest row, at most what the model reads: compiled code meets a few
    of them."""
    return max(longest, min(_power(longest), limit))


def step(tokens: int) -> int:
    """What a number of tokens is rounded up to a multiple of: step(1500) -> 128, step(5000) ->
    512."""
    return max(LEAST_TOKENS, 1 << (max(tokens, 1) - 1).bit_length() >> 4)


def rounded(tokens: int) -> int:
    """rounded(900) -> 1024, rounded(5000) -> 5120: at most an eighth is filling, or 127."""
    return max(-(-tokens // step(tokens)), 1) * step(tokens)


def _power(rows: int) -> int:
    return max(1 << (rows - 1).bit_length(), LEAST_ROWS)


def _options(sizes: Int[np.ndarray, " units"], units: int) -> Int[np.ndarray, "units most"]:
    column = np.arange(int(sizes.max(initial=1)))
    rows = (np.cumsum(sizes) - sizes)[:, None] + column
    return _filled(np.where(column < sizes[:, None], rows, -1), units, -1)


def _filled(array: Int[np.ndarray, "..."], size: int, value: int) -> Int[np.ndarray, "..."]:
    """With `value` behind it, up to `size` of them."""
    return np.concatenate([array, np.full((size - len(array), *array.shape[1:]), value, np.int64)])
