# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call"
"""The way back through layer norm and GELU on a GPU, each in one pass with the sums that biases
need.
 States in; states out, as without it. Going back, the gradient of a bias is the sum of a gradient
over all tokens, and some kernel has just read or written that gradient: these add it up while they
have it in their registers. So each takes over the bias of a linear map next to it, which is then
applied as a constant. docs/decisions/fused_norms.md counts what that saves.
 Needs Triton, which comes with torch's CUDA builds: import it where it is used. With
TRITON_INTERPRET=1 it runs on a CPU.
"""

from typing import Any

import torch
import triton
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from litebert.kernels.norm_kernels import (
    gelu_gradient_kernel,
    gelu_kernel,
    norm_gradient_kernel,
    total_kernel,
)

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
"""That a program of `total_kernel` reads at once: most of the rows of sums."""
BLOCK = 2048
"""Numbers that a program of `gelu_kernel` has."""


def forked_norm(
    states: Float[Tensor, "*batch size"],
    norm: nn.LayerNorm,
    last: nn.Linear,
    before: Float[Tensor, " inputs"] | None = None,
) -> tuple[Float[Tensor, "*batch size"], Float[Tensor, "*batch size"]]:
    """The states, and the states normed. To the first is added what `last` gives, with its bias as
    a constant: their gradient's sum is the bias's. `before` is a bias that the inputs of `last`
    have in them, whole, at each token: it gets its gradient too."""
    weight = None if before is None else last.weight.detach()
    around, normed, *_ = ForkedNorm.apply(
        states, norm.weight, norm.bias, last.bias, norm.eps, before, weight
    )
    return around, normed


class ForkedNorm(torch.autograd.Function):
    """apply(states, weight, bias, bias of what is added, epsilon, bias before that map or None,
    that map's weight or None): states, normed states, their means and scales"""

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
        ctx: Any, around: Tensor, gradient: Tensor, *_: object
    ) -> tuple[Tensor | None, ...]:
        *saved, last = ctx.saved_tensors
        of_states, of_parameters = _norm_backward(gradient, around, *saved)
        # a sum of products, in float32: a compiler needs no copy of the weight for it
        of_before = (
            None if last is None else (of_parameters[2][:, None] * last).sum(0).to(last.dtype)
        )
        return of_states, *of_parameters.to(of_states.dtype).unbind(), None, of_before, None


@torch.library.custom_op("litebert::norm_backward", mutates_args=())
def _norm_backward(
    gradient: Tensor, around: Tensor, states: Tensor, means: Tensor, scales: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    out, totals = _like_norm(gradient, around, states)
    width, columns = states.shape[-1], triton.next_power_of_2(states.shape[-1])
    inputs = [part.contiguous() for part in (gradient, states, around, means, scales, weight)]
    programs = max(1, NORM["programs"] * 4 // max(4, warps(columns)))
    sums = states.new_empty(programs, 3 * width, dtype=torch.float32)
    with torch.cuda.device_of(states):
        norm_gradient_kernel[(programs,)](
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
        gelu_kernel[(triton.cdiv(states.numel(), BLOCK),)](
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
        gelu_gradient_kernel[(programs, blocks)](
            gradient.contiguous(), states.contiguous(), out, activated, sums, rows, width, is_tanh,
            GELU["rows"], columns, GELU["stages"], num_warps=warps(columns),
        )  # fmt: skip
        add_up(sums, totals)
    return out, activated, totals


@_norm_backward.register_fake
def _like_norm(
    gradient: Tensor, around: Tensor, states: Tensor, *_: Tensor
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
    total_kernel[(triton.cdiv(width, TOTAL["columns"]),)](
        sums, totals, count, width, **TOTAL, num_warps=8
    )


def warps(columns: int) -> int:
    return max(1, columns // LANES)
