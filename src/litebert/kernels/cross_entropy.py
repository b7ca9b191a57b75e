# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call, untyped-decorator"
"""Cross entropy over a vocabulary on a GPU: logits are read once forward and once backward. Logits
and labels in; the sum of losses, and the number of labels with the highest logit, out.

A compiler's kernel reads a row of 30,000 logits in several passes: docs/decisions/label_loss.md has
the times. A program of the first kernel walks along one row, with the largest logit so far and a
sum for each of its lanes; one of the second has a block of one row. Rows with a negative label
count for nothing. Computed in float32. Needs Triton; with TRITON_INTERPRET=1 it runs on a CPU.
"""

from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from litebert.kernels.norm import LOG2_E

LOSS: dict[str, int] = {"block": 2048, "stages": 3, "num_warps": 4}
GRADIENT: dict[str, int] = {"block": 2048, "num_warps": 4}
"""Columns that a program has at a time: 16 numbers a thread."""


def cross_entropy(
    logits: Float[Tensor, "rows labels"], labels: Int[Tensor, " rows"]
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """In float32. A negative label is none."""
    loss, correct, _ = _CrossEntropy.apply(logits, labels)
    return loss, correct


class _CrossEntropy(torch.autograd.Function):
    """apply(logits, labels): the sum of losses, the number of correct argmaxes, and the logarithms
    of the denominators"""

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
            _loss_kernel[(rows,)](logits, labels.contiguous(), *out, width, **LOSS)
    return out


@torch.library.custom_op("litebert::label_losses_backward", mutates_args=())
def _gradient(logits: Tensor, labels: Tensor, logs: Tensor, scale: Tensor) -> Tensor:
    logits = logits.contiguous()
    rows, width = logits.shape
    out = torch.empty_like(logits)
    if rows:
        with torch.cuda.device_of(logits):
            grid = rows, triton.cdiv(width, GRADIENT["block"])
            _loss_gradient_kernel[grid](
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


# Kernels. no_type_check: Triton reads their source, which shape checks in tests must not wrap.


@triton.jit
@no_type_check
def _larger(a, first_a, b, first_b):
    return tl.maximum(a, b), tl.maximum(first_a, first_b)


@triton.jit
@no_type_check
def _loss_kernel(
    logits, labels, losses, logs, correct, width: tl.constexpr, block: tl.constexpr,
    stages: tl.constexpr
):  # fmt: skip
    """A row's loss, the binary logarithm of its softmax denominator, and 1 where its label is the
    first of the largest."""
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row)
    own = tl.load(logits + row * width + tl.maximum(label, 0)).to(tl.float32)
    top = own
    before = float("-inf")
    total = tl.zeros([block], tl.float32)
    for start in tl.range(0, width, block, num_stages=stages):
        column = start + tl.arange(0, block)
        logit = tl.load(logits + row * width + column, column < width, float("-inf")).to(tl.float32)
        largest, largest_before = tl.reduce(
            (logit, tl.where(column < label, logit, float("-inf"))), 0, _larger
        )
        new_top, before = tl.maximum(top, largest), tl.maximum(before, largest_before)
        total = total * tl.exp2((top - new_top) * LOG2_E) + tl.exp2(
            logit * LOG2_E - new_top * LOG2_E
        )
        top = new_top
    log = top * LOG2_E + tl.log2(tl.sum(total, 0))
    is_there = label >= 0
    tl.store(losses + row, tl.where(is_there, log / LOG2_E - own, 0.0))
    tl.store(logs + row, log)
    tl.store(correct + row, tl.where(is_there & (own >= top) & (own > before), 1.0, 0.0))


@triton.jit
@no_type_check
def _loss_gradient_kernel(
    logits, labels, logs, scale, out, width: tl.constexpr, block: tl.constexpr
):
    """Softmax, less 1 at the label, times `scale`."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    label = tl.load(labels + row)
    logit = tl.load(logits + row * width + column, column < width, 0.0).to(tl.float32)
    chance = tl.exp2(logit * LOG2_E - tl.load(logs + row))
    gradient = tl.where(column == label, chance - 1.0, chance) * tl.load(scale)
    gradient = tl.where(label >= 0, gradient, 0.0)
    tl.store(out + row * width + column, gradient.to(out.dtype.element_ty), column < width)
