"""Several linear maps of the same states as one product: query, key and value. States and weights
in; outputs out, side by side in one tensor or each on its own.
 One wide product keeps a GPU busier than three narrow ones. Where the gradients of the three arrive
in one tensor too, backward is as wide. Where they arrive apart, putting them side by side costs
more than it gains: there each has its own product.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from litebert.model.layout import has_short_kernels

FUSED_NORMS = True
"""Whether norms and GELU have kernels of their own for the way back (fused_norm.py):
docs/decisions/fused_norms.md has their times."""
WIDEST = 4096
"""States that are wider have more numbers a row than a program can hold."""


def takes_fused(states: Float[Tensor, "*batch size"]) -> bool:
    """Whether they are for states like these; where no gradient is wanted they have nothing to
    do."""
    fits = (
        states.dtype == torch.bfloat16 and states.shape[-1] % 16 == 0 and states.shape[-1] <= WIDEST
    )
    return (
        FUSED_NORMS and states.is_cuda and fits and torch.is_grad_enabled() and has_short_kernels()
    )


def wide_projection(
    states: Float[Tensor, "*batch inputs"], parts: Sequence[nn.Linear]
) -> Float[Tensor, "*batch outputs_of_all"]:
    """All outputs in one tensor, biases as constants: `with_biases` has their gradients."""
    mapped = fused_linear if takes_fused(states) else F.linear
    return mapped(
        states,
        torch.cat([part.weight for part in parts]),
        torch.cat([part.bias.detach() for part in parts]),
    )


def with_biases(
    wide: Float[Tensor, "*batch outputs_of_all"],
    biases: Sequence[Float[Tensor, " _"]],
    places: Sequence[int | None],
) -> Float[Tensor, "*batch outputs_of_all"]:
    """Outputs that have these biases in them already, as constants. Going back, each gets the sum
    of the gradient from its place on; where that is known to be nothing (None), zeros."""
    watched: Tensor = WithBiases.apply(wide, tuple(places), *biases)  # type: ignore[no-untyped-call]
    return watched


def fused_linear(
    states: Float[Tensor, "*batch inputs"],
    weight: Float[Tensor, "outputs inputs"],
    bias: Float[Tensor, " outputs"],
    added: Float[Tensor, "*batch outputs"] | None = None,
) -> Float[Tensor, "*batch outputs"]:
    """A linear map of states that `takes_fused` is for, plus `added`."""
    from litebert.kernels.linear import linear

    return linear(states, weight, bias, added)


class FusedProjection(torch.autograd.Function):
    """apply(states, weight, bias, weight, bias, …), an output each"""

    @staticmethod
    def forward(states: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        weights, biases = parameters[0::2], parameters[1::2]
        wide = F.linear(states, torch.cat(weights), torch.cat(biases))
        return torch.split(wide, [len(weight) for weight in weights], -1)

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
            part for gradient in apart for part in (gradient.mT @ rows, gradient.sum(0))
        )


class WithBiases(torch.autograd.Function):
    """apply(outputs, places, bias, bias, …)"""

    @staticmethod
    def forward(ctx: Any, wide: Tensor, places: tuple[int | None, ...], *biases: Tensor) -> Tensor:
        ctx.places, ctx.widths = places, [bias.shape[0] for bias in biases]
        return wide.view_as(wide)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows = gradient.flatten(0, -2)
        sums = (
            rows.new_zeros(width) if place is None else rows[:, place : place + width].sum(0)
            for place, width in zip(ctx.places, ctx.widths, strict=True)
        )
        return gradient, None, *sums
