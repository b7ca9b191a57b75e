"""Weights as their difference to a base's: a model's weights and its base's in, what tells them
apart out; and back.
 Fine-tuning changes every matrix a little, and mostly in few directions. Of each matrix's change
the first singular vectors are kept (no product of that rank is nearer: Eckart and Young), as two
factors in 8 bits. The table of tokens has a rank of its own: it is the largest by far, and changes
in the fewest directions. Biases, norms and what the base does not have are stored whole; what did
not change is not stored. What was measured: docs/decisions/difference.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from litebert.storage import int8
from litebert.storage.int8 import SCALES, Shape, is_quantized

TOKENS = "encoder.embedding.token.weight"
LEFT, RIGHT = ".left", ".right"
"""What is put behind a matrix's name to name its factors: directions of its output and of its
input, a row each."""

Matrix = Float[Tensor, "rows columns"]
Kinds = dict[str, tuple[str, Shape]]
"""For each name of a file its type, as safetensors calls it, and its shape."""


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How much of a difference is kept."""

    rank: int
    """Directions of each matrix."""
    token_rank: int
    """Directions of the table of tokens; 0 for the base's own table."""
    group_size: int = int8.GROUP_SIZE
    """Numbers that share a scale."""

    def rank_of(self, name: str, shape: Shape) -> int:
        """Directions that are kept of a matrix's change."""
        return min(self.token_rank if name == TOKENS else self.rank, *shape)


def pack(
    weights: Mapping[str, Tensor], base: Mapping[str, Tensor], extent: Extent
) -> dict[str, Tensor]:
    """What is stored of `weights`; both are float32."""
    stored: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if name not in base:
            stored |= int8.pack({name: weight}, extent.group_size)
        elif not torch.equal(weight, base[name]):
            shape = tuple(weight.shape)
            stored |= (
                _pack_change(name, weight - base[name], extent)
                if is_quantized(shape)
                else {name: weight}
            )
    return stored


def _pack_change(name: str, change: Matrix, extent: Extent) -> dict[str, Tensor]:
    rank = extent.rank_of(name, tuple(change.shape))
    if not rank:
        return {}
    left, sizes, right = torch.linalg.svd(change, full_matrices=False)
    roots = sizes[:rank, None].sqrt()
    return {
        **int8.pack_matrix(name + LEFT, roots * left.T[:rank].contiguous(), extent.group_size),
        **int8.pack_matrix(name + RIGHT, roots * right[:rank].contiguous(), extent.group_size),
    }


def unpack(
    stored: Mapping[str, Tensor],
    base: Mapping[str, Tensor],
    shapes: Mapping[str, Shape],
    extent: Extent,
) -> dict[str, Tensor]:
    """The weights of these shapes, in float32, from what `pack` gave and the base's."""

    def matrix(name: str) -> Matrix:
        return int8.dequantize(stored[name], stored[name + SCALES], extent.group_size).double()

    def weight(name: str) -> Tensor:
        if name in stored:
            whole = {each: stored[each] for each in (name, name + SCALES) if each in stored}
            return int8.unpack(whole, extent.group_size)[name]
        if name + LEFT in stored:  # in double, so that no machine's order of adding shows
            return (base[name] + matrix(name + LEFT).T @ matrix(name + RIGHT)).float()
        return base[name]

    return {name: weight(name) for name in shapes}


def stored_as(
    shapes: Mapping[str, Shape], base: Mapping[str, Shape], extent: Extent
) -> dict[str, Kinds]:
    """What `pack` makes of each weight of these shapes, where it changed."""

    def kinds(name: str, shape: Shape) -> Kinds:
        if name not in base or not is_quantized(shape):
            return int8.stored_as({name: shape}, extent.group_size)
        rank = extent.rank_of(name, shape)
        left, right = (
            int8.matrix_stored_as(name + side, (rank, size), extent.group_size)
            for side, size in zip((LEFT, RIGHT), shape, strict=True)
        )
        return left | right if rank else {}

    return {name: kinds(name, shape) for name, shape in shapes.items()}
