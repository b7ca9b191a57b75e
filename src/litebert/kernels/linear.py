# mypy: disable-error-code="no-untyped-call"
"""Linear maps of many tokens on a GPU, each product by an algorithm of our choice (lt.py); where
that has none, by torch.
 States and weights in; mapped states out. One operator makes the three products of a map: forward,
and the gradients of states and weights.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.flop_counter import register_flop_formula

from litebert.kernels import cublaslt as lt

LT = True
"""Whether lt.py is asked: docs/decisions/products.md has the times."""
LEAST = 8192
"""Tokens. Of fewer the products take little time, and nobody looked which algorithm is best."""


def linear(
    states: Float[Tensor, "*batch inputs"],
    weight: Float[Tensor, "outputs inputs"],
    bias: Float[Tensor, " outputs"],
    added: Float[Tensor, "*batch outputs"] | None = None,
) -> Float[Tensor, "*batch outputs"]:
    """What F.linear gives, plus `added`."""
    mapped: Tensor = Linear.apply(states, weight, bias, added)
    return mapped


class Linear(torch.autograd.Function):
    """apply(states, weight, bias, what is added or None)"""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, added: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(states, weight)
        more = None if added is None else added.flatten(0, -2)
        return product(states.flatten(0, -2), weight, bias, more, turn_right=True).view(
            *states.shape[:-1], -1
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, weight = ctx.saved_tensors
        rows = gradient.flatten(0, -2)
        of_bias = rows.sum(0) if ctx.needs_input_grad[2] else None
        of_added = gradient if ctx.needs_input_grad[3] else None
        of_weight = product(rows, states.flatten(0, -2), turn_left=True)
        return product(rows, weight).view_as(states), of_weight, of_bias, of_added


def product(
    left: Float[Tensor, "_ _"],
    right: Float[Tensor, "_ _"],
    bias: Float[Tensor, " columns"] | None = None,
    added: Float[Tensor, "rows columns"] | None = None,
    *,
    turn_left: bool = False,
    turn_right: bool = False,
) -> Float[Tensor, "rows columns"]:
    """left · right + bias + added, each of the two as it lies or turned."""
    found = _product(left, right, bias, added, turn_left, turn_right)
    assert isinstance(found, Tensor)
    return found


def is_for_lt(left: Tensor, *widths: int) -> bool:
    """Whether a product with a matrix that has a line for each token, of matrices this wide, may be
    lt.py's."""
    is_fit = left.is_cuda and left.dtype == torch.bfloat16 and len(left) >= LEAST
    return LT and is_fit and all(width % 8 == 0 for width in widths)


@torch.library.custom_op("litebert::product", mutates_args=())
def _product(
    left: Tensor,
    right: Tensor,
    bias: Tensor | None,
    added: Tensor | None,
    turn_left: bool,
    turn_right: bool,
) -> Tensor:
    left, right, added = (
        left.contiguous(),
        right.contiguous(),
        None if added is None else added.contiguous(),
    )
    if is_for_lt(left, left.shape[1], right.shape[1], right.shape[0] if turn_right else 0):
        out: Tensor = _like(left, right, bias, added, turn_left, turn_right)
        if lt.multiply(
            out, left, right, bias, added=added, turn_left=turn_left, turn_right=turn_right
        ):
            return out
    a, b = left.mT if turn_left else left, right.mT if turn_right else right
    found = a @ b if bias is None else torch.addmm(bias, a, b)
    return found if added is None else found.add_(added)


@_product.register_fake
def _like(
    left: Tensor,
    right: Tensor,
    bias: Tensor | None,
    added: Tensor | None,
    turn_left: bool,
    turn_right: bool,
) -> Tensor:
    return left.new_empty(left.shape[1 if turn_left else 0], right.shape[0 if turn_right else 1])


@register_flop_formula(torch.ops.litebert.product)
def _flops(
    left: Any, right: Any, bias: Any, added: Any, turn_left: bool, turn_right: bool, **_: Any
) -> Any:
    """For a compiler that decides what to compute twice."""
    return 2 * left[0] * left[1] * right[0 if turn_right else 1]
