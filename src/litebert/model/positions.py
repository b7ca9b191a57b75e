"""Where tokens stand: position ids, rows packed end to end, the positions whose last states are
read, and the sinusoids that position embeddings may start from.

Padded rows stand side by side with a mask. Packed rows stand end to end in one row of the batch:
nothing is computed for padding. Where only some of the last states are read (masked tokens and
[CLS] in pretraining), the last layer is computed there alone: exact, and most of a layer is saved.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from litebert.errors import DataError

KeyMask = Bool[Tensor, "#batch 1 1 seq"]
"""True at real tokens, broadcast over heads and queries."""


class Needed(NamedTuple):
    """Positions whose last states are read."""

    places: Int[Tensor, "batch needed"]
    """Row-major over batch and sequence: equally many of each row, or all of them in the one row of
    a packed batch."""
    bounds: Int[Tensor, " rows_and_one"] | None = None
    """Of a packed batch, int32: row r needs those from bounds[r] to bounds[r + 1]."""
    longest: int = 0
    """Most that a row of a packed batch needs."""

    def of(self, states: Float[Tensor, "batch seq hidden"]) -> Float[Tensor, "batch needed hidden"]:
        """Their states."""
        return states.flatten(0, 1)[self.places]


class Packing(NamedTuple):
    """Rows packed end to end, as one row of the batch."""

    bounds: Int[Tensor, " rows_and_one"]
    """int32: row r has the tokens from bounds[r] to bounds[r + 1]."""
    longest: int
    """Most tokens of a row."""

    def mask(
        self, needed: Needed | None, num_queries: int, num_keys: int
    ) -> Bool[Tensor, "queries keys"]:
        """True where query and key are of the same row."""
        query_bounds = self.bounds if needed is None else needed.bounds
        assert query_bounds is not None, "the needed positions of a packed batch have bounds"
        return _row_of(query_bounds, num_queries)[:, None] == _row_of(self.bounds, num_keys)


def position_ids(token_ids: Int[Tensor, "batch seq"], limit: int) -> Int[Tensor, " seq"]:
    """0, 1, 2, … for rows side by side; an error where they are longer than the model reads."""
    length = token_ids.shape[1]
    if length > limit:
        raise DataError(
            f"the input has {length} tokens, the model reads at most {limit}; shorten or "
            "truncate it"
        )
    return torch.arange(length, device=token_ids.device)


def sinusoids(positions: int, size: int) -> Float[Tensor, "positions size"]:
    """Sines and cosines of falling frequency (Vaswani et al. 2017), of unit variance: near
    positions look alike."""
    frequencies = 10_000 ** (-torch.arange(0, size, 2) / size)
    angles = torch.arange(positions)[:, None] * frequencies
    return 2**0.5 * torch.cat([angles.sin(), angles.cos()], 1)[:, :size]


def _row_of(bounds: Int[Tensor, " rows_and_one"], tokens: int) -> Int[Tensor, " tokens"]:
    """The row of each token."""
    return torch.searchsorted(
        bounds[1:].contiguous(),
        torch.arange(tokens, dtype=bounds.dtype, device=bounds.device),
        right=True,
    )
