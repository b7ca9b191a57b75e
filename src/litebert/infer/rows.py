"""Texts as rows of token ids into padded batches, and the states that an encoder makes of them: for fill and embed.

Rows in any order and of any length in; batches of like lengths out, each with the numbers of its rows. Tasks have batches of
their own (tasks/batch.py), by the same budget.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from litebert.model.model import Model
from litebert.tasks.batch import budget_batches

Row = Int[np.ndarray, " tokens"]


@dataclass(frozen=True, kw_only=True, eq=False)
class States:
    """What the encoder says of some rows."""

    rows: Int[np.ndarray, " batch"]
    """Which rows these are."""
    states: Float[Tensor, "batch seq hidden"]
    mask: Bool[Tensor, "batch seq"] | None
    """True at real tokens; None where nothing is padded."""


def encode_rows(model: Model, rows: Sequence[Row], *, pad_id: int, batch_tokens: int, device: torch.device) -> Iterator[States]:
    """The states of every row, in batches of at most `batch_tokens` tokens with their padding."""
    lengths = np.array([len(row) for row in rows], np.int64)
    for numbers in budget_batches(lengths, tokens=batch_tokens):
        longest = int(lengths[numbers].max())
        token_ids = np.full((len(numbers), longest), pad_id, np.int64)
        for place, number in enumerate(numbers.tolist()):
            token_ids[place, : lengths[number]] = rows[number]
        # Without a mask attention has a faster way, so that rows of one length get none.
        padded = bool((lengths[numbers] < longest).any())
        mask = torch.from_numpy(np.arange(longest) < lengths[numbers, None]).to(device) if padded else None
        states = model.encoder(torch.from_numpy(token_ids).to(device), None, mask)
        yield States(rows=numbers, states=states, mask=mask)
