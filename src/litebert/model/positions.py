"""Where tokens stand: position ids, rows packed end to end, the positions whose last states are
read, the sinusoids that position embeddings may start from, and the rotation of queries and keys.

Padded rows stand side by side with a mask. Packed rows stand end to end in one row of the batch:
nothing is computed for padding. Where only some of the last states are read (masked tokens and
[CLS] in pretraining), the last layer is computed there alone: exact, and most of a layer is saved.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from litebert.config import EncoderConfig
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


class Rotation(NamedTuple):
    """Rotary positions (Su et al. 2021): at position p the pair of numbers i and i + size/2 of a
    query or key is rotated by p · base^(−2i/size) radians, so that a score depends on the distance
    of its two tokens. Values are not rotated.

    One for all layers and heads of a forward.
    """

    cos: Float[Tensor, "rows half"]
    """By position and pair; float32, or the states' own float64."""
    sin: Float[Tensor, "rows half"]
    positions: Int[Tensor, "#batch seq"]
    """Of each token in its row."""
    in_order: bool
    """Whether they count from 0 in every row: the tables are then read as they are."""

    @classmethod
    def of(
        cls,
        config: EncoderConfig,
        states: Float[Tensor, "batch seq hidden"],
        positions: Int[Tensor, "batch seq"] | None = None,
        packing: Packing | None = None,
    ) -> "Rotation":
        """For these states: on their device, for their precision and the lengths of their rows."""
        in_order = positions is None
        if positions is None:
            longest = states.shape[1]
            positions = torch.arange(longest, device=states.device)[None]
        else:
            longest = config.max_positions if packing is None else packing.longest
            check_length(longest, config.max_positions)
        # few sizes of the table, so that a compiled layer is compiled once
        rows = min(config.max_positions, max(_LEAST_ROWS, 1 << (longest - 1).bit_length()))
        dtype = torch.promote_types(states.dtype, torch.float32)
        pairs = torch.arange(0, config.head_size, 2, dtype=dtype, device=states.device)
        frequencies = config.rotary_base ** (-pairs / config.head_size)
        angles = torch.arange(rows, dtype=dtype, device=states.device)[:, None] * frequencies
        return cls(angles.cos(), angles.sin(), positions, in_order)

    def of_needed(self, needed: Needed) -> Int[Tensor, "batch needed"]:
        """The positions of the needed tokens."""
        positions = self.positions.flatten()
        return positions[needed.places % positions.numel()]

    def apply(
        self, heads: Float[Tensor, "batch seq heads size"], needed: Needed | None = None
    ) -> Float[Tensor, "batch seq heads size"]:
        """Queries or keys, rotated: of every token, or of the needed ones."""
        if needed is None and self.in_order:
            cos, sin = (table[None, : heads.shape[1], None] for table in (self.cos, self.sin))
        else:
            positions = self.positions if needed is None else self.of_needed(needed)
            cos, sin = (table[positions][:, :, None] for table in (self.cos, self.sin))
        first, second = heads.to(cos.dtype).chunk(2, -1)
        rotated = first * cos - second * sin, second * cos + first * sin
        return torch.cat(rotated, -1).to(heads.dtype)


_LEAST_ROWS = 512
"""Of a rotation's tables, where the encoder reads as many positions."""


def check_length(length: int, limit: int) -> None:
    """Refuse a row that is longer than the model reads."""
    if length > limit:
        raise DataError(
            f"the input has {length} tokens, the model reads at most {limit}; shorten or "
            "truncate it"
        )


def position_ids(token_ids: Int[Tensor, "batch seq"], limit: int) -> Int[Tensor, " seq"]:
    """0, 1, 2, … for rows side by side; an error where they are longer than the model reads."""
    check_length(token_ids.shape[1], limit)
    return torch.arange(token_ids.shape[1], device=token_ids.device)


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
