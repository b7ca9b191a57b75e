# mypy: ignore-errors
"""The kernels of label_loss.py: rows of logits and a label each in; losses, and the logits'
gradient, out.
 A program of the first walks along one row and reads it once, with the largest logit so far and a
sum for each of its lanes. The second has a part of one row. Rows whose label is negative count for
nothing. Arithmetic is float32.
"""

from typing import (
    no_type_check,
)  # keeps shape checks away in tests: Triton reads source, not functions

import triton
import triton.language as tl

from litebert.kernels.norm_kernels import LOG2_E


@triton.jit
@no_type_check
def _larger(a, first_a, b, first_b):
    return tl.maximum(a, b), tl.maximum(first_a, first_b)


@triton.jit
@no_type_check
def loss_kernel(
    logits, labels, losses, logs, correct, width: tl.constexpr, block: tl.constexpr, stages: tl.constexpr
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
def loss_gradient_kernel(
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
