# mypy: disable-error-code="no-untyped-call"
"""Linear layers over many tokens on a GPU: one matmul for several of them, matmuls by a cuBLASLt
algorithm of our choice (cublaslt.py), and a residual added in the matmul.

States and weights in; outputs out. One operator makes the three matmuls of a linear layer: forward,
and the gradients of states and weights.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.flop_counter import register_flop_formula

from litebert.kernels import cublaslt

LEAST_TOKENS = 8192
"""Fewer tokens take little time, and which algorithm is best was not measured."""


def linear(
    states: Float[Tensor, "*batch inputs"],
    weight: Float[Tensor, "outputs inputs"],
    bias: Float[Tensor, " outputs"],
    residual: Float[Tensor, "*batch outputs"] | None = None,
) -> Float[Tensor, "*batch outputs"]:
    """F.linear, plus `residual`."""
    mapped: Tensor = _Linear.apply(states, weight, bias, residual)
    return mapped


class _Linear(torch.autograd.Function):
    """apply(states, weight, bias, residual or None)"""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(states, weight)
        added = None if residual is None else residual.flatten(0, -2)
        return matmul(states.flatten(0, -2), weight, bias, added, transpose_right=True).view(
            *states.shape[:-1], -1
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, weight = ctx.saved_tensors
        rows = gradient.flatten(0, -2)
        of_bias = rows.sum(0) if ctx.needs_input_grad[2] else None
        of_residual = gradient if ctx.needs_input_grad[3] else None
        of_weight = matmul(rows, states.flatten(0, -2), transpose_left=True)
        return matmul(rows, weight).view_as(states), of_weight, of_bias, of_residual


def concatenated(
    states: Float[Tensor, "*batch inputs"], linears: Sequence[nn.Linear], *, tuned: bool
) -> Float[Tensor, "*batch outputs_of_all"]:
    """Outputs of several linear layers in one tensor, by one matmul. Biases are constants:
    `bias_gradients` has their gradients."""
    weight = torch.cat([each.weight for each in linears])
    bias = torch.cat([each.bias.detach() for each in linears])
    return linear(states, weight, bias) if tuned else F.linear(states, weight, bias)


def bias_gradients(
    outputs: Float[Tensor, "*batch outputs_of_all"],
    biases: Sequence[Float[Tensor, " _"]],
    offsets: Sequence[int | None],
) -> Float[Tensor, "*batch outputs_of_all"]:
    """The same outputs, which have these biases in them as constants. In backward each bias gets
    the sum of the gradient from its offset on; zeros where the offset is None: its gradient is
    known to be zero."""
    watched: Tensor = _BiasGradients.apply(outputs, tuple(offsets), *biases)
    return watched


class _BiasGradients(torch.autograd.Function):
    """apply(outputs, offsets, bias, bias, …)"""

    @staticmethod
    def forward(
        ctx: Any, outputs: Tensor, offsets: tuple[int | None, ...], *biases: Tensor
    ) -> Tensor:
        ctx.offsets, ctx.widths = offsets, [bias.shape[0] for bias in biases]
        return outputs.view_as(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows = gradient.flatten(0, -2)
        sums = (
            rows.new_zeros(width) if offset is None else rows[:, offset : offset + width].sum(0)
            for offset, width in zip(ctx.offsets, ctx.widths, strict=True)
        )
        return gradient, None, *sums


class FusedProjection(torch.autograd.Function):
    """apply(states, weight, bias, weight, bias, …): an output each, by one matmul forward. Where
    the gradients arrive apart, concatenating them costs more than one wide matmul gains: backward
    has a matmul for each."""

    @staticmethod
    def forward(states: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        weights, biases = parameters[0::2], parameters[1::2]
        outputs = F.linear(states, torch.cat(weights), torch.cat(biases))
        return torch.split(outputs, [len(weight) for weight in weights], -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        states, *parameters = inputs
        ctx.save_for_backward(states, *parameters[0::2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        states, *weights = ctx.saved_tensors
        rows = states.flatten(0, -2)
        apart = [gradient.flatten(0, -2) for gradient in gradients]
        # Each in the states' shape, then added: a compiler that sees mm + mm makes addmm of it,
        # which copies one of them first; behind a view it leaves the sums to the kernel that reads
        # them.
        of_states, *others = (
            (gradient @ weight).view_as(states)
            for gradient, weight in zip(apart, weights, strict=True)
        )
        total = sum(others, start=of_states)
        return total, *(
            each for gradient in apart for each in (gradient.mT @ rows, gradient.sum(0))
        )


def matmul(
    left: Float[Tensor, "_ _"],
    right: Float[Tensor, "_ _"],
    bias: Float[Tensor, " columns"] | None = None,
    residual: Float[Tensor, "rows columns"] | None = None,
    *,
    transpose_left: bool = False,
    transpose_right: bool = False,
    tuned: bool = True,
) -> Float[Tensor, "rows columns"]:
    """left · right + bias + residual, each factor as it is or transposed; `tuned`: by cuBLASLt."""
    out = _matmul(left, right, bias, residual, transpose_left, transpose_right, tuned)
    assert isinstance(out, Tensor)
    return out


def suits_cublaslt(left: Tensor, *widths: int) -> bool:
    """Whether a matmul with a row for each token in `left`, of matrices this wide, goes to
    cuBLASLt."""
    is_large = left.is_cuda and left.dtype == torch.bfloat16 and len(left) >= LEAST_TOKENS
    return is_large and all(width % 8 == 0 for width in widths)


@torch.library.custom_op("litebert::matmul", mutates_args=())
def _matmul(
    left: Tensor,
    right: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    transpose_left: bool,
    transpose_right: bool,
    tuned: bool,
) -> Tensor:
    left, right, residual = (
        left.contiguous(),
        right.contiguous(),
        None if residual is None else residual.contiguous(),
    )
    widths = left.shape[1], right.shape[1], right.shape[0] if transpose_right else 0
    if tuned and suits_cublaslt(left, *widths):
        out: Tensor = _like(left, right, bias, residual, transpose_left, transpose_right, tuned)
        if cublaslt.multiply(
            out,
            left,
            right,
            bias,
            residual=residual,
            transpose_left=transpose_left,
            transpose_right=transpose_right,
        ):
            return out
    a, b = left.mT if transpose_left else left, right.mT if transpose_right else right
    out = a @ b if bias is None else torch.addmm(bias, a, b)
    return out if residual is None else out.add_(residual)


@_matmul.register_fake
def _like(
    left: Tensor,
    right: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    transpose_left: bool,
    transpose_right: bool,
    tuned: bool,
) -> Tensor:
    rows = left.shape[1 if transpose_left else 0]
    return left.new_empty(rows, right.shape[0 if transpose_right else 1])


@register_flop_formula(torch.ops.litebert.matmul)
def _flops(
    left: Any, right: Any, bias: Any, residual: Any, transpose_left: bool, transpose_right: bool,
    *_: Any, **__: Any,
) -> Any:  # fmt: skip
    """For a compiler that decides what to compute twice."""
    return 2 * left[0] * left[1] * right[0 if transpose_right else 1]
