"""Low-rank differences: a fine-tuned model's weights and its base's in, two thin int8 factors per
matrix out; and the inverse.

Fine-tuning changes a matrix mostly in few directions. Of the change of each matrix the largest
singular values are stored (the best approximation of that rank: Eckart and Young), as two factors
in int8. The token embedding has a rank of its own: it is the largest matrix, and its change has the
lowest rank. Biases, norms and weights that the base lacks are stored completely; unchanged weights
are not stored. Measurements: docs/decisions/difference.md.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from litebert.checks import check_whole, shorten
from litebert.errors import ConfigError
from litebert.storage import int8
from litebert.storage.int8 import Layout, Shape, is_quantized

TOKENS = "encoder.embedding.token."
"""Beginning of the names of token embeddings."""
_LEFT, _RIGHT = ".left", ".right"
"""Suffixes of a matrix's name that name its factors, of shape (rank, rows) and (rank, columns)."""
_MAX_RANK = 2**20
_RANKS = {"rank": 1, "token_rank": 0, "group_size": 1}
"""Fields of Ranks and their smallest values."""


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """How much of a difference is stored."""

    rank: int = 32
    """Of each matrix's change."""
    token_rank: int = 4
    """Of the token embedding's change; 0 keeps the base's embedding."""
    group_size: int = int8.GROUP_SIZE
    """Numbers of a factor that share a scale."""

    def __post_init__(self) -> None:
        for name, low in _RANKS.items():
            check_whole(self, name, low, _MAX_RANK)

    def of(self, name: str, shape: Shape) -> int:
        """The rank stored for a matrix of that name and shape."""
        return min(self.token_rank if name.startswith(TOKENS) else self.rank, *shape)


@dataclass(frozen=True, kw_only=True)
class Difference(Ranks):
    """Weights as their difference to a base, needed to load them, whose tokenizer they use."""

    base: Path | str
    """Folder of a checkpoint, or name of an embedded model."""


@dataclass(frozen=True, kw_only=True)
class StoredDifference(Ranks):
    """What config.json says of weights that are stored as a difference."""

    base: str
    """Name of the base's folder."""
    sha256: str
    """Of the base's weights and vocabulary."""

    def to_dict(self) -> dict[str, Any]:
        names = ("base", "sha256", *_RANKS)
        return {"kind": "difference"} | {name: getattr(self, name) for name in names}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "StoredDifference":
        patterns = {"base": r"(?!\.\.?$)[^/\\\0]+", "sha256": "[0-9a-f]{64}"}
        values = {name: value for name, value in data.items() if name != "kind"}
        try:
            if (
                values.keys() != {*patterns, *_RANKS}
                or not all(type(values[name]) is int for name in _RANKS)
                or not all(
                    isinstance(values[name], str) and re.fullmatch(pattern, values[name])
                    for name, pattern in patterns.items()
                )
            ):
                raise ConfigError("a name is missing or unknown, or a value is of another type")
            return cls(**values)
        except ConfigError as error:
            raise ConfigError(
                "weights of kind difference have a base (the name of a folder), its sha256, and "
                f"rank, token_rank and group_size up to {_MAX_RANK}; got {shorten(values)}; update "
                "litebert"
            ) from error


def pack(
    weights: Mapping[str, Tensor], base: Mapping[str, Tensor], ranks: Ranks
) -> dict[str, Tensor]:
    """Tensors to store; `weights` and `base` are float32."""
    stored: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if name not in base:
            stored |= int8.pack({name: weight}, ranks.group_size)
        elif not torch.equal(weight, base[name]):
            if is_quantized(tuple(weight.shape)):
                factors = _factors(name, weight - base[name], ranks)
                stored |= int8.pack(factors, ranks.group_size, min_rows=1)
            else:
                stored[name] = weight
    return stored


def unpack(
    stored: Mapping[str, Tensor],
    base: Mapping[str, Tensor],
    shapes: Mapping[str, Shape],
    ranks: Ranks,
) -> dict[str, Tensor]:
    """The weights of these shapes, in float32, from what `pack` returned and the base's."""
    restored = int8.unpack(stored, ranks.group_size)

    def weight(name: str) -> Tensor:
        if name in restored:
            return restored[name]
        if name + _LEFT in restored:  # in float64, so that the order of summation does not show
            left, right = (restored[name + side].double() for side in (_LEFT, _RIGHT))
            return (base[name] + left.T @ right).float()
        return base[name]

    return {name: weight(name) for name in shapes}


def layout(
    shapes: Mapping[str, Shape], base: Mapping[str, Shape], ranks: Ranks
) -> dict[str, Layout]:
    """For each weight of these shapes, the layout of what `pack` returns where it changed."""

    def layout_of(name: str, shape: Shape) -> Layout:
        if name not in base or not is_quantized(shape):
            return int8.layout({name: shape}, ranks.group_size)
        rank = ranks.of(name, shape)
        factors = {name + _LEFT: (rank, shape[0]), name + _RIGHT: (rank, shape[1])}
        return int8.layout(factors, ranks.group_size, min_rows=1) if rank else {}

    return {name: layout_of(name, shape) for name, shape in shapes.items()}


def _factors(name: str, change: Float[Tensor, "rows columns"], ranks: Ranks) -> dict[str, Tensor]:
    rank = ranks.of(name, tuple(change.shape))
    if not rank:
        return {}
    left, values, right = torch.linalg.svd(change, full_matrices=False)
    roots = values[:rank, None].sqrt()
    return {
        name + _LEFT: roots * left.T[:rank].contiguous(),
        name + _RIGHT: roots * right[:rank].contiguous(),
    }
