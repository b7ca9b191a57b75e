# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call"
"""Cross entropy over a vocabulary on a GPU: the logits are read once, and once more on the way
back. Logits and labels in; the sum of losses, and the number of labels guessed right, out.
 A compiler's kernel reads a row of 30,000 logits in several passes: docs/decisions/cross_entropy.md
has the times. Needs Triton: import it where it is used. With TRITON_INTERPRET=1 it runs on a CPU.
"""

from typing import Any

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from litebert.kernels.cross_entropy_kernels import loss_gradient_kernel, loss_kernel

LOSS: dict[str, int] = {"block": 2048, "stages": 3, "num_warps": 4}
GRADIENT: dict[str, int] = {"block": 2048, "num_warps": 4}
"""Columns that a program has at a time: 16 numbers a thread."""


def cross_entropy(
    logits: Float[Tensor, "rows labels"], labels: Int[Tensor, " rows"]
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """In float32. A negative label is none."""
    loss, correct, _ = LabelLoss.apply(logits, labels)
    return loss, correct


class LabelLoss(torch.autograd.Function):
    """apply(logits, labels): the sum of losses, how many are right, and the logarithms of the
    denominators"""

    @staticmethod
    def forward(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        losses, logs, correct = _losses(logits, labels)
        return losses.sum(), correct.sum(), logs

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs, output[2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: object) -> tuple[Tensor, None]:
        return _gradient(*ctx.saved_tensors, gradient), None


@torch.library.custom_op("litebert::label_losses", mutates_args=())
def _losses(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    logits = logits.contiguous()
    rows, width = logits.shape
    out: tuple[Tensor, Tensor, Tensor] = _like_losses(logits, labels)
    if rows:
        with torch.cuda.device_of(logits):
            loss_kernel[(rows,)](logits, labels.contiguous(), *out, width, **LOSS)
    return out


@torch.library.custom_op("litebert::label_losses_backward", mutates_args=())
def _gradient(logits: Tensor, labels: Tensor, logs: Tensor, scale: Tensor) -> Tensor:
    logits = logits.contiguous()
    rows, width = logits.shape
    out = torch.empty_like(logits)
    if rows:
        with torch.cuda.device_of(logits):
            grid = rows, triton.cdiv(width, GRADIENT["block"])
            loss_gradient_kernel[grid](
                logits, labels.contiguous(), logs, scale, out, width, **GRADIENT
            )
    return out


@_losses.register_fake
def _like_losses(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows = logits.shape[0]
    return tuple(logits.new_empty(rows, dtype=torch.float32) for _ in range(3))  # type: ignore[return-value]


@_gradient.register_fake
def _(logits: Tensor, *_: Tensor) -> Tensor:
    return logits.new_empty(logits.shape)
