"""Texts as rows of token ids into batches, and the states that an encoder makes of them: for fill
and embed.
 Rows in any order and of any length in; batches of like lengths out, each with the numbers of its
rows. On a GPU in bfloat16 the encoder reads rows end to end, and its states are laid side by side
again: nothing is computed for padding. Tasks have batches of their own (tasks/encode/batch.py,
tasks/encode/layout.py), by the same budget.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from litebert.data.arrays import Arrays
from litebert.model.layout import Needed, Packing
from litebert.model.model import Model
from litebert.tasks.encode.batch import budget_batches
from litebert.tasks.encode.layout import can_pack, reach

Row = Int[np.ndarray, " tokens"]


@dataclass(frozen=True, kw_only=True, eq=False)
class States:
    """What the encoder says of some rows."""

    rows: Int[np.ndarray, " batch"]
    """Which rows these are."""
    states: Float[Tensor, "batch seq hidden"]
    mask: Bool[Tensor, "batch seq"] | None
    """True at real tokens; None where nothing is padded."""


def encode_rows(
    model: Model,
    rows: Sequence[Row],
    *,
    pad_id: int,
    batch_tokens: int,
    device: torch.device,
    first_only: bool = False,
) -> Iterator[States]:
    """The states of every row, or of its first token alone, in batches of at most `batch_tokens`
    tokens with their padding."""
    lengths = np.array([len(row) for row in rows], np.int64)
    is_packed = can_pack(model, device, int(lengths.max(initial=0)))
    for numbers in budget_batches(lengths, tokens=batch_tokens):
        if is_packed:
            chosen = [rows[number] for number in numbers.tolist()]
            yield _end_to_end(
                model, numbers, chosen, lengths[numbers], device, first_only=first_only
            )
            continue
        longest = int(lengths[numbers].max())
        token_ids = np.full((len(numbers), longest), pad_id, np.int64)
        for place, number in enumerate(numbers.tolist()):
            token_ids[place, : lengths[number]] = rows[number]
        # Without a mask attention has a faster way, so that rows of one length get none.
        padded = bool((lengths[numbers] < longest).any())
        mask = (
            torch.from_numpy(np.arange(longest) < lengths[numbers, None]).to(device)
            if padded
            else None
        )
        needed = None
        if first_only:
            needed = Needed(places=torch.arange(0, token_ids.size, longest, device=device)[:, None])
        states = model.encoder(
            token_ids=torch.from_numpy(token_ids).to(device), mask=mask, needed=needed
        )
        yield States(rows=numbers, states=states, mask=None if first_only else mask)


def _end_to_end(
    model: Model,
    numbers: Int[np.ndarray, " batch"],
    rows: Sequence[Row],
    lengths: Int[np.ndarray, " batch"],
    device: torch.device,
    *,
    first_only: bool,
) -> States:
    bounds = np.append(0, np.cumsum(lengths))
    longest = int(lengths.max())
    arrays = {
        "token_ids": np.concatenate(rows).astype(np.int64)[None],
        "positions": (np.arange(bounds[-1]) - np.repeat(bounds[:-1], lengths))[None],
        "bounds": bounds,
    }
    if not first_only:  # behind a row's end its last token, which the mask hides
        arrays["places"] = bounds[:-1, None] + np.minimum(np.arange(longest), lengths[:, None] - 1)
    laid = Arrays(arrays=arrays, longest=reach(longest, model.config.encoder.max_positions))
    tensors = laid.on(device)
    packing = Packing(bounds=tensors["bounds"].int(), longest=laid.longest)
    needed = None
    if first_only:
        each = torch.arange(len(bounds), dtype=torch.int32, device=device)
        needed = Needed(places=tensors["bounds"][None, :-1], bounds=each, longest=1)
    states = model.encoder(
        token_ids=tensors["token_ids"], mask=packing, positions=tensors["positions"], needed=needed
    )
    if first_only:
        return States(rows=numbers, states=states.transpose(0, 1), mask=None)
    is_full = bool((lengths == longest).all())
    mask = (
        None if is_full else torch.arange(longest, device=device) < packing.bounds.diff()[:, None]
    )
    return States(rows=numbers, states=states[0][tensors["places"]], mask=mask)
