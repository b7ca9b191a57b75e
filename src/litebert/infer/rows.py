"""Rows of token ids in; the states that an encoder computes of them out, in batches of like
lengths, each with the numbers of its rows: for fill and embed.

On a GPU in bfloat16 the encoder reads packed rows, so that nothing is computed for padding, and its
states are laid side by side again.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from litebert.kernels.gate import can_pack
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.packing import (
    HostBatch,
    budget_batches,
    length_bucket,
    row_bounds,
    row_positions,
    unpack_indices,
)

Row = Int[np.ndarray, " tokens"]
Encoded = tuple[
    Int[np.ndarray, " _batch"],
    Float[Tensor, "_batch _seq hidden"],
    Bool[Tensor, "_batch _seq"] | None,
]
"""Numbers of the rows, their states, and a mask that is True at real tokens; None where nothing is
padded."""


def encode_rows(
    model: Model,
    rows: Sequence[Row],
    *,
    pad_id: int,
    batch_tokens: int,
    device: torch.device,
    first_only: bool = False,
) -> Iterator[Encoded]:
    """The states of every row, or of its first token alone, in batches of at most `batch_tokens`
    tokens with their padding."""
    lengths = np.array([len(row) for row in rows], np.int64)
    is_packed = can_pack(model, int(lengths.max(initial=0)))
    limit = model.config.encoder.max_positions
    for numbers in budget_batches(lengths, tokens=batch_tokens):
        chosen = [rows[number] for number in numbers.tolist()]
        mask = np.arange(lengths[numbers].max()) < lengths[numbers, None]
        host = (
            _packed(chosen, lengths[numbers], limit, first_only=first_only)
            if is_packed
            else _padded(chosen, mask, pad_id, first_only=first_only)
        )
        batch = DeviceBatch.of(host, device)
        states = batch.states(model.encoder)
        if first_only:
            yield numbers, states.flatten(0, 1)[:, None], None
            continue
        if is_packed:
            states = states[0][batch.head_inputs["columns"]]
        # Without a mask attention is faster, so that rows of one length have none.
        is_full = bool(mask.all())
        yield numbers, states, None if is_full else torch.from_numpy(mask).to(device)


def _padded(
    rows: Sequence[Row], mask: Bool[np.ndarray, "batch seq"], pad_id: int, *, first_only: bool
) -> HostBatch:
    token_ids = np.full(mask.shape, pad_id, np.int64)
    token_ids[mask] = np.concatenate(rows)
    arrays = {"token_ids": token_ids}
    if not mask.all():
        arrays["mask"] = mask
    if first_only:
        arrays["needed"] = np.arange(0, mask.size, mask.shape[1])[:, None]
    return HostBatch(arrays=arrays, longest=mask.shape[1], most_needed=1)


def _packed(
    rows: Sequence[Row], lengths: Int[np.ndarray, " batch"], limit: int, *, first_only: bool
) -> HostBatch:
    bounds, longest = row_bounds(lengths), int(lengths.max())
    arrays = {
        "token_ids": np.concatenate(rows).astype(np.int64)[None],
        "positions": row_positions(bounds)[None],
        "bounds": bounds.astype(np.int32),
    }
    if first_only:
        arrays["needed"] = bounds[None, :-1]
        arrays["needed_bounds"] = np.arange(len(bounds), dtype=np.int32)
    else:
        arrays["columns"] = unpack_indices(bounds, longest)
    return HostBatch(arrays=arrays, longest=length_bucket(longest, limit), most_needed=1)
