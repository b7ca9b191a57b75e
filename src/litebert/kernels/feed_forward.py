# mypy: disable-error-code="no-untyped-call"
"""The two maps of a feed-forward part with GELU between, on a GPU: what is kept is GELU's input,
never its output.
 States in; mapped states out, plus others where wanted. Forward, GELU may be written by the product
before it (lt.py). Going back, one kernel has GELU's slope, its output anew, and the sum for the
inner bias (fused_norm.py).
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.flop_counter import register_flop_formula

from litebert.kernels import cublaslt as lt
from litebert.kernels.linear import is_for_lt, product
from litebert.kernels.norm import gelu, gelu_backward


def feed_forward(
    states: Float[Tensor, "*batch size"],
    inner: Float[Tensor, "inner size"],
    inner_bias: Float[Tensor, " inner"],
    outer: Float[Tensor, "size inner"],
    outer_bias: Float[Tensor, " size"],
    added: Float[Tensor, "*batch size"] | None = None,
    *,
    is_tanh: bool,
) -> Float[Tensor, "*batch size"]:
    """outer · GELU(inner · states + inner_bias) + outer_bias + added; GELU by tanh, or by erf."""
    mapped: Tensor = TwoMaps.apply(states, inner, inner_bias, outer, outer_bias, added, is_tanh)
    return mapped


class TwoMaps(torch.autograd.Function):
    """apply(states, inner weight, its bias, outer weight, its bias, what is added or None, whether
    GELU is by tanh)"""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, inner: Tensor, inner_bias: Tensor, outer: Tensor, outer_bias: Tensor, added: Tensor | None,
        is_tanh: bool,
    ) -> Tensor:  # fmt: skip
        before, activated = _product_gelu(states.flatten(0, -2), inner, inner_bias, is_tanh)
        ctx.save_for_backward(states, before, inner, outer)
        ctx.is_tanh = is_tanh
        more = None if added is None else added.flatten(0, -2)
        return product(activated, outer, outer_bias, more, turn_right=True).view_as(states)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, before, inner, outer = ctx.saved_tensors
        rows = gradient.flatten(0, -2)
        of_before, activated, of_inner_bias = gelu_backward(
            product(rows, outer), before, ctx.is_tanh
        )
        of_outer = product(rows, activated, turn_left=True)
        of_outer_bias = rows.sum(0) if ctx.needs_input_grad[4] else None
        of_inner = product(of_before, states.flatten(0, -2), turn_left=True)
        of_states, of_added = (
            product(of_before, inner).view_as(states),
            gradient if ctx.needs_input_grad[5] else None,
        )
        return of_states, of_inner, of_inner_bias, of_outer, of_outer_bias, of_added, None


@torch.library.custom_op("litebert::product_gelu", mutates_args=())
def _product_gelu(
    left: Tensor, weight: Tensor, bias: Tensor, is_tanh: bool
) -> tuple[Tensor, Tensor]:
    """left · weight turned + bias, and GELU of it."""
    left, weight = left.contiguous(), weight.contiguous()
    if is_tanh and is_for_lt(left, *weight.shape):
        before, out = _like(left, weight)
        if lt.multiply(out, left, weight, bias, inputs=before, turn_right=True):
            return before, out
    before = product(left, weight, bias, turn_right=True)
    return before, gelu(before, is_tanh)


@_product_gelu.register_fake
def _like(left: Tensor, weight: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    size = left.shape[0], weight.shape[0]  # not len(): a compiler would take it for a constant
    return left.new_empty(size), left.new_empty(size)


@register_flop_formula(torch.ops.litebert.product_gelu)
def _flops(left: Any, weight: Any, *_: Any, **__: Any) -> Any:
    """For a compiler that decides what to compute twice."""
    return 2 * left[0] * left[1] * weight[0]
