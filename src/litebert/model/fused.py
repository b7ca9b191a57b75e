"""Several linear maps of the same states as one product: query, key and value. States and weights in, one output each out.

One wide product forward keeps a GPU busier than three narrow ones. Backward the gradients of the three arrive apart, and
putting them side by side costs more than it gains: there each has its own product.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


class FusedProjection(torch.autograd.Function):
    """apply(states, weight, bias, weight, bias, …)"""

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
        total = sum(gradient @ weight for gradient, weight in zip(apart, weights, strict=True))
        assert isinstance(total, Tensor)
        return total.view_as(states), *(part for gradient in apart for part in (gradient.mT @ rows, gradient.sum(0)))
