# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call"
"""Attention over short packed rows on a GPU: all scores of a row and head at once, in the registers
of one program.
 Queries, keys and values of rows that lie end to end in; attended values out. Softmax over all keys
of the query's row; none of its weights is dropped (long_attention.py's does that). General kernels
walk over blocks of keys and keep notes (log-sums, the output) for the way back. A row of at most
128 tokens is one block: it is read once, and going back its scores are computed anew, which costs
less than notes would. Sums are in float32 and in a fixed order, so the same input gives the same
bits. docs/decisions/short_attention.md has the predicted and the measured time.
 Needs Triton, which comes with torch's CUDA builds: import it where it is used. With
TRITON_INTERPRET=1 it runs on a CPU.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor

from litebert.kernels.attention.short_kernels import backward_kernel, forward_kernel

LONGEST = 128
"""Rows of more tokens have more scores than a program has registers."""
STAGES = 5
"""Of the pipeline backward: bounds are fetched four units ahead and tiles two, which leaves a
unit's time for either. (Triton puts the loads of a loop at its end: fetched one unit ahead they
would be waited for at once.)"""
BUFFERS = 3
"""Units whose tiles are then in shared memory: one at work, two on their way."""


def short_attention(
    parts: Sequence[Float[Tensor, "_ _ heads size"]],
    query_bounds: Int[Tensor, " rows_and_one"],
    key_bounds: Int[Tensor, " rows_and_one"],
    longest_query: int,
    longest_key: int,
) -> Float[Tensor, "queries heads size"]:
    """`parts` are query, key and value in this order, side by side (tokens, number of maps, heads,
    size) in one tensor, the last two of them in one, or each in its own. Gradients come in as many,
    so what was one product forward is one backward.

    Row r has the queries from query_bounds[r] to query_bounds[r + 1], and so the keys; a row may
    lack either. The bounds (int32) begin at 0 and end with the number of tokens, and no row is
    longer than is said: nobody looks.
    """
    assert max(longest_query, longest_key) <= LONGEST, "longer rows are for long_attention"
    attended = _forward(parts, query_bounds, key_bounds, longest_query, longest_key)
    assert isinstance(attended, Tensor)
    return attended


@torch.library.custom_op("litebert::short_attention", mutates_args=())
def _forward(
    parts: Sequence[Tensor],
    query_bounds: Tensor,
    key_bounds: Tensor,
    longest_query: int,
    longest_key: int,
) -> Tensor:
    query, key, value = apart(parts)
    out = query.new_empty(query.shape)
    heads, size = query.shape[1:]
    with torch.cuda.device_of(query):
        forward_kernel[((len(key_bounds) - 1) * heads,)](
            query, key, value, out, query_bounds, key_bounds,
            *strides(query, key, value), heads, size**-0.5, **_blocks(query, longest_query, longest_key),
        )  # fmt: skip
    return out


@torch.library.custom_op("litebert::short_attention_backward", mutates_args=())
def _backward(
    parts: Sequence[Tensor],
    gradient: Tensor,
    query_bounds: Tensor,
    key_bounds: Tensor,
    longest_query: int,
    longest_key: int,
) -> list[Tensor]:
    gradients = empty_like(parts)
    query, key, value = apart(parts)
    dq, dk, dv = apart(gradients)
    gradient = with_whole_heads(gradient)
    heads, size = query.shape[1:]
    maps = {
        "query_maps": dq.stride(0) // (heads * size),
        "key_maps": dk.stride(0) // (heads * size),
    }
    units, blocks = (len(key_bounds) - 1) * heads, _blocks(query, longest_query, longest_key)
    programs, stages = _room(query, blocks)
    with torch.cuda.device_of(query):
        backward_kernel[(min(units, programs),)](
            query, key, value, gradient, dq, dk, dv, query_bounds, key_bounds,
            *strides(query, key, value, gradient), heads, units, size**-0.5, **maps, **blocks, stages=stages,
        )  # fmt: skip
    return gradients


@_forward.register_fake
def _(parts: Sequence[Tensor], *_: Any) -> Tensor:
    tokens, _maps, heads, size = parts[0].shape
    return parts[0].new_empty(tokens, heads, size)


@_backward.register_fake
def _(parts: Sequence[Tensor], *_: Any) -> list[Tensor]:
    return empty_like(parts)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    parts, *bounds, ctx.longest_query, ctx.longest_key = inputs
    ctx.save_for_backward(*bounds, *parts)


def _gradients(ctx: Any, gradient: Tensor) -> tuple[list[Tensor] | None, ...]:
    query_bounds, key_bounds, *parts = ctx.saved_tensors
    found = _backward(parts, gradient, query_bounds, key_bounds, ctx.longest_query, ctx.longest_key)
    return found, None, None, None, None


_forward.register_autograd(_gradients, setup_context=_save)


def apart(parts: Sequence[Tensor]) -> list[Tensor]:
    """Query, key and value, or their gradients: views."""
    return [side for part in parts for side in with_whole_heads(part).unbind(1)]


def with_whole_heads(tensor: Tensor) -> Tensor:
    """A slice of a wider product will do; the gradient of a sum, which is one number seen from
    everywhere, will not."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def empty_like(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.new_empty(tensor.shape) for tensor in tensors]


def strides(*tensors: Tensor) -> list[int]:
    return [stride for tensor in tensors for stride in tensor.stride()[:2]]


def _blocks(query: Tensor, longest_query: int, longest_key: int) -> dict[str, Any]:
    """128 × 128 scores in float32 and their gradient are 128 registers of each thread of 8 warps,
    of 255 that it may have."""
    queries, keys = (
        max(16, triton.next_power_of_2(longest)) for longest in (longest_query, longest_key)
    )
    warps = 8 if queries * keys > 64 * 64 else 4
    return {
        "queries": queries,
        "keys": keys,
        "size": query.shape[2],
        "num_warps": warps,
        "enable_fp_fusion": True,
    }


def _room(query: Tensor, blocks: dict[str, Any]) -> tuple[int, int]:
    """Programs that walk over the units backward, and stages of their pipeline: one where shared
    memory is too small."""
    if not query.is_cuda:
        return 2, STAGES
    device = triton.runtime.driver.active.utils.get_device_properties(query.device.index)
    tiles = 2 * (blocks["queries"] + blocks["keys"]) * blocks["size"] * query.element_size()
    weights = blocks["queries"] * blocks["keys"] * query.element_size()
    stages = STAGES if BUFFERS * tiles + weights + 1024 <= device["max_shared_mem"] else 1
    return device["multiprocessor_count"] * (1 if blocks["num_warps"] == 8 else 4), stages
