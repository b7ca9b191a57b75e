"""Rows of token ids in; the states that an encoder computes of them out, in batches of like
lengths, each with the numbers of its rows: for fill and embed with torch.

On a GPU in bfloat16 the encoder reads packed rows, so that nothing is computed for padding, and its
states are laid side by side again.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from litebert.infer.batches import Columns, Row, padded_rows, side_by_side
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

Encoded = tuple[
    Int[np.ndarray, " _batch"],
    Float[Tensor, "_batch _seq hidden"],
    Bool[Tensor, "_batch _seq"] | None,
]
"""Numbers of the rows, their states, and a mask that is True at real tokens; None where nothing is
padded. Where only some states are needed: those, and no mask."""


def encode_rows(
    model: Model,
    rows: Sequence[Row],
    needed: Columns | None = None,
    *,
    pad_id: int,
    batch_tokens: int,
    device: torch.device,
) -> Iterator[Encoded]:
    """The states of every row, or of its `needed` columns alone, in batches of at most
    `batch_tokens` tokens with their padding."""
    lengths = np.array([len(row) for row in rows], np.int64)
    is_packed = can_pack(model, int(lengths.max(initial=0)))
    limit = model.config.encoder.max_positions
    for numbers in budget_batches(lengths, tokens=batch_tokens):
        chosen = [rows[number] for number in numbers.tolist()]
        columns = None if needed is None else [needed[number] for number in numbers.tolist()]
        host = (
            _packed(chosen, lengths[numbers], limit, columns)
            if is_packed
            else padded_rows(chosen, columns, pad_id=pad_id)
        )
        batch = DeviceBatch.of(host, device)
        states = batch.states(model.encoder)
        if needed is not None:
            yield numbers, states.view(len(chosen), host.most_needed, -1), None
            continue
        if is_packed:
            states = states[0][batch.head_inputs["columns"]]
        mask = np.arange(lengths[numbers].max()) < lengths[numbers, None]
        # Without a mask attention is faster, so that rows of one length have none.
        is_full = bool(mask.all())
        yield numbers, states, None if is_full else torch.from_numpy(mask).to(device)


def _packed(
    rows: Sequence[Row], lengths: Int[np.ndarray, " batch"], limit: int, needed: Columns | None
) -> HostBatch:
    bounds, longest, most = row_bounds(lengths), int(lengths.max()), 0
    arrays = {
        "token_ids": np.concatenate(rows).astype(np.int64)[None],
        "positions": row_positions(bounds)[None],
        "bounds": bounds.astype(np.int32),
    }
    if needed is not None:
        columns = side_by_side(needed)
        most = columns.shape[1]
        arrays["needed"] = (columns + bounds[:-1, None]).reshape(1, -1)
        arrays["needed_bounds"] = np.arange(0, columns.size + 1, most, dtype=np.int32)
    else:
        arrays["columns"] = unpack_indices(bounds, longest)
    return HostBatch(arrays=arrays, longest=length_bucket(longest, limit), most_needed=most)
