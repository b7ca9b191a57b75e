"""int8 weights: float tensors ↔ integers from -127 to 127 with a bfloat16 scale per group of a row.

A weight is its integer times its group's scale: zero stays zero, and the error is at most half a
scale. The product of an int8 and a bfloat16 is exact in float32. Rounding a scale to bfloat16 moves
the largest integer by less than a quarter, so it stays 127, and dequantized weights quantize to the
same integers and scales again.
"""

from collections.abc import Mapping

import torch
from jaxtyping import BFloat16, Float, Int8
from torch import Tensor
from torch.nn.functional import pad

GROUP_SIZE = 64
"""Weights that share a scale: bench/studies/int8.py measures others."""
MIN_ROWS = 16
"""Matrices with fewer rows (segments, the outputs of most heads) stay float32: they are small."""
SCALES = ".scales"
"""Suffix of a weight's name that names its scales."""
_MAX = 127

Shape = tuple[int, ...]
Layout = dict[str, tuple[str, Shape]]
"""Of each tensor of a file its safetensors dtype and its shape."""


def quantize(
    weight: Float[Tensor, "rows columns"], group_size: int
) -> tuple[Int8[Tensor, "rows columns"], BFloat16[Tensor, "rows groups"]]:
    """Integers and scales; the last group of a row may be smaller."""
    rows, columns = weight.shape
    size = min(group_size, columns)
    groups = pad(weight.float(), (0, -columns % size)).reshape(rows, -1, size)
    scales = (groups.abs().amax(2) / _MAX).to(torch.bfloat16)
    steps = scales.float()[..., None]
    integers = torch.where(steps > 0, groups / steps, 0.0).round().clamp(-_MAX, _MAX)
    return integers.flatten(1)[:, :columns].to(torch.int8), scales


def dequantize(
    integers: Int8[Tensor, "rows columns"], scales: BFloat16[Tensor, "rows groups"], group_size: int
) -> Float[Tensor, "rows columns"]:
    """The weights, in float32."""
    rows, columns = integers.shape
    size = min(group_size, columns)  # a hostile file cannot make us allocate more
    groups = pad(integers, (0, -columns % size)).reshape(rows, -1, size)
    return (groups * scales.float()[..., None]).flatten(1)[:, :columns].contiguous()


def is_quantized(shape: Shape, min_rows: int = MIN_ROWS) -> bool:
    """Whether a weight of this shape is stored as int8; biases, norms, small matrices are not."""
    return len(shape) == 2 and shape[0] >= min_rows


def pack(
    weights: Mapping[str, Tensor], group_size: int, *, min_rows: int = MIN_ROWS
) -> dict[str, Tensor]:
    """Tensors to store: matrices as integers with their scales beside them, the rest as float32."""
    stored: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if is_quantized(tuple(weight.shape), min_rows):
            stored[name], stored[name + SCALES] = quantize(weight, group_size)
        else:
            stored[name] = weight.float()
    return stored


def unpack(stored: Mapping[str, Tensor], group_size: int) -> dict[str, Tensor]:
    """The inverse of `pack`, in float32."""
    restored: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if name + SCALES in stored:
            restored[name] = dequantize(tensor, stored[name + SCALES], group_size)
        elif not name.endswith(SCALES):
            restored[name] = tensor.float()
    return restored


def layout(shapes: Mapping[str, Shape], group_size: int, *, min_rows: int = MIN_ROWS) -> Layout:
    """Dtypes and shapes of what `pack` returns for weights of these shapes."""
    result: Layout = {}
    for name, shape in shapes.items():
        if is_quantized(shape, min_rows):
            result[name] = ("I8", shape)
            result[name + SCALES] = ("BF16", (shape[0], -(-shape[1] // group_size)))
        else:
            result[name] = ("F32", shape)
    return result
