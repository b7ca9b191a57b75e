"""Weights in 8 bits: float tensors in; whole numbers from -127 to 127, with a scale for each group
of a row, out; and back.
 A weight is its number times its group's scale, so that zero stays zero and each weight errs by
half a scale at most. Scales are bfloat16: they have the range of float32, and the product of an
int8 and a bfloat16 fits into a float32 exactly. Rounding a scale moves the largest number by less
than a quarter, so that it is 127 always, and weights that come from 8 bits go back to the same 8
bits.
"""

from collections.abc import Mapping

import torch
from jaxtyping import BFloat16, Float, Int8
from torch import Tensor
from torch.nn.functional import pad

GROUP_SIZE = 64
"""Weights that share a scale: bench/int8.py measures others."""
MOST = 127
FEWEST_ROWS = 16
"""Smaller matrices (segments, the outputs of most heads) stay as they are: there is nothing to save
there."""
SCALES = ".scales"
"""What is put behind a weight's name to name its scales."""

Shape = tuple[int, ...]


def quantize(
    weight: Float[Tensor, "rows columns"], group_size: int
) -> tuple[Int8[Tensor, "rows columns"], BFloat16[Tensor, "rows groups"]]:
    """Numbers and scales; the last group of a row may be smaller."""
    rows, columns = weight.shape
    size = min(group_size, columns)
    groups = pad(weight.float(), (0, -columns % size)).reshape(rows, -1, size)
    scales = (groups.abs().amax(2) / MOST).to(torch.bfloat16)
    steps = scales.float()[..., None]
    numbers = torch.where(steps > 0, groups / steps, 0.0).round().clamp(-MOST, MOST)
    return numbers.flatten(1)[:, :columns].to(torch.int8), scales


def dequantize(
    numbers: Int8[Tensor, "rows columns"], scales: BFloat16[Tensor, "rows groups"], group_size: int
) -> Float[Tensor, "rows columns"]:
    """The weights, in float32."""
    rows, columns = numbers.shape
    size = min(group_size, columns)  # a file may ask for any, and must not make us allocate
    groups = pad(numbers, (0, -columns % size)).reshape(rows, -1, size)
    return (groups * scales.float()[..., None]).flatten(1)[:, :columns].contiguous()


def is_quantized(shape: Shape) -> bool:
    """Whether a weight of this shape is stored in 8 bits; biases, norms and small matrices are
    not."""
    return len(shape) == 2 and shape[0] >= FEWEST_ROWS


def pack(weights: Mapping[str, Tensor], group_size: int) -> dict[str, Tensor]:
    """A model's weights as they are stored: of each matrix the numbers under its name and the
    scales beside it, the rest in float32."""
    stored: dict[str, Tensor] = {}
    for name, weight in weights.items():
        stored |= (
            pack_matrix(name, weight, group_size)
            if is_quantized(tuple(weight.shape))
            else {name: weight.float()}
        )
    return stored


def pack_matrix(
    name: str, weight: Float[Tensor, "rows columns"], group_size: int
) -> dict[str, Tensor]:
    """A matrix as it is stored in 8 bits."""
    numbers, scales = quantize(weight, group_size)
    return {name: numbers, name + SCALES: scales}


def unpack(stored: Mapping[str, Tensor], group_size: int) -> dict[str, Tensor]:
    """A model's weights in float32 from what `pack` gave."""
    return {
        name: dequantize(tensor, stored[name + SCALES], group_size)
        if is_quantized(tuple(tensor.shape))
        else tensor.float()
        for name, tensor in stored.items()
        if not name.endswith(SCALES)
    }


def stored_as(shapes: Mapping[str, Shape], group_size: int) -> dict[str, tuple[str, Shape]]:
    """What `pack` makes of weights of these shapes: for each name its type, as safetensors calls
    it, and its shape."""
    found: dict[str, tuple[str, Shape]] = {}
    for name, shape in shapes.items():
        found |= (
            matrix_stored_as(name, shape, group_size)
            if is_quantized(shape)
            else {name: ("F32", shape)}
        )
    return found


def matrix_stored_as(name: str, shape: Shape, group_size: int) -> dict[str, tuple[str, Shape]]:
    """What `pack_matrix` makes of a matrix of this shape."""
    rows, columns = shape
    return {name: ("I8", shape), name + SCALES: ("BF16", (rows, -(-columns // group_size)))}
