"""Linear maps multiplied in 8-bit floats, where asked for: states in; one output for each map out, and gradients.

States and weights are rounded to e4m3 (3 bits of mantissa), gradients to e5m2 (2 bits, more range), each tensor divided by a
scale of its own, in float32, that takes its largest number to the format's. Sums are wide; outputs are as the states are.
Weights are rounded once a step, by `refresh`, and all applications of a shared layer use them (ALBERT §3.1). The hardware
reads both factors along the axis that is summed over, so each is kept or made in two orders. docs/decisions/fp8.md says why.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2
MULTIPLE = 16
"""Sizes that are not a multiple of this cannot be multiplied."""
FAST_BACKWARD = False
"""Whether a GPU may add up gradients with fewer bits than float32 has, as it does forward."""
SMALLEST = 1e-12
"""Largest number of a tensor that still counts as more than nothing: zeros divided by their scale are zeros."""


class Quantized(nn.Module):
    """Linear maps of the same states as one product. Their parameters stay theirs: this holds the rounded weights alone."""

    values: Tensor
    """(outputs, inputs), of all maps one under another."""
    turned: Tensor
    """The same, transposed."""
    scale: Tensor

    def __init__(self, *parts: nn.Linear) -> None:
        super().__init__()
        self.parts = parts  # a tuple: modules in it are not this one's, and have no second name in a checkpoint
        self.register_buffer("values", self._wide().to(FORWARD), persistent=False)
        self.register_buffer("turned", self._wide().t().contiguous().to(FORWARD), persistent=False)
        self.register_buffer("scale", torch.ones((), device=parts[0].weight.device), persistent=False)
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Round the weights anew, into the same memory: a recorded graph reads it."""
        values, scale = quantize(self._wide(), FORWARD)
        self.values.copy_(values)
        self.turned.copy_(values.t())
        self.scale.copy_(scale)

    def forward(self, states: Float[Tensor, "*batch inputs"]) -> tuple[Float[Tensor, "*batch outputs"], ...]:
        parameters = [parameter for part in self.parts for parameter in (part.weight, part.bias)]
        outputs = ScaledProduct.apply(states, self.values, self.turned, self.scale, *parameters)  # type: ignore[no-untyped-call]
        return tuple(outputs[: len(self.parts)])

    def _wide(self) -> Tensor:
        return torch.cat([part.weight.detach() for part in self.parts])


class ScaledProduct(torch.autograd.Function):
    """apply(states, values, turned, scale, weight, bias, weight, bias, …); weights only receive their gradients."""

    @staticmethod
    def forward(states: Tensor, values: Tensor, turned: Tensor, scale: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        """The rounded states and their scale come last: backward needs them, at half of the memory."""
        rounded, states_scale = quantize(filled(states.flatten(0, -2)), FORWARD)
        wide = multiply(rounded, values, states_scale, scale, torch.cat(parameters[1::2]), dtype=states.dtype, fast=True)
        wide = wide[: states.shape[:-1].numel()].view(*states.shape[:-1], len(values))
        outputs = torch.split(wide, [len(bias) for bias in parameters[1::2]], -1)
        return *outputs, rounded, states_scale

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        states, _, turned, scale, *parameters = inputs
        ctx.mark_non_differentiable(*output[-2:])
        ctx.set_materialize_grads(False)
        ctx.shape, ctx.widths = states.shape, [len(bias) for bias in parameters[1::2]]
        ctx.save_for_backward(turned, scale, *output[-2:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        turned, scale, states, states_scale = ctx.saved_tensors
        apart: list[Tensor] = [gradient.flatten(0, -2) for gradient in gradients[:-2]]  # the rounded states have none
        dtype = apart[0].dtype
        rounded, gradient_scale = quantize(filled(torch.cat(apart, -1)), BACKWARD)
        of_states = multiply(rounded, turned, gradient_scale, scale, dtype=dtype, fast=FAST_BACKWARD)
        left, right = rounded.t().contiguous(), states.t().contiguous()
        of_weights = multiply(left, right, gradient_scale, states_scale, dtype=dtype, fast=FAST_BACKWARD)
        each = [
            part
            for weight, own in zip(torch.split(of_weights, ctx.widths), apart, strict=True)
            for part in (weight, own.sum(0))
        ]
        return of_states[: ctx.shape[:-1].numel()].view(ctx.shape), None, None, None, *each


def quantize(numbers: Tensor, dtype: torch.dtype) -> tuple[Tensor, Float[Tensor, ""]]:
    """Numbers rounded to `dtype`, and the scale to multiply them with; what is not finite becomes nan, and is seen."""
    largest = torch.finfo(dtype).max
    scale = numbers.abs().amax().float().clamp(min=SMALLEST) / largest
    return (numbers.float() / scale).clamp(-largest, largest).to(dtype), scale


def multiply(
    rows: Float[Tensor, "rows summed"],
    columns: Float[Tensor, "columns summed"],
    rows_scale: Float[Tensor, ""],
    columns_scale: Float[Tensor, ""],
    bias: Float[Tensor, " columns"] | None = None,
    *,
    dtype: torch.dtype,
    fast: bool,
) -> Float[Tensor, "rows columns"]:
    """rows @ columns.T + bias, of two rounded tensors."""
    return torch._scaled_mm(
        rows, columns.t(), scale_a=rows_scale, scale_b=columns_scale, bias=bias, out_dtype=dtype, use_fast_accum=fast
    )


def filled(rows: Float[Tensor, "rows width"]) -> Float[Tensor, "filled width"]:
    """Rows of zeros added up to a number that can be summed over."""
    missing = -rows.shape[0] % MULTIPLE
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows
