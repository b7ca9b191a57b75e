# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call, untyped-decorator"
"""Backward of layer norm and GELU on a GPU, each in one pass with the gradients of biases beside
it.

States in; states out, as without it. The gradient of a bias is the sum of a gradient over all
tokens, and some kernel has just read or written that gradient: these kernels sum it while it is in
registers. So each takes over the bias of a linear layer next to it, which is a constant there.
docs/decisions/fused_norms.md has the numbers.

A program walks over blocks of rows with its sums in registers, in float32. It writes them as one
row of `sums`, and `_total_kernel` adds up the few hundred rows: no atomics, so the same input gives
the same bits. `columns` is a power of two; columns beyond the width are read as zeros and not
written. Needs Triton; with TRITON_INTERPRET=1 it runs on a CPU.
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

LANES = 256
"""Columns that a warp reads at once, 16 bytes a thread."""
COLUMNS = 1024
"""That a program of a kernel for parts of rows has: four warps."""
NORM: dict[str, int] = {"rows": 2, "stages": 3, "programs": 4 * 132}
GELU: dict[str, int] = {"rows": 2, "stages": 3, "programs": 4 * 132}
"""Rows that a program reads at once, stages of its pipeline, and programs of four warps. Four are
at work at once on each of an H200's 132 multiprocessors. Of three stages one is at work and one on
its way; with two, Triton would put the loads at the end of the loop and wait for them at its
start."""
TOTAL: dict[str, int] = {"rows": 512, "columns": 16}
"""That a program of `_total_kernel` reads at once: most of the rows of sums."""
BLOCK = 2048
"""Numbers that a program of `_gelu_kernel` has."""


def norm_with_skip(
    states: Float[Tensor, "*batch size"],
    norm: nn.LayerNorm,
    last: nn.Linear,
    before: Float[Tensor, " inputs"] | None = None,
) -> tuple[Float[Tensor, "*batch size"], Float[Tensor, "*batch size"]]:
    """The states for the skip connection, and the states normed. The output of `last`, its bias a
    constant, is added to the first: the sum of their gradient is the bias's gradient. `before` is a
    bias that the inputs of `last` contain unchanged at each token: it gets its gradient too."""
    weight = None if before is None else last.weight.detach()
    skip, normed, *_ = _NormWithSkip.apply(
        states, norm.weight, norm.bias, last.bias, norm.eps, before, weight
    )
    return skip, normed


class _NormWithSkip(torch.autograd.Function):
    """apply(states, weight, bias, bias of the last linear layer, epsilon, bias before that layer or
    None, that layer's weight or None): states, normed states, their means and scales"""

    @staticmethod
    def forward(
        states: Tensor,
        weight: Tensor,
        bias: Tensor,
        added: Tensor,
        epsilon: float,
        before: Tensor | None,
        last: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        normed, means, scales = torch.native_layer_norm(states, weight.shape, weight, bias, epsilon)
        return states.view_as(states), normed, means, scales

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        states, weight, *_, last = inputs
        ctx.mark_non_differentiable(*output[2:])
        ctx.save_for_backward(states, *output[2:], weight, last)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, skip_gradient: Tensor, gradient: Tensor, *_: object
    ) -> tuple[Tensor | None, ...]:
        *saved, last = ctx.saved_tensors
        of_states, of_parameters = _norm_backward(gradient, skip_gradient, *saved)
        # a sum of products, in float32: a compiler needs no copy of the weight for it
        of_before = (
            None if last is None else (of_parameters[2][:, None] * last).sum(0).to(last.dtype)
        )
        return of_states, *of_parameters.to(of_states.dtype).unbind(), None, of_before, None


@torch.library.custom_op("litebert::norm_backward", mutates_args=())
def _norm_backward(
    gradient: Tensor,
    skip_gradient: Tensor,
    states: Tensor,
    means: Tensor,
    scales: Tensor,
    weight: Tensor,
) -> tuple[Tensor, Tensor]:
    out, totals = _like_norm(gradient, skip_gradient, states)
    width, columns = states.shape[-1], triton.next_power_of_2(states.shape[-1])
    inputs = [
        tensor.contiguous() for tensor in (gradient, states, skip_gradient, means, scales, weight)
    ]
    programs = max(1, NORM["programs"] * 4 // max(4, warps(columns)))
    sums = states.new_empty(programs, 3 * width, dtype=torch.float32)
    with torch.cuda.device_of(states):
        _norm_gradient_kernel[(programs,)](
            *inputs,
            out,
            sums,
            states.numel() // width,
            width,
            NORM["rows"],
            columns,
            NORM["stages"],
            num_warps=warps(columns),
        )
        add_up(sums, totals)
    return out, totals


@torch.library.custom_op("litebert::gelu", mutates_args=())
def gelu(states: Tensor, is_tanh: bool) -> Tensor:
    states = states.contiguous()
    out = torch.empty_like(states)
    with torch.cuda.device_of(states):
        _gelu_kernel[(triton.cdiv(states.numel(), BLOCK),)](
            states, out, states.numel(), is_tanh, BLOCK, num_warps=4
        )
    return out


@torch.library.custom_op("litebert::gelu_backward", mutates_args=())
def gelu_backward(gradient: Tensor, states: Tensor, is_tanh: bool) -> tuple[Tensor, Tensor, Tensor]:
    out, activated, totals = _like_gelu(gradient, states, is_tanh)
    rows, width = states.shape
    columns = min(COLUMNS, triton.next_power_of_2(width))
    blocks = triton.cdiv(width, columns)
    programs = max(1, GELU["programs"] // blocks)
    sums = states.new_empty(programs, width, dtype=torch.float32)
    with torch.cuda.device_of(states):
        _gelu_gradient_kernel[(programs, blocks)](
            gradient.contiguous(), states.contiguous(), out, activated, sums, rows, width, is_tanh,
            GELU["rows"], columns, GELU["stages"], num_warps=warps(columns),
        )  # fmt: skip
        add_up(sums, totals)
    return out, activated, totals


@_norm_backward.register_fake
def _like_norm(
    gradient: Tensor, skip_gradient: Tensor, states: Tensor, *_: Tensor
) -> tuple[Tensor, Tensor]:
    return states.new_empty(states.shape), states.new_empty(
        3, states.shape[-1], dtype=torch.float32
    )


@gelu.register_fake
def _(states: Tensor, is_tanh: bool) -> Tensor:
    return states.new_empty(states.shape)


@gelu_backward.register_fake
def _like_gelu(gradient: Tensor, states: Tensor, is_tanh: bool) -> tuple[Tensor, Tensor, Tensor]:
    return (
        states.new_empty(states.shape),
        states.new_empty(states.shape),
        states.new_empty(states.shape[-1]),
    )


def add_up(sums: Tensor, totals: Tensor) -> None:
    """Rows of sums, one from each program, into one."""
    count, width = sums.shape
    _total_kernel[(triton.cdiv(width, TOTAL["columns"]),)](
        sums, totals, count, width, **TOTAL, num_warps=8
    )


def warps(columns: int) -> int:
    return max(1, columns // LANES)


# Kernels. no_type_check: Triton reads their source, which shape checks in tests must not wrap.

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
def _total_kernel(sums, out, count, width: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr):
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
def _norm_gradient_kernel(
    gradient, states, residual, means, scales, weight, out, sums, num_rows, width: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    """Gradients of a norm's output and of the residual in; their sum, the gradient of the states,
    out.

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
        offset = row.to(tl.int64)[:, None] * width + column[None, :]
        is_there = is_row[:, None] & is_column[None, :]
        dy = tl.load(gradient + offset, is_there, 0.0).to(tl.float32)
        x = tl.load(states + offset, is_there, 0.0).to(tl.float32)
        skip = tl.load(residual + offset, is_there, 0.0).to(tl.float32)
        mean, scale = (
            tl.load(means + row, is_row, 0.0)[:, None],
            tl.load(scales + row, is_row, 0.0)[:, None],
        )
        normed = (
            x - mean
        ) * scale  # not 0 beyond the width, where dy is: each term below has dy in it
        of_weight += tl.sum(dy * normed, 0)
        of_bias += tl.sum(dy, 0)
        of_residual += tl.sum(skip, 0)
        dy *= gain[None, :]
        along, level = tl.reduce((dy * normed, dy), 1, _both)
        dx = (dy - (level[:, None] + normed * along[:, None]) / width) * scale + skip
        tl.store(out + offset, dx.to(out.dtype.element_ty), is_there)
    mine = sums + tl.program_id(0) * 3 * width + column
    tl.store(mine, of_weight, is_column)
    tl.store(mine + width, of_bias, is_column)
    tl.store(mine + 2 * width, of_residual, is_column)


@triton.jit
@no_type_check
def _gelu(x, is_tanh: tl.constexpr):
    """What x is multiplied with, and the derivative of the result."""
    if is_tanh:
        factor = 1.0 / (1.0 + tl.exp2(x * (x * x * (-SLOPE * CUBE * LOG2_E) - SLOPE * LOG2_E)))
        slope = factor + x * factor * (1.0 - factor) * (SLOPE + x * x * (3 * SLOPE * CUBE))
    else:
        factor = 0.5 + 0.5 * tl.erf(x * ROOT_HALF)
        slope = factor + x * tl.exp2(x * x * (-0.5 * LOG2_E)) * DENSITY
    return factor, slope


@triton.jit
@no_type_check
def _gelu_kernel(states, out, count, is_tanh: tl.constexpr, block: tl.constexpr):
    offset = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    x = tl.load(states + offset, offset < count, 0.0).to(tl.float32)
    factor, _ = _gelu(x, is_tanh)
    tl.store(out + offset, (x * factor).to(out.dtype.element_ty), offset < count)


@triton.jit(do_not_specialize=["num_rows"])
@no_type_check
def _gelu_gradient_kernel(
    gradient, states, out, activated, sums, num_rows, width: tl.constexpr, is_tanh: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    """The gradient of GELU's output in; that of its input out, and its sum over rows: one row of
    `sums` a program.

    GELU's output is recomputed into `activated`: the matmul after it needs it, and it was not
    saved.
    """
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    is_column = column < width
    total = tl.zeros([columns], tl.float32)
    for first in tl.range(
        tl.program_id(0) * rows, num_rows, tl.num_programs(0) * rows, num_stages=stages
    ):
        row = first + tl.arange(0, rows)
        offset = row.to(tl.int64)[:, None] * width + column[None, :]
        is_there = (row < num_rows)[:, None] & is_column[None, :]
        dy = tl.load(gradient + offset, is_there, 0.0).to(tl.float32)
        x = tl.load(states + offset, is_there, 0.0).to(tl.float32)
        factor, slope = _gelu(x, is_tanh)
        dx = dy * slope
        total += tl.sum(dx, 0)
        tl.store(out + offset, dx.to(out.dtype.element_ty), is_there)
        tl.store(activated + offset, (x * factor).to(out.dtype.element_ty), is_there)
    tl.store(sums + tl.program_id(0) * width + column, total, is_column)
