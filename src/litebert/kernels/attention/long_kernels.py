# mypy: ignore-errors
"""The kernels of long.py: a block of queries or of keys of one row and head in, with a loop over
the keys or queries that they meet.

`queries`, `keys` and `size` are the tile: powers of two from 16. What is beyond the end of a row is
masked or zero, and not written. Matmuls take operands of the inputs' dtype and sum in float32.
Scores have queries as rows where the sum over keys is wanted (forward, gradient of queries), and
keys as rows where the sum over queries is: so they enter the next matmul from registers. A loop
reads a tensor or a descriptor of it.

`logs` has the binary logarithm of each query's softmax denominator, and `dots` each query's dot
product of output and gradient, in float32, `room` of them for each head; `_note_of` says where a
row's begin.
"""

from typing import (
    no_type_check,
)  # keeps shape checks away in tests: Triton reads source, not functions

import triton
import triton.language as tl

from litebert.kernels.attention.rotary import angles, rotated
from litebert.kernels.attention.short import LOG2_E, LOWEST, span
from litebert.kernels.gate import LONG

POSITIONS = tl.constexpr(LONG)
"""No row has more tokens."""


@triton.jit
@no_type_check
def _pointers(
    tensor, start, head, token_stride, head_stride, block: tl.constexpr, size: tl.constexpr
):
    """Pointers to one head of `block` tokens: one far offset for all, and near ones that stay the
    same in a loop."""
    near = tl.arange(0, block)[:, None] * token_stride + tl.arange(0, size)[None, :]
    return tensor + (start.to(tl.int64) * token_stride + head * head_stride) + near


@triton.jit
@no_type_check
def _read(
    tensor,
    first,
    start,
    count,
    head,
    token_stride,
    head_stride,
    block: tl.constexpr,
    size: tl.constexpr,
):
    """The tokens of a row from `start` on."""
    if isinstance(tensor, tl.tensor_descriptor):
        tile = tensor.load([first + start, head * size])
    else:
        is_there = start + tl.arange(0, block)[:, None] < count
        tile = tl.load(
            _pointers(tensor, first + start, head, token_stride, head_stride, block, size),
            is_there,
            0.0,
        )
    return tile


@triton.jit
@no_type_check
def _write(
    tensor,
    tile,
    first,
    start,
    count,
    head,
    token_stride,
    head_stride,
    block: tl.constexpr,
    size: tl.constexpr,
):
    is_there = start + tl.arange(0, block)[:, None] < count
    pointers = _pointers(tensor, first + start, head, token_stride, head_stride, block, size)
    tl.store(pointers, tile.to(tensor.dtype.element_ty), is_there)


@triton.jit
@no_type_check
def _turned_back(
    tile, cos, sin, query_positions, first, start, count, block: tl.constexpr, size: tl.constexpr
):
    """The gradient of heads, from that of the rotated heads."""
    half: tl.constexpr = size // 2
    one, other = tl.split(tl.permute(tl.reshape(tile, [block, 2, half]), [0, 2, 1]))
    c, s = angles(cos, sin, query_positions, first, start, count, block, half)
    one, other = rotated(one, other, c, -s)
    return tl.reshape(tl.permute(tl.join(one, other), [0, 2, 1]), [block, size])


@triton.jit
@no_type_check
def _note_of(first_query, row):
    """Where a descriptor may read: at multiples of 16 bytes. The gap to the next row is of one to
    seven."""
    return (first_query // 4 + row) * 4


@triton.jit
@no_type_check
def _keep_mask(seed, dropout, unit, queries, keys):
    """Which weights are not dropped, by the positions of their query and key in a row and head (a
    unit): the same forward and backward, whatever the tiles."""
    return tl.rand(tl.load(seed) + unit, queries * POSITIONS + keys) >= dropout


@triton.jit
@no_type_check
def _masked(scores, start, count, keys: tl.constexpr):
    """Only the last block of a row has keys that are not there: the others are spared a fifth of
    their instructions."""
    if start + keys > count:
        scores = tl.where(start + tl.arange(0, keys)[None, :] < count, scores, LOWEST)
    return scores


@triton.jit(do_not_specialize=["room"])
@no_type_check
def forward_kernel(
    query, key, value, out, logs, query_bounds, key_bounds, seed, dropout,
    query_token_stride, query_head_stride, key_token_stride, key_head_stride, value_token_stride,
    value_head_stride,
    heads, room, blocks, scale, queries: tl.constexpr, keys: tl.constexpr, size: tl.constexpr,
    stages: tl.constexpr,
):  # fmt: skip
    """Softmax whose maximum so far is corrected block by block."""
    start, unit = tl.program_id(0) % blocks * queries, tl.program_id(0) // blocks
    row, head = unit // heads, unit % heads
    first_query, num_queries = span(query_bounds, row)
    first_key, num_keys = span(key_bounds, row)
    if start >= num_queries:
        return
    note = _note_of(first_query, row)
    q = _read(
        query,
        first_query,
        start,
        num_queries,
        head,
        query_token_stride,
        query_head_stride,
        queries,
        size,
    )
    scale *= LOG2_E
    top = tl.full([queries], LOWEST, tl.float32)
    total = tl.zeros([queries], tl.float32)
    attended = tl.zeros([queries, size], tl.float32)
    positions = start + tl.arange(0, queries)
    for key_start in tl.range(0, num_keys, keys, num_stages=stages):
        k = _read(
            key, first_key, key_start, num_keys, head, key_token_stride, key_head_stride, keys, size
        )
        v = _read(
            value,
            first_key,
            key_start,
            num_keys,
            head,
            value_token_stride,
            value_head_stride,
            keys,
            size,
        )
        scores = _masked(tl.dot(q, tl.trans(k)), key_start, num_keys, keys)
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores * scale - (new_top * scale)[:, None])
        decay = tl.exp2((top - new_top) * scale)
        total = total * decay + tl.sum(weights, 1)
        if seed is not None:
            keep = _keep_mask(
                seed, dropout, unit, positions[:, None], key_start + tl.arange(0, keys)[None, :]
            )
            weights = tl.where(keep, weights / (1.0 - dropout), 0.0)
        attended = tl.dot(weights.to(v.dtype), v, attended * decay[:, None])
        top = new_top
    total = tl.where(total == 0, 1.0, total)  # a row without keys gives zeros
    tl.store(
        logs + head * room + note + positions, top * scale + tl.log2(total), positions < num_queries
    )
    _write(
        out,
        attended / total[:, None],
        first_query,
        start,
        num_queries,
        head,
        heads * size,
        size,
        queries,
        size,
    )


@triton.jit(do_not_specialize=["room"])
@no_type_check
def query_kernel(
    query, key, value, out, gradient, logs, dots, query_gradient, query_bounds, key_bounds, seed,
    dropout, cos, sin, query_positions,
    query_token_stride, query_head_stride, key_token_stride, key_head_stride, value_token_stride,
    value_head_stride,
    gradient_token_stride, gradient_head_stride,
    heads, room, blocks, scale, queries: tl.constexpr, keys: tl.constexpr, size: tl.constexpr,
    query_group: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    """Gradient of a block of queries; and their dots, for the kernel below."""
    start, unit = tl.program_id(0) % blocks * queries, tl.program_id(0) // blocks
    row, head = unit // heads, unit % heads
    first_query, num_queries = span(query_bounds, row)
    first_key, num_keys = span(key_bounds, row)
    if start >= num_queries:
        return
    note = _note_of(first_query, row)
    q = _read(
        query,
        first_query,
        start,
        num_queries,
        head,
        query_token_stride,
        query_head_stride,
        queries,
        size,
    )
    g = _read(
        gradient,
        first_query,
        start,
        num_queries,
        head,
        gradient_token_stride,
        gradient_head_stride,
        queries,
        size,
    )
    o = _read(out, first_query, start, num_queries, head, heads * size, size, queries, size)
    dot = tl.sum(o.to(tl.float32) * g.to(tl.float32), 1)
    positions = start + tl.arange(0, queries)
    tl.store(dots + head * room + note + positions, dot, positions < num_queries)
    log = tl.load(logs + head * room + note + positions, positions < num_queries, 0.0)
    dq = tl.zeros([queries, size], tl.float32)
    for key_start in tl.range(0, num_keys, keys, num_stages=stages):
        k = _read(
            key, first_key, key_start, num_keys, head, key_token_stride, key_head_stride, keys, size
        )
        v = _read(
            value,
            first_key,
            key_start,
            num_keys,
            head,
            value_token_stride,
            value_head_stride,
            keys,
            size,
        )
        scores = tl.dot(q, tl.trans(k))
        dw = tl.dot(g, tl.trans(v))
        scores = _masked(scores, key_start, num_keys, keys)
        weights = tl.exp2(scores * (scale * LOG2_E) - log[:, None])
        if seed is not None:
            keep = _keep_mask(
                seed, dropout, unit, positions[:, None], key_start + tl.arange(0, keys)[None, :]
            )
            dw = tl.where(keep, dw / (1.0 - dropout), 0.0)
        ds = weights * (dw - dot[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq)
    dq *= scale
    if cos is not None:
        dq = _turned_back(
            dq, cos, sin, query_positions, first_query, start, num_queries, queries, size
        )
    _write(
        query_gradient,
        dq,
        first_query,
        start,
        num_queries,
        head,
        heads * size * query_group,
        size,
        queries,
        size,
    )


@triton.jit(do_not_specialize=["room"])
@no_type_check
def key_kernel(
    query, key, value, gradient, logs, dots, key_gradient, value_gradient, query_bounds, key_bounds,
    seed, dropout, cos, sin,
    query_token_stride, query_head_stride, key_token_stride, key_head_stride, value_token_stride,
    value_head_stride,
    gradient_token_stride, gradient_head_stride,
    heads, room, blocks, scale, queries: tl.constexpr, keys: tl.constexpr, size: tl.constexpr,
    key_group: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    """Gradients of a block of keys and their values. A query that is not there has an infinite
    denominator; a key that is not there spoils nothing but its own gradients."""
    start, unit = tl.program_id(0) % blocks * keys, tl.program_id(0) // blocks
    row, head = unit // heads, unit % heads
    first_key, num_keys = span(key_bounds, row)
    first_query, num_queries = span(query_bounds, row)
    if start >= num_keys:
        return
    note = _note_of(first_query, row)
    k = _read(key, first_key, start, num_keys, head, key_token_stride, key_head_stride, keys, size)
    v = _read(
        value, first_key, start, num_keys, head, value_token_stride, value_head_stride, keys, size
    )
    dk = tl.zeros([keys, size], tl.float32)
    dv = tl.zeros([keys, size], tl.float32)
    for query_start in tl.range(0, num_queries, queries, num_stages=stages):
        q = _read(
            query,
            first_query,
            query_start,
            num_queries,
            head,
            query_token_stride,
            query_head_stride,
            queries,
            size,
        )
        g = _read(
            gradient,
            first_query,
            query_start,
            num_queries,
            head,
            gradient_token_stride,
            gradient_head_stride,
            queries,
            size,
        )
        positions = query_start + tl.arange(0, queries)
        if isinstance(logs, tl.tensor_descriptor):
            log = logs.load([head, note + query_start]).reshape([queries])
            dot = dots.load([head, note + query_start]).reshape([queries])
            if query_start + queries > num_queries:
                log = tl.where(positions < num_queries, log, float("inf"))
                dot = tl.where(positions < num_queries, dot, 0.0)
        else:
            log = tl.load(
                logs + head * room + note + positions, positions < num_queries, float("inf")
            )
            dot = tl.load(dots + head * room + note + positions, positions < num_queries, 0.0)
        scores = tl.dot(k, tl.trans(q))
        dw = tl.dot(v, tl.trans(g))
        weights = tl.exp2(scores * (scale * LOG2_E) - log[None, :])
        dropped = weights
        if seed is not None:
            keep = _keep_mask(
                seed, dropout, unit, positions[None, :], start + tl.arange(0, keys)[:, None]
            )
            dropped, dw = (
                tl.where(keep, weights / (1.0 - dropout), 0.0),
                tl.where(keep, dw / (1.0 - dropout), 0.0),
            )
        dv = tl.dot(dropped.to(g.dtype), g, dv)
        ds = weights * (dw - dot[None, :])
        dk = tl.dot(ds.to(q.dtype), q, dk)
    _write(
        value_gradient,
        dv,
        first_key,
        start,
        num_keys,
        head,
        heads * size * key_group,
        size,
        keys,
        size,
    )
    dk *= scale
    if cos is not None:
        dk = _turned_back(dk, cos, sin, None, first_key, start, num_keys, keys, size)
    _write(
        key_gradient,
        dk,
        first_key,
        start,
        num_keys,
        head,
        heads * size * key_group,
        size,
        keys,
        size,
    )
