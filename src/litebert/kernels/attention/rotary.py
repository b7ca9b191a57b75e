# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call, untyped-decorator"
"""Rotary positions inside attention over packed rows: what short.py and long.py share.

Heads are read as two tiles of half the size, since a rotation turns number i of a head with number
i + size/2. Angles' cosines and sines come from small float32 tables by position, the same for all
rows, heads and layers: they stay in a multiprocessor's cache. Backward reads the queries and keys
that forward rotated, and rotates their gradients back before it writes them. Needs Triton.
"""

from typing import NamedTuple, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor


class Rotary(NamedTuple):
    """How the queries and keys of packed rows are rotated. A row's keys have the positions 0, 1, 2
    …"""

    cos: Float[Tensor, "positions half"]
    sin: Float[Tensor, "positions half"]
    """float32, of as many positions as the longest row has tokens, or more."""
    key_positions: Int[Tensor, " keys"]
    query_positions: Int[Tensor, " queries"] | None = None
    """None where every key has its query."""


def rotated_copy(
    heads: Float[Tensor, "tokens heads size"],
    cos: Float[Tensor, "positions half"],
    sin: Float[Tensor, "positions half"],
    positions: Int[Tensor, " tokens"],
) -> Float[Tensor, "tokens heads size"]:
    """Queries or keys, rotated."""
    tokens, num_heads, size = heads.shape
    out = heads.new_empty(heads.shape)
    grid = (triton.cdiv(tokens * num_heads, ROWS),)
    with torch.cuda.device_of(heads):
        rotate_kernel[grid](
            heads, out, cos, sin, positions, tokens * num_heads, *heads.stride()[:2],
            num_heads, half=size // 2, rows=ROWS,
        )  # fmt: skip
    return out


ROWS = 64
"""Heads of tokens that a program rotates."""


# Kernels. no_type_check: Triton reads their source, which shape checks in tests must not wrap.


@triton.jit
@no_type_check
def rotated(first, second, cos, sin):
    """The two halves of heads, rotated; with the negative sine, rotated back."""
    first, second = first.to(tl.float32), second.to(tl.float32)
    return first * cos - second * sin, second * cos + first * sin


@triton.jit
@no_type_check
def angles(cos, sin, query_positions, first, start, count, block: tl.constexpr, half: tl.constexpr):
    """Cosines and sines of `block` tokens of a row, from its token `start` on; those of queries
    where `query_positions` has them, the row's first being `first`."""
    tokens = start + tl.arange(0, block)
    is_there = tokens < count
    if query_positions is not None:
        tokens = tl.load(query_positions + first + tokens, is_there, 0).to(tl.int32)
    near = tokens[:, None] * half + tl.arange(0, half)[None, :]
    return tl.load(cos + near, is_there[:, None], 0.0), tl.load(sin + near, is_there[:, None], 0.0)


@triton.jit
@no_type_check
def rotate_kernel(
    heads, out, cos, sin, positions, count, token_stride, head_stride, num_heads,
    half: tl.constexpr, rows: tl.constexpr,
):  # fmt: skip
    """Some rows of (token, head), in the order in which they are written."""
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    is_there = (row < count)[:, None]
    token, head = row // num_heads, row % num_heads
    numbers = tl.arange(0, half)[None, :]
    near = tl.load(positions + token, row < count, 0)[:, None] * half + numbers
    c, s = tl.load(cos + near, is_there, 0.0), tl.load(sin + near, is_there, 0.0)
    read = heads + (token.to(tl.int64) * token_stride + head * head_stride)[:, None] + numbers
    first, second = rotated(tl.load(read, is_there, 0.0), tl.load(read + half, is_there, 0.0), c, s)
    write = out + row.to(tl.int64)[:, None] * (2 * half) + numbers
    tl.store(write, first.to(out.dtype.element_ty), is_there)
    tl.store(write + half, second.to(out.dtype.element_ty), is_there)
