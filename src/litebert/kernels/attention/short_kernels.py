# mypy: ignore-errors
"""The kernels of short_attention.py: one row and one head in (a unit), its attended values or its
three gradients out.
 `queries`, `keys` and `size` are the tile: powers of two, of 16 and more. Queries and keys beyond
the ends of a row are read as zeros, give nothing to any sum, and are not written. Products take
operands of the inputs' type and add up in float32; float32 operands go through the tensor cores in
three parts (tf32x3), which loses nothing that float32 would keep. `query_maps` and `key_maps` say
how many gradients lie side by side where a gradient is written. (They lie as the inputs do, whose
strides would serve too; but then the offsets of a unit's loads are kept in registers until its
stores.)
"""

from typing import (
    no_type_check,
)  # keeps shape checks away in tests: Triton reads source, not functions

import triton
import triton.language as tl

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
def _softmax(query, key, count, scale, keys: tl.constexpr):
    """Softmax as numerators, at most 1, and what to multiply them with."""
    scores = tl.dot(query, tl.trans(key), input_precision="tf32x3")
    scores = tl.where(tl.arange(0, keys)[None, :] < count, scores, LOWEST)
    # for exp2; scaled after the maximum is taken, so that the compiler fuses product and difference
    scale *= LOG2_E
    weights = tl.exp2(scores * scale - tl.max(scores, 1)[:, None] * scale)
    return weights, 1.0 / tl.sum(weights, 1)[:, None]


@triton.jit
@no_type_check
def forward_kernel(
    query, key, value, out, query_bounds, key_bounds,
    query_token_stride, query_head_stride, key_token_stride, key_head_stride, value_token_stride, value_head_stride,
    heads, scale, queries: tl.constexpr, keys: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    """One row and head; two programs share a multiprocessor, and one computes while the other
    loads."""
    row, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    first_query, num_queries = span(query_bounds, row)
    first_key, num_keys = span(key_bounds, row)
    is_query = tl.arange(0, queries)[:, None] < num_queries
    is_key = tl.arange(0, keys)[:, None] < num_keys
    q = tl.load(
        _tile(query, first_query, head, query_token_stride, query_head_stride, queries, size),
        is_query,
        0.0,
    )
    k = tl.load(
        _tile(key, first_key, head, key_token_stride, key_head_stride, keys, size), is_key, 0.0
    )
    v = tl.load(
        _tile(value, first_key, head, value_token_stride, value_head_stride, keys, size),
        is_key,
        0.0,
    )
    weights, norm = _softmax(q, k, num_keys, scale, keys)
    o = tl.dot(weights.to(v.dtype), v, input_precision="tf32x3") * norm
    tl.store(
        _tile(out, first_query, head, heads * size, size, queries, size), o.to(v.dtype), is_query
    )


@triton.jit
@no_type_check
def backward_kernel(
    query, key, value, gradient, query_gradient, key_gradient, value_gradient, query_bounds, key_bounds,
    query_token_stride, query_head_stride, key_token_stride, key_head_stride, value_token_stride, value_head_stride,
    gradient_token_stride, gradient_head_stride,
    heads, units, scale, queries: tl.constexpr, keys: tl.constexpr, size: tl.constexpr,
    query_maps: tl.constexpr, key_maps: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    """Weights and their gradient fill the registers of a multiprocessor, so a second program cannot
    hide the loads of the first: one program walks over units, and fetches those to come while it
    computes.

    Queries and keys that are not there are zeros, and so are their gradients' terms: no further
    masks.
    """
    for unit in tl.range(tl.program_id(0), units, tl.num_programs(0), num_stages=stages):
        row, head = unit // heads, unit % heads
        first_query, num_queries = span(query_bounds, row)
        first_key, num_keys = span(key_bounds, row)
        is_query = tl.arange(0, queries)[:, None] < num_queries
        is_key = tl.arange(0, keys)[:, None] < num_keys
        q = tl.load(
            _tile(query, first_query, head, query_token_stride, query_head_stride, queries, size),
            is_query,
            0.0,
        )
        k = tl.load(
            _tile(key, first_key, head, key_token_stride, key_head_stride, keys, size), is_key, 0.0
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
        weights, norm = _softmax(q, k, num_keys, scale, keys)
        weights *= norm
        dv = tl.dot(tl.trans(weights.to(g.dtype)), g, input_precision="tf32x3")
        tl.store(
            _tile(value_gradient, first_key, head, heads * size * key_maps, size, keys, size),
            dv.to(v.dtype),
            is_key,
        )
        dw = tl.dot(g, tl.trans(v), input_precision="tf32x3")
        ds = (weights * (dw - tl.sum(weights * dw, 1)[:, None])).to(q.dtype)
        dk = tl.dot(tl.trans(ds), q, input_precision="tf32x3") * scale
        tl.store(
            _tile(key_gradient, first_key, head, heads * size * key_maps, size, keys, size),
            dk.to(k.dtype),
            is_key,
        )
        dq = tl.dot(ds, k, input_precision="tf32x3") * scale
        tl.store(
            _tile(
                query_gradient, first_query, head, heads * size * query_maps, size, queries, size
            ),
            dq.to(q.dtype),
            is_query,
        )
