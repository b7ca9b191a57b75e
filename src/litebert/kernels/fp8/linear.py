"""Linear layers multiplied in 8-bit floats (`--dtype fp8`): states in; outputs side by side out,
and gradients.

States and weights are rounded to e4m3 (3 bits of mantissa), gradients to e5m2 (2 bits, more range),
each tensor divided by a float32 scale of its own that takes its largest number to the format's.
Sums are wide; outputs have the states' dtype. Weights are rounded once a step, by `refresh`, and
all applications of a shared layer use them (ALBERT §3.1). The hardware reads both factors along the
axis that is summed over, so each is stored as is and transposed. docs/decisions/fp8.md says why.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from litebert.model.layers import Attention, FeedForward

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2
MULTIPLE = 16
"""Sizes that are not a multiple of this cannot be multiplied."""
FAST_BACKWARD = False
"""Whether a GPU may add up gradients with fewer bits than float32 has, as it does forward."""
TOGETHER: dict[type[nn.Module], tuple[tuple[str, ...], ...]] = {
    Attention: (("query", "key", "value"), ("query",), ("key", "value"), ("output",)),
    FeedForward: (("inner",), ("outer",)),
}
"""Names of the linear layers that are applied to the same states."""
SMALLEST = 1e-12
"""Largest number of a tensor that still counts as more than nothing: zeros divided by their scale
are zeros."""


def quantize_layer(
    owner: Attention | FeedForward, *, kernels: bool = False
) -> list["QuantizedLinear"]:
    """From now on the fast layer multiplies this module's linear layers in 8-bit floats. Returned
    are the rounded weights, to be refreshed when the weights have changed."""
    quantized = {
        " ".join(names): QuantizedLinear(*(getattr(owner, name) for name in names), kernels=kernels)
        for names in TOGETHER[type(owner)]
    }
    owner.add_module("quantized", nn.ModuleDict(quantized))
    return list(quantized.values())


class QuantizedLinear(nn.Module):
    """Linear layers of the same states as one matmul. Their parameters stay theirs: this holds the
    rounded weights alone."""

    values: Tensor
    """(outputs, inputs), of all layers, stacked."""
    transposed: Tensor
    """The same, transposed."""
    scale: Tensor

    def __init__(self, *parts: nn.Linear, kernels: bool = False) -> None:
        """`kernels`: whether Triton's round (rounding.py); else torch."""
        super().__init__()
        self.kernels = kernels
        # a tuple: modules in it are not this one's, and have no second name in a checkpoint
        self.parts = parts
        self.register_buffer("values", self._wide().to(FORWARD), persistent=False)
        self.register_buffer(
            "transposed", self._wide().t().contiguous().to(FORWARD), persistent=False
        )
        self.register_buffer(
            "scale", torch.ones((), device=parts[0].weight.device), persistent=False
        )
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Round the weights anew, into the same memory: a recorded graph reads it."""
        values, scale = quantize(self._wide(), FORWARD)
        self.values.copy_(values)
        self.transposed.copy_(values.t())
        self.scale.copy_(scale)

    def forward(
        self, states: Float[Tensor, "*batch inputs"], *, is_constant: bool = False
    ) -> Float[Tensor, "*batch outputs_of_all"]:
        """The outputs of all layers side by side; `is_constant`: biases get no gradient here."""
        biases = [linear.bias.detach() if is_constant else linear.bias for linear in self.parts]
        parameters = [
            parameter
            for linear, bias in zip(self.parts, biases, strict=True)
            for parameter in (linear.weight, bias)
        ]
        wide, *_ = _ScaledMatmul.apply(  # type: ignore[no-untyped-call]
            states, self.values, self.transposed, self.scale, self.kernels, *parameters
        )
        mapped: Tensor = wide
        return mapped

    def _wide(self) -> Tensor:
        return torch.cat([linear.weight.detach() for linear in self.parts])


class _ScaledMatmul(torch.autograd.Function):
    """apply(states, values, transposed, scale, kernels, weight, bias, weight, bias, …); weights
    only receive their gradients."""

    @staticmethod
    def forward(
        states: Tensor,
        values: Tensor,
        transposed: Tensor,
        scale: Tensor,
        kernels: bool,
        *parameters: Tensor,
    ) -> tuple[Tensor, ...]:
        """The rounded states, transposed, and their scale come last: backward needs them, at half
        of the memory."""
        rows = states.flatten(0, -2)
        rounded, saved, states_scale, _ = round_both(rows, FORWARD, kernels=kernels)
        wide = multiply(
            rounded,
            values,
            states_scale,
            scale,
            torch.cat(parameters[1::2]),
            dtype=states.dtype,
            fast=True,
        )
        return wide[: rows.shape[0]].view(*states.shape[:-1], len(values)), saved, states_scale

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        states, _, transposed, scale, ctx.kernels, *parameters = inputs
        ctx.mark_non_differentiable(*output[-2:])
        ctx.set_materialize_grads(False)
        ctx.shape, ctx.widths = states.shape, [len(bias) for bias in parameters[1::2]]
        ctx.save_for_backward(transposed, scale, *output[-2:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: object) -> tuple[Tensor | None, ...]:
        transposed, scale, states, states_scale = ctx.saved_tensors
        rows, dtype = gradient.flatten(0, -2), gradient.dtype
        wants_biases = ctx.needs_input_grad[6]
        rounded, left, gradient_scale, sums = round_both(
            rows, BACKWARD, adds=wants_biases, kernels=ctx.kernels
        )
        of_states = multiply(
            rounded, transposed, gradient_scale, scale, dtype=dtype, fast=FAST_BACKWARD
        )
        of_weights = multiply(
            left, states, gradient_scale, states_scale, dtype=dtype, fast=FAST_BACKWARD
        )
        of_biases = torch.split(sums, ctx.widths) if wants_biases else [None] * len(ctx.widths)
        apart = zip(torch.split(of_weights, ctx.widths), of_biases, strict=True)
        return (
            of_states[: rows.shape[0]].view(ctx.shape),
            None,
            None,
            None,
            None,
            *(each for pair in apart for each in pair),
        )


def round_both(
    rows: Float[Tensor, "rows width"],
    dtype: torch.dtype,
    *,
    adds: bool = False,
    kernels: bool = False,
) -> tuple[Tensor, ...]:
    """Numbers rounded to `dtype`, as they are and transposed, padded to a number of rows that can
    be summed over; their scale; and the sum of the rows, if wanted."""
    if kernels:
        from litebert.kernels.fp8 import rounding

        return rounding.round_both(rows, dtype == BACKWARD, MULTIPLE, SMALLEST, adds)  # type: ignore[no-any-return]
    rounded, scale = quantize(filled(rows), dtype)
    return rounded, rounded.t().contiguous(), scale, rows.sum(0) if adds else rows.new_empty(0)


def quantize(numbers: Tensor, dtype: torch.dtype) -> tuple[Tensor, Float[Tensor, ""]]:
    """Numbers rounded to `dtype`, and the scale to multiply them with; what is not finite becomes
    nan, and is seen."""
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
        rows,
        columns.t(),
        scale_a=rows_scale,
        scale_b=columns_scale,
        bias=bias,
        out_dtype=dtype,
        use_fast_accum=fast,
    )


def filled(rows: Float[Tensor, "rows width"]) -> Float[Tensor, "filled width"]:
    """Rows of zeros added up to a number that can be summed over."""
    missing = -rows.shape[0] % MULTIPLE
    return F.pad(rows, (0, 0, 0, missing)) if missing else rows
