# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call, untyped-decorator"
"""Attention over packed rows of at most 128 tokens on a GPU: all scores of a row and head at once,
in the registers of one program.

Queries, keys and values of packed rows in; attended values out. Softmax over all keys of the
query's row, without dropout (long.py has it). General kernels walk over blocks of keys and save
log-sums and the output for backward. A row of at most 128 tokens is one block: it is read once, and
backward recomputes its scores, which costs less than saving them. Sums are in float32 and in a
fixed order, so the same input gives the same bits. docs/decisions/short_attention.md has the
numbers.

`queries`, `keys` and `size` are the tile: powers of two from 16. Queries and keys beyond the end of
a row are read as zeros, add nothing to any sum, and are not written. Matmuls take operands of the
inputs' dtype and sum in float32; float32 operands go through the tensor cores in three parts
(tf32x3). `query_group` and `key_group` are the numbers of gradients side by side in a row of the
output. (The inputs' strides would serve too, but would stay in registers from a unit's loads to its
stores.) Needs Triton; with TRITON_INTERPRET=1 it runs on a CPU.
"""

from collections.abc import Sequence
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from litebert.kernels.attention.rotary import Rotary, angles, rotated
from litebert.kernels.gate import SHORT

STAGES = 5
"""Of the pipeline backward: bounds are fetched four units ahead and tiles two, which leaves a
unit's time for either. (Triton puts the loads of a loop at its end: fetched one unit ahead they
would be waited for at once.)"""
LEAST_ROTARY_TILE = 64
"""Queries and keys of a tile with rotary positions: smaller ones go through other instructions,
whose operands, the halves of rotated heads, would spill."""
BUFFERS = 3
"""Units whose tiles are then in shared memory: one at work, two on their way."""


def short_attention(
    parts: Sequence[Float[Tensor, "_ _ heads size"]],
    query_bounds: Int[Tensor, " rows_and_one"],
    key_bounds: Int[Tensor, " rows_and_one"],
    longest_query: int,
    longest_key: int,
    rotary: Rotary | None = None,
) -> Float[Tensor, "queries heads size"]:
    """`parts` are query, key and value in this order: side by side in one tensor (tokens, 3, heads,
    size), the last two in one, or each in its own. Their gradients have the same form, so what was
    one matmul forward is one backward.

    Row r has the queries from query_bounds[r] to query_bounds[r + 1], and so the keys; a row may
    lack either. The bounds (int32) begin at 0 and end with the number of tokens, and lengths
    are not checked: a longer row is undefined behavior. With `rotary`, queries and keys are rotated
    to their positions.
    """
    assert max(longest_query, longest_key) <= SHORT, "longer rows are for long_attention"
    bounds = query_bounds, key_bounds, longest_query, longest_key
    if rotary is None:
        attended = _forward(parts, *bounds)
    else:
        tables = rotary.cos, rotary.sin, rotary.query_positions
        attended, *_ = _rotary_forward(parts, *tables, *bounds, torch.is_grad_enabled())
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
    query, key, value = split_parts(parts)
    out = query.new_empty(query.shape)
    heads, size = query.shape[1:]
    with torch.cuda.device_of(query):
        forward_kernel[((len(key_bounds) - 1) * heads,)](
            query, key, value, out, query_bounds, key_bounds, None, None, None, None, None,
            *strides(query, key, value), heads, size**-0.5,
            **_blocks(query, longest_query, longest_key),
        )  # fmt: skip
    return out


@torch.library.custom_op("litebert::short_rotary_attention", mutates_args=())
def _rotary_forward(
    parts: Sequence[Tensor], cos: Tensor, sin: Tensor, query_positions: Tensor | None,
    query_bounds: Tensor, key_bounds: Tensor, longest_query: int, longest_key: int, saves: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The attended values; and, if it `saves`, the rotated queries and keys for backward."""
    query, key, value = split_parts(parts)
    out = query.new_empty(query.shape)
    heads, size = query.shape[1:]
    copies = _like_if(saves, query), _like_if(saves, key)
    with torch.cuda.device_of(query):
        forward_kernel[((len(key_bounds) - 1) * heads,)](
            query, key, value, out, query_bounds, key_bounds,
            cos, sin, query_positions, *(copies if saves else (None, None)),
            *strides(query, key, value), heads, size**-0.5,
            **_blocks(query, longest_query, longest_key, least=LEAST_ROTARY_TILE),
        )  # fmt: skip
    return out, *copies


def _like_if(saves: bool, heads: Tensor) -> Tensor:
    return heads.new_empty(heads.shape if saves else (0, *heads.shape[1:]))


@torch.library.custom_op("litebert::short_attention_backward", mutates_args=())
def _backward(
    parts: Sequence[Tensor],
    gradient: Tensor,
    query_bounds: Tensor,
    key_bounds: Tensor,
    longest_query: int,
    longest_key: int,
) -> list[Tensor]:
    query, key, value = split_parts(parts)
    bounds = query_bounds, key_bounds, longest_query, longest_key
    return _run_backward(parts, query, key, value, gradient, *bounds)


@torch.library.custom_op("litebert::short_rotary_attention_backward", mutates_args=())
def _rotary_backward(
    parts: Sequence[Tensor], query: Tensor, key: Tensor, gradient: Tensor,
    cos: Tensor, sin: Tensor, query_positions: Tensor | None,
    query_bounds: Tensor, key_bounds: Tensor, longest_query: int, longest_key: int,
) -> list[Tensor]:  # fmt: skip
    """`query` and `key` are rotated; their gradients are rotated back."""
    value, tables = split_parts(parts)[2], (cos, sin, query_positions)
    bounds = query_bounds, key_bounds, longest_query, longest_key
    return _run_backward(parts, query, key, value, gradient, *bounds, tables)


def _run_backward(
    parts: Sequence[Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    gradient: Tensor,
    query_bounds: Tensor,
    key_bounds: Tensor,
    longest_query: int,
    longest_key: int,
    tables: tuple[Tensor | None, ...] = (None, None, None),
) -> list[Tensor]:
    gradients = empty_like(parts)
    dq, dk, dv = split_parts(gradients)
    gradient = with_dense_heads(gradient)
    heads, size = query.shape[1:]
    groups = {
        "query_group": dq.stride(0) // (heads * size),
        "key_group": dk.stride(0) // (heads * size),
    }
    least = {} if tables[0] is None else {"least": LEAST_ROTARY_TILE}
    blocks = _blocks(query, longest_query, longest_key, **least)
    units = (len(key_bounds) - 1) * heads
    programs, stages = _room(query, blocks)
    with torch.cuda.device_of(query):
        backward_kernel[(min(units, programs),)](
            query, key, value, gradient, dq, dk, dv, query_bounds, key_bounds, *tables,
            *strides(query, key, value, gradient), heads, units, size**-0.5, **groups, **blocks,
            stages=stages,
        )  # fmt: skip
    return gradients


@_forward.register_fake
def _(parts: Sequence[Tensor], *_: Any) -> Tensor:
    tokens, _group, heads, size = parts[0].shape
    return parts[0].new_empty(tokens, heads, size)


@_rotary_forward.register_fake
def _(parts: Sequence[Tensor], *args: Any) -> tuple[Tensor, Tensor, Tensor]:
    query, key, _ = split_parts(parts)
    saves = args[-1]
    return query.new_empty(query.shape), _like_if(saves, query), _like_if(saves, key)


@_backward.register_fake
@_rotary_backward.register_fake
def _(parts: Sequence[Tensor], *_: Any) -> list[Tensor]:
    return empty_like(parts)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    parts, *bounds, ctx.longest_query, ctx.longest_key = inputs
    ctx.save_for_backward(*bounds, *parts)


def _gradients(ctx: Any, gradient: Tensor) -> tuple[list[Tensor] | None, ...]:
    query_bounds, key_bounds, *parts = ctx.saved_tensors
    gradients = _backward(
        parts, gradient, query_bounds, key_bounds, ctx.longest_query, ctx.longest_key
    )
    return gradients, None, None, None, None


_forward.register_autograd(_gradients, setup_context=_save)


def _save_rotary(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    parts, *tensors, ctx.longest_query, ctx.longest_key, saves = inputs
    assert saves, "gradients need what forward saves"
    ctx.save_for_backward(*output[1:], *tensors, *parts)


def _rotary_gradients(ctx: Any, gradient: Tensor, *_: Any) -> tuple[list[Tensor] | None, ...]:
    query, key, cos, sin, query_positions, *bounds_and_parts = ctx.saved_tensors
    bounds, parts = bounds_and_parts[:2], bounds_and_parts[2:]
    gradients = _rotary_backward(
        parts, query, key, gradient, cos, sin, query_positions, *bounds,
        ctx.longest_query, ctx.longest_key,
    )  # fmt: skip
    return gradients, *[None] * 8


_rotary_forward.register_autograd(_rotary_gradients, setup_context=_save_rotary)


def split_parts(parts: Sequence[Tensor]) -> list[Tensor]:
    """Query, key and value, or their gradients: views."""
    return [side for tensor in parts for side in with_dense_heads(tensor).unbind(1)]


def with_dense_heads(tensor: Tensor) -> Tensor:
    """A slice of a wider tensor is dense enough; an expanded scalar, the gradient of a sum, is
    not."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def empty_like(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.new_empty(tensor.shape) for tensor in tensors]


def strides(*tensors: Tensor) -> list[int]:
    return [stride for tensor in tensors for stride in tensor.stride()[:2]]


def _blocks(
    query: Tensor, longest_query: int, longest_key: int, *, least: int = 16
) -> dict[str, Any]:
    """128 × 128 scores in float32 and their gradient are 128 registers of each thread of 8 warps,
    of 255 that it may have."""
    queries, keys = (
        max(least, triton.next_power_of_2(longest)) for longest in (longest_query, longest_key)
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


# Kernels. no_type_check: Triton reads their source, which shape checks in tests must not wrap.

LOWEST = tl.constexpr(-(2.0**100))
"""Score of a key that is not there: finite, so that a row without keys gives zeros and not NaN; and
a power of two, so that the fused product and difference below give exactly 0 there."""
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
@no_type_check
def span(bounds, row):
    start = tl.load(bounds + row)
    return start, tl.load(bounds + row + 1) - start


@triton.jit
@no_type_check
def _tile(tensor, start, head, token_stride, head_stride, block: tl.constexpr, size: tl.constexpr):
    """Pointers to one head of `block` tokens. Computed anew for each row: a stride hoisted out of a
    loop costs registers."""
    tokens = (start + tl.arange(0, block)).to(tl.int64)
    return (
        tensor + head * head_stride + tokens[:, None] * token_stride + tl.arange(0, size)[None, :]
    )


@triton.jit
@no_type_check
def _half_tiles(
    tensor, first, is_there, head, token_stride, head_stride, block: tl.constexpr,
    half: tl.constexpr,
):  # fmt: skip
    """The two halves of one head of `block` tokens."""
    pointers = _tile(tensor, first, head, token_stride, head_stride, block, half)
    return tl.load(pointers, is_there, 0.0), tl.load(pointers + half, is_there, 0.0)


@triton.jit
@no_type_check
def _store_half_tiles(
    tensor, one, other, first, is_there, head, token_stride, head_stride, block: tl.constexpr,
    half: tl.constexpr,
):  # fmt: skip
    pointers = _tile(tensor, first, head, token_stride, head_stride, block, half)
    tl.store(pointers, one.to(tensor.dtype.element_ty), is_there)
    tl.store(pointers + half, other.to(tensor.dtype.element_ty), is_there)


@triton.jit
@no_type_check
def _rotated_half_tiles(
    tensor, cos, sin, first, is_there, head, token_stride, head_stride, copy, heads,
    block: tl.constexpr, half: tl.constexpr,
):  # fmt: skip
    """Rotated; also written to `copy` where there is one."""
    one, other = _half_tiles(tensor, first, is_there, head, token_stride, head_stride, block, half)
    one, other = rotated(one, other, cos, sin)
    one, other = one.to(tensor.dtype.element_ty), other.to(tensor.dtype.element_ty)
    if copy is not None:
        size: tl.constexpr = 2 * half
        _store_half_tiles(copy, one, other, first, is_there, head, heads * size, size, block, half)
    return one, other


@triton.jit
@no_type_check
def _softmax(scores, count, scale, keys: tl.constexpr):
    """Softmax as numerators, at most 1, and what to multiply them with."""
    scores = tl.where(tl.arange(0, keys)[None, :] < count, scores, LOWEST)
    # for exp2; scaled after the maximum is taken, so that the compiler fuses product and difference
    scale *= LOG2_E
    weights = tl.exp2(scores * scale - tl.max(scores, 1)[:, None] * scale)
    return weights, 1.0 / tl.sum(weights, 1)[:, None]


@triton.jit
@no_type_check
def forward_kernel(
    query, key, value, out, query_bounds, key_bounds,
    cos, sin, query_positions, rotated_query, rotated_key,
    query_token_stride, query_head_stride, key_token_stride, key_head_stride, value_token_stride,
    value_head_stride,
    heads, scale, queries: tl.constexpr, keys: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    """One row and head; two programs share a multiprocessor, and one computes while the other
    loads."""
    row, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    first_query, num_queries = span(query_bounds, row)
    first_key, num_keys = span(key_bounds, row)
    is_query = tl.arange(0, queries)[:, None] < num_queries
    is_key = tl.arange(0, keys)[:, None] < num_keys
    if cos is None:
        q = tl.load(
            _tile(query, first_query, head, query_token_stride, query_head_stride, queries, size),
            is_query,
            0.0,
        )
        k = tl.load(
            _tile(key, first_key, head, key_token_stride, key_head_stride, keys, size), is_key, 0.0
        )
    else:
        half: tl.constexpr = size // 2
        c, s = angles(cos, sin, query_positions, first_query, 0, num_queries, queries, half)
        q1, q2 = _rotated_half_tiles(
            query, c, s, first_query, is_query, head, query_token_stride, query_head_stride,
            rotated_query, heads, queries, half,
        )  # fmt: skip
        if query_positions is not None or queries != keys:
            c, s = angles(cos, sin, None, first_key, 0, num_keys, keys, half)
        k1, k2 = _rotated_half_tiles(
            key, c, s, first_key, is_key, head, key_token_stride, key_head_stride,
            rotated_key, heads, keys, half,
        )  # fmt: skip
    v = tl.load(
        _tile(value, first_key, head, value_token_stride, value_head_stride, keys, size),
        is_key,
        0.0,
    )
    if cos is None:
        scores = tl.dot(q, tl.trans(k), input_precision="tf32x3")
    else:
        scores = tl.dot(q1, tl.trans(k1), input_precision="tf32x3")
        scores = tl.dot(q2, tl.trans(k2), scores, input_precision="tf32x3")
    weights, norm = _softmax(scores, num_keys, scale, keys)
    o = tl.dot(weights.to(v.dtype), v, input_precision="tf32x3") * norm
    tl.store(
        _tile(out, first_query, head, heads * size, size, queries, size), o.to(v.dtype), is_query
    )


@triton.jit
@no_type_check
def backward_kernel(
    query, key, value, gradient, query_gradient, key_gradient, value_gradient, query_bounds,
    key_bounds, cos, sin, query_positions,
    query_token_stride, query_head_stride, key_token_stride, key_head_stride, value_token_stride,
    value_head_stride,
    gradient_token_stride, gradient_head_stride,
    heads, units, scale, queries: tl.constexpr, keys: tl.constexpr, size: tl.constexpr,
    query_group: tl.constexpr, key_group: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    """Weights and their gradient fill the registers of a multiprocessor, so a second program cannot
    hide the loads of the first: one program walks over units, and fetches those to come while it
    computes.

    Queries and keys that are not there are zeros, and so are their gradients' terms: no further
    masks. With tables of angles queries and keys are rotated ones.
    """
    half: tl.constexpr = size // 2
    for unit in tl.range(tl.program_id(0), units, tl.num_programs(0), num_stages=stages):
        row, head = unit // heads, unit % heads
        first_query, num_queries = span(query_bounds, row)
        first_key, num_keys = span(key_bounds, row)
        is_query = tl.arange(0, queries)[:, None] < num_queries
        is_key = tl.arange(0, keys)[:, None] < num_keys
        if cos is None:
            q = tl.load(
                _tile(
                    query, first_query, head, query_token_stride, query_head_stride, queries, size
                ),
                is_query,
                0.0,
            )
            k = tl.load(
                _tile(key, first_key, head, key_token_stride, key_head_stride, keys, size),
                is_key,
                0.0,
            )
        else:
            q1, q2 = _half_tiles(
                query, first_query, is_query, head, query_token_stride, query_head_stride, queries,
                half,
            )  # fmt: skip
            k1, k2 = _half_tiles(
                key, first_key, is_key, head, key_token_stride, key_head_stride, keys, half
            )
        v = tl.load(
            _tile(value, first_key, head, value_token_stride, value_head_stride, keys, size),
            is_key,
            0.0,
        )
        g = tl.load(
            _tile(
                gradient,
                first_query,
                head,
                gradient_token_stride,
                gradient_head_stride,
                queries,
                size,
            ),
            is_query,
            0.0,
        )
        if cos is None:
            scores = tl.dot(q, tl.trans(k), input_precision="tf32x3")
        else:
            scores = tl.dot(q1, tl.trans(k1), input_precision="tf32x3")
            scores = tl.dot(q2, tl.trans(k2), scores, input_precision="tf32x3")
        weights, norm = _softmax(scores, num_keys, scale, keys)
        weights *= norm
        dv = tl.dot(tl.trans(weights.to(g.dtype)), g, input_precision="tf32x3")
        tl.store(
            _tile(value_gradient, first_key, head, heads * size * key_group, size, keys, size),
            dv.to(v.dtype),
            is_key,
        )
        dw = tl.dot(g, tl.trans(v), input_precision="tf32x3")
        ds = (weights * (dw - tl.sum(weights * dw, 1)[:, None])).to(g.dtype)
        if cos is None:
            dk = tl.dot(tl.trans(ds), q, input_precision="tf32x3") * scale
            tl.store(
                _tile(key_gradient, first_key, head, heads * size * key_group, size, keys, size),
                dk.to(k.dtype),
                is_key,
            )
            dq = tl.dot(ds, k, input_precision="tf32x3") * scale
            tl.store(
                _tile(
                    query_gradient,
                    first_query,
                    head,
                    heads * size * query_group,
                    size,
                    queries,
                    size,
                ),
                dq.to(q.dtype),
                is_query,
            )
        else:
            dk1 = tl.dot(tl.trans(ds), q1, input_precision="tf32x3") * scale
            dk2 = tl.dot(tl.trans(ds), q2, input_precision="tf32x3") * scale
            dq1 = tl.dot(ds, k1, input_precision="tf32x3") * scale
            dq2 = tl.dot(ds, k2, input_precision="tf32x3") * scale
            if num_queries + num_keys > 0:  # a branch, where no pipeline fetches angles ahead
                c, s = angles(cos, sin, None, first_key, 0, num_keys, keys, half)
                dk1, dk2 = rotated(dk1, dk2, c, -s)
                _store_half_tiles(
                    key_gradient, dk1, dk2, first_key, is_key, head, heads * size * key_group,
                    size, keys, half,
                )  # fmt: skip
                if query_positions is not None or queries != keys:
                    c, s = angles(
                        cos, sin, query_positions, first_query, 0, num_queries, queries, half
                    )
                dq1, dq2 = rotated(dq1, dq2, c, -s)
                _store_half_tiles(
                    query_gradient, dq1, dq2, first_query, is_query, head,
                    heads * size * query_group, size, queries, half,
                )  # fmt: skip
