# mypy: ignore-errors
"""The kernels of fused_norm.py: rows of numbers in; rows, and sums over all rows, out.
 A program walks over blocks of rows and keeps its sums in registers, in float32. At its end it
writes them as one row of `sums`; `total_kernel` adds up the few hundred rows there. Nothing is
added in memory, so the same input gives the same bits. `columns` is a power of two; columns beyond
the width are read as zeros and not written.
"""

from typing import (
    no_type_check,
)  # keeps shape checks away in tests: Triton reads source, not functions

import triton
import triton.language as tl

CUBE = tl.constexpr(0.044715)
SLOPE = tl.constexpr(2 * (2 / 3.141592653589793) ** 0.5)
"""GELU by tanh is x σ(SLOPE (x + CUBE x³)): (1 + tanh u) / 2 is σ(2u), which has no difference to
lose small numbers in."""
LOG2_E = tl.constexpr(1.4426950408889634)
ROOT_HALF = tl.constexpr(0.5**0.5)
DENSITY = tl.constexpr((2 * 3.141592653589793) ** -0.5)


@triton.jit
@no_type_check
def _both(sum_a, sum_b, a, b):
    return sum_a + a, sum_b + b


@triton.jit
@no_type_check
def total_kernel(sums, out, count, width: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr):
    """Rows of `sums` in; their sum out."""
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    total = tl.zeros([columns], tl.float32)
    for first in range(0, count, rows):
        row = first + tl.arange(0, rows)
        is_there = (row < count)[:, None] & (column < width)[None, :]
        total += tl.sum(tl.load(sums + row[:, None] * width + column[None, :], is_there, 0.0), 0)
    tl.store(out + column, total.to(out.dtype.element_ty), column < width)


@triton.jit(do_not_specialize=["num_rows"])
@no_type_check
def norm_gradient_kernel(
    gradient, states, residual, means, scales, weight, out, sums, num_rows, width: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    """Gradient of a norm's output, and that of the same states on their way around it, in; their
    sum in the states out.

    `sums` has three rows a program: gradients of the norm's weight and bias, and the sum of
    `residual`.
    """
    column = tl.arange(0, columns)
    is_column = column < width
    gain = tl.load(weight + column, is_column, 0.0).to(tl.float32)
    of_weight = tl.zeros([columns], tl.float32)
    of_bias = tl.zeros([columns], tl.float32)
    of_residual = tl.zeros([columns], tl.float32)
    for first in tl.range(
        tl.program_id(0) * rows, num_rows, tl.num_programs(0) * rows, num_stages=stages
    ):
        row = first + tl.arange(0, rows)
        is_row = row < num_rows
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        is_there = is_row[:, None] & is_column[None, :]
        dy = tl.load(gradient + place, is_there, 0.0).to(tl.float32)
        x = tl.load(states + place, is_there, 0.0).to(tl.float32)
        around = tl.load(residual + place, is_there, 0.0).to(tl.float32)
        mean, scale = (
            tl.load(means + row, is_row, 0.0)[:, None],
            tl.load(scales + row, is_row, 0.0)[:, None],
        )
        normed = (
            x - mean
        ) * scale  # not 0 beyond the width, where dy is: each product below has dy in it
        of_weight += tl.sum(dy * normed, 0)
        of_bias += tl.sum(dy, 0)
        of_residual += tl.sum(around, 0)
        dy *= gain[None, :]
        along, level = tl.reduce((dy * normed, dy), 1, _both)
        dx = (dy - (level[:, None] + normed * along[:, None]) / width) * scale + around
        tl.store(out + place, dx.to(out.dtype.element_ty), is_there)
    mine = sums + tl.program_id(0) * 3 * width + column
    tl.store(mine, of_weight, is_column)
    tl.store(mine + width, of_bias, is_column)
    tl.store(mine + 2 * width, of_residual, is_column)


@triton.jit
@no_type_check
def _gelu(x, is_tanh: tl.constexpr):
    """What x is multiplied with, and the slope of the product."""
    if is_tanh:
        part = 1.0 / (1.0 + tl.exp2(x * (x * x * (-SLOPE * CUBE * LOG2_E) - SLOPE * LOG2_E)))
        slope = part + x * part * (1.0 - part) * (SLOPE + x * x * (3 * SLOPE * CUBE))
    else:
        part = 0.5 + 0.5 * tl.erf(x * ROOT_HALF)
        slope = part + x * tl.exp2(x * x * (-0.5 * LOG2_E)) * DENSITY
    return part, slope


@triton.jit
@no_type_check
def gelu_kernel(states, out, count, is_tanh: tl.constexpr, block: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    x = tl.load(states + place, place < count, 0.0).to(tl.float32)
    part, _ = _gelu(x, is_tanh)
    tl.store(out + place, (x * part).to(out.dtype.element_ty), place < count)


@triton.jit(do_not_specialize=["num_rows"])
@no_type_check
def gelu_gradient_kernel(
    gradient, states, out, activated, sums, num_rows, width: tl.constexpr, is_tanh: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    """The gradient of GELU's output in; that of its input out, and its sum over rows: one row of
    `sums` a program.

    GELU's output is written anew into `activated`: whoever multiplied it needs it now, and it was
    not kept.
    """
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    is_column = column < width
    total = tl.zeros([columns], tl.float32)
    for first in tl.range(
        tl.program_id(0) * rows, num_rows, tl.num_programs(0) * rows, num_stages=stages
    ):
        row = first + tl.arange(0, rows)
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        is_there = (row < num_rows)[:, None] & is_column[None, :]
        dy = tl.load(gradient + place, is_there, 0.0).to(tl.float32)
        x = tl.load(states + place, is_there, 0.0).to(tl.float32)
        part, slope = _gelu(x, is_tanh)
        dx = dy * slope
        total += tl.sum(dx, 0)
        tl.store(out + place, dx.to(out.dtype.element_ty), is_there)
        tl.store(activated + place, (x * part).to(out.dtype.element_ty), is_there)
    tl.store(sums + tl.program_id(0) * width + column, total, is_column)
