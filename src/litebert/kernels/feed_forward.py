# mypy: disable-error-code="no-untyped-call"
"""The two linear layers of a feed-forward with GELU between, on a GPU: saved for backward is GELU's
input, never its output.

States in; states out, plus a residual where wanted. Forward, GELU may be written by the matmul
before it (cublaslt.py). Backward, one kernel has GELU's slope, its output again, and the gradient
of the inner bias (norm.py).
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.flop_counter import register_flop_formula

from litebert.kernels import cublaslt
from litebert.kernels.linear import matmul, suits_cublaslt
from litebert.kernels.norm import gelu, gelu_backward


def feed_forward(
    states: Float[Tensor, "*batch size"],
    inner: Float[Tensor, "inner size"],
    inner_bias: Float[Tensor, " inner"],
    outer: Float[Tensor, "size inner"],
    outer_bias: Float[Tensor, " size"],
    residual: Float[Tensor, "*batch size"] | None = None,
    *,
    is_tanh: bool,
    tuned: bool = True,
) -> Float[Tensor, "*batch size"]:
    """outer · GELU(inner · states + inner_bias) + outer_bias + residual; GELU by tanh, or by erf;
    `tuned`: matmuls by cuBLASLt."""
    out: Tensor = _FusedFeedForward.apply(
        states, inner, inner_bias, outer, outer_bias, residual, is_tanh, tuned
    )
    return out


class _FusedFeedForward(torch.autograd.Function):
    """apply(states, inner weight, its bias, outer weight, its bias, residual or None, whether GELU
    is by tanh, whether matmuls are tuned)"""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, inner: Tensor, inner_bias: Tensor, outer: Tensor,
        outer_bias: Tensor,
        residual: Tensor | None, is_tanh: bool, tuned: bool,
    ) -> Tensor:  # fmt: skip
        before, activated = _matmul_gelu(states.flatten(0, -2), inner, inner_bias, is_tanh, tuned)
        ctx.save_for_backward(states, before, inner, outer)
        ctx.is_tanh, ctx.tuned = is_tanh, tuned
        added = None if residual is None else residual.flatten(0, -2)
        return matmul(
            activated, outer, outer_bias, added, transpose_right=True, tuned=tuned
        ).view_as(states)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, before, inner, outer = ctx.saved_tensors
        rows, tuned = gradient.flatten(0, -2), ctx.tuned
        of_before, activated, of_inner_bias = gelu_backward(
            matmul(rows, outer, tuned=tuned), before, ctx.is_tanh
        )
        of_outer = matmul(rows, activated, transpose_left=True, tuned=tuned)
        of_outer_bias = rows.sum(0) if ctx.needs_input_grad[4] else None
        of_inner = matmul(of_before, states.flatten(0, -2), transpose_left=True, tuned=tuned)
        of_states = matmul(of_before, inner, tuned=tuned).view_as(states)
        of_residual = gradient if ctx.needs_input_grad[5] else None
        return (
            of_states, of_inner, of_inner_bias, of_outer, of_outer_bias, of_residual, None, None,
        )  # fmt: skip


@torch.library.custom_op("litebert::matmul_gelu", mutates_args=())
def _matmul_gelu(
    left: Tensor, weight: Tensor, bias: Tensor, is_tanh: bool, tuned: bool
) -> tuple[Tensor, Tensor]:
    """left · weightᵀ + bias, and GELU of it."""
    left, weight = left.contiguous(), weight.contiguous()
    if is_tanh and tuned and suits_cublaslt(left, *weight.shape):
        before, out = _like(left, weight)
        if cublaslt.multiply(out, left, weight, bias, gelu_input=before, transpose_right=True):
            return before, out
    before = matmul(left, weight, bias, transpose_right=True, tuned=tuned)
    return before, gelu(before, is_tanh)


@_matmul_gelu.register_fake
def _like(left: Tensor, weight: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    size = left.shape[0], weight.shape[0]  # not len(): a compiler would take it for a constant
    return left.new_empty(size), left.new_empty(size)


@register_flop_formula(torch.ops.litebert.matmul_gelu)
def _flops(left: Any, weight: Any, *_: Any, **__: Any) -> Any:
    """For a compiler that decides what to compute twice."""
    return 2 * left[0] * left[1] * weight[0]
