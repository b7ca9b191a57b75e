# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call"
"""Attention over packed rows of up to 512 tokens on a GPU, a block of queries or keys at a time.

Queries, keys and values of packed rows in; attended values out, as in short.py, where a row is one
block. Forward saves the logarithm of each query's softmax denominator. Backward is two kernels, one
over blocks of queries, one over blocks of keys. Each recomputes the scores, seven matmuls instead
of five; but nothing is accumulated in memory, so there are no passes before and after, and the same
input gives the same bits. docs/decisions/long_attention.md has the numbers.

Loops read by descriptors (TMA): the GPU copies whole tiles without a thread's help. The tile at the
end of a row then has tokens of the next row too; their weights are 0. Needs Triton.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from litebert.kernels.attention.long_kernels import forward_kernel, key_kernel, query_kernel
from litebert.kernels.attention.rotary import Rotary, rotated_copy
from litebert.kernels.attention.short import empty_like, split_parts, strides, with_dense_heads
from litebert.kernels.gate import LONG

DESCRIPTORS = True
"""Whether loops read by descriptors, or by addresses that the threads compute."""
ALIGNED = 16
"""Bytes: where a descriptor's rows may start."""


class Tile(NamedTuple):
    """What one program computes at a time, and by what means."""

    queries: int
    keys: int
    warps: int
    stages: int
    """Of the pipeline: two of three are on their way while the third is at work."""
    registers: int | None = None
    """At most so many for a thread, so that more programs share a multiprocessor."""

    def settings(self, size: int) -> dict[str, Any]:
        shape = {"queries": self.queries, "keys": self.keys, "size": size, "stages": self.stages}
        return shape | {"num_warps": self.warps, "maxnreg": self.registers}


class Tiles(NamedTuple):
    forward: Tile
    of_queries: Tile
    of_keys: Tile


TILES = {
    64: Tiles(Tile(128, 64, 4, 3), Tile(64, 64, 4, 3), Tile(64, 64, 4, 3, registers=168)),
    128: Tiles(Tile(128, 64, 8, 2), Tile(128, 64, 8, 2), Tile(32, 128, 8, 3)),
}
"""By the size of a head, or the next larger one."""


def long_attention(
    parts: Sequence[Float[Tensor, "_ _ heads size"]],
    query_bounds: Int[Tensor, " rows_and_one"],
    key_bounds: Int[Tensor, " rows_and_one"],
    longest_query: int,
    longest_key: int,
    seed: Int[Tensor, ""] | None = None,
    dropout: float = 0.0,
    rotary: Rotary | None = None,
) -> Float[Tensor, "queries heads size"]:
    """As `short_attention`, with dropout: with a `seed` (int64, on the device, so that a replayed
    graph has another each time) weights are dropped with probability `dropout`, and the others
    scaled up."""
    assert max(longest_query, longest_key) <= LONG, "longer rows are for torch's attention"
    rest = query_bounds, key_bounds, longest_query, longest_key, seed, dropout
    if rotary is None:
        attended, _ = _forward(parts, *rest)
    else:
        attended, *_ = _rotary_forward(parts, *rotary, *rest)
    assert isinstance(attended, Tensor)
    return attended


@torch.library.custom_op("litebert::long_attention", mutates_args=())
def _forward(
    parts: Sequence[Tensor], query_bounds: Tensor, key_bounds: Tensor, longest_query: int,
    longest_key: int,
    seed: Tensor | None, dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    bounds = query_bounds, key_bounds, longest_query, longest_key
    query, key, value = split_parts(parts)
    return _run_forward(query, key, value, *bounds, seed, dropout)


@torch.library.custom_op("litebert::long_rotary_attention", mutates_args=())
def _rotary_forward(
    parts: Sequence[Tensor], cos: Tensor, sin: Tensor, key_positions: Tensor,
    query_positions: Tensor | None, query_bounds: Tensor, key_bounds: Tensor, longest_query: int,
    longest_key: int, seed: Tensor | None, dropout: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Attended values and logarithms; rotated queries and keys, which backward reads again."""
    query, key, value = split_parts(parts)
    query = rotated_copy(
        query, cos, sin, key_positions if query_positions is None else query_positions
    )
    key = rotated_copy(key, cos, sin, key_positions)
    bounds = query_bounds, key_bounds, longest_query, longest_key
    return *_run_forward(query, key, value, *bounds, seed, dropout), query, key


def _run_forward(
    query: Tensor, key: Tensor, value: Tensor, query_bounds: Tensor, key_bounds: Tensor,
    longest_query: int, longest_key: int, seed: Tensor | None, dropout: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    heads, size = query.shape[1:]
    out, logs, tile = (
        query.new_empty(query.shape),
        _notes_like(query, query_bounds),
        _tiles(size).forward,
    )
    grid, blocks = _grid(query_bounds, heads, longest_query, tile.queries)
    with torch.cuda.device_of(query):
        forward_kernel[grid](
            query, *_tokens(tile.keys, key, value), out, logs, query_bounds, key_bounds, seed,
            dropout,
            *strides(query, key, value), heads, logs.shape[1], blocks, size**-0.5,
            **tile.settings(size),
        )  # fmt: skip
    return out, logs


@torch.library.custom_op("litebert::long_attention_backward", mutates_args=())
def _backward(
    parts: Sequence[Tensor], out: Tensor, logs: Tensor, gradient: Tensor,
    query_bounds: Tensor, key_bounds: Tensor, longest_query: int, longest_key: int,
    seed: Tensor | None, dropout: float,
) -> list[Tensor]:  # fmt: skip
    bounds = query_bounds, key_bounds, longest_query, longest_key
    query, key, value = split_parts(parts)
    return _run_backward(parts, query, key, value, out, logs, gradient, *bounds, seed, dropout)


@torch.library.custom_op("litebert::long_rotary_attention_backward", mutates_args=())
def _rotary_backward(
    parts: Sequence[Tensor], query: Tensor, key: Tensor, out: Tensor, logs: Tensor,
    gradient: Tensor, cos: Tensor, sin: Tensor, query_positions: Tensor | None,
    query_bounds: Tensor, key_bounds: Tensor, longest_query: int, longest_key: int,
    seed: Tensor | None, dropout: float,
) -> list[Tensor]:  # fmt: skip
    """`query` and `key` are rotated; their gradients are rotated back."""
    value, tables = split_parts(parts)[2], (cos, sin, query_positions)
    bounds = query_bounds, key_bounds, longest_query, longest_key
    return _run_backward(
        parts, query, key, value, out, logs, gradient, *bounds, seed, dropout, tables
    )


def _run_backward(
    parts: Sequence[Tensor], query: Tensor, key: Tensor, value: Tensor,
    out: Tensor, logs: Tensor, gradient: Tensor,
    query_bounds: Tensor, key_bounds: Tensor, longest_query: int, longest_key: int,
    seed: Tensor | None, dropout: float, tables: tuple[Tensor | None, ...] = (None, None, None),
) -> list[Tensor]:  # fmt: skip
    gradients = empty_like(parts)
    dq, dk, dv = split_parts(gradients)
    gradient, dots = with_dense_heads(gradient), torch.empty_like(logs)
    heads, size = query.shape[1:]
    groups = (
        {"query_group": dq.stride(0) // (heads * size)},
        {"key_group": dk.stride(0) // (heads * size)},
    )
    _, of_queries, of_keys = _tiles(size)
    if seed is not None:  # to draw numbers takes registers of its own
        of_keys = of_keys._replace(registers=None)
    common = *strides(query, key, value, gradient), heads, logs.shape[1]
    with torch.cuda.device_of(query):
        grid, blocks = _grid(query_bounds, heads, longest_query, of_queries.queries)
        query_kernel[grid](
            query, *_tokens(of_queries.keys, key, value), out, gradient, logs, dots, dq,
            query_bounds, key_bounds,
            seed, dropout, *tables, *common, blocks, size**-0.5,
            **groups[0], **of_queries.settings(size),
        )  # fmt: skip
        grid, blocks = _grid(key_bounds, heads, longest_key, of_keys.keys)
        q, g = _tokens(of_keys.queries, query, gradient)
        key_kernel[grid](
            q, key, value, g, *_notes(of_keys.queries, logs, dots), dk, dv, query_bounds,
            key_bounds,
            seed, dropout, *tables[:2], *common, blocks, size**-0.5,
            **groups[1], **of_keys.settings(size),
        )  # fmt: skip
    return gradients


@_forward.register_fake
def _(parts: Sequence[Tensor], query_bounds: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    tokens, _group, heads, size = parts[0].shape
    out = parts[0].new_empty(tokens, heads, size)
    return out, _notes_like(out, query_bounds)


@_rotary_forward.register_fake
def _(parts: Sequence[Tensor], *args: Any) -> tuple[Tensor, ...]:
    query, key, _value = split_parts(parts)
    out, query_bounds = query.new_empty(query.shape), args[4]
    return out, _notes_like(out, query_bounds), torch.empty_like(out), key.new_empty(key.shape)


@_backward.register_fake
@_rotary_backward.register_fake
def _(parts: Sequence[Tensor], *_: Any) -> list[Tensor]:
    return empty_like(parts)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    parts, *bounds, longest_query, longest_key, seed, dropout = inputs
    ctx.longest, ctx.dropout = (longest_query, longest_key), dropout
    ctx.save_for_backward(*output, seed, *bounds, *parts)


def _gradients(ctx: Any, gradient: Tensor, _: Tensor | None) -> tuple[list[Tensor] | None, ...]:
    out, logs, seed, query_bounds, key_bounds, *parts = ctx.saved_tensors
    gradients = _backward(
        parts, out, logs, gradient, query_bounds, key_bounds, *ctx.longest, seed, ctx.dropout
    )
    return gradients, *[None] * 6


_forward.register_autograd(_gradients, setup_context=_save)


def _save_rotary(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    parts, cos, sin, _, query_positions, *bounds, longest_query, longest_key, seed, dropout = inputs
    ctx.longest, ctx.dropout = (longest_query, longest_key), dropout
    ctx.save_for_backward(*output, cos, sin, query_positions, seed, *bounds, *parts)


def _rotary_gradients(ctx: Any, gradient: Tensor, *_: Any) -> tuple[list[Tensor] | None, ...]:
    out, logs, query, key, *tables_and_rest = ctx.saved_tensors
    tables, (seed, *bounds_and_parts) = tables_and_rest[:3], tables_and_rest[3:]
    bounds, parts = bounds_and_parts[:2], bounds_and_parts[2:]
    gradients = _rotary_backward(
        parts, query, key, out, logs, gradient, *tables, *bounds, *ctx.longest, seed, ctx.dropout
    )
    return gradients, *[None] * 10


_rotary_forward.register_autograd(_rotary_gradients, setup_context=_save_rotary)


def _tiles(size: int) -> Tiles:
    return TILES[min(known for known in TILES if size <= known)]


def _grid(bounds: Tensor, heads: int, longest: int, block: int) -> tuple[tuple[int], int]:
    """A program for each block of each head of each row, and the number of blocks; those beyond the
    end of a row do nothing."""
    blocks = triton.cdiv(longest, block)
    return ((len(bounds) - 1) * heads * blocks,), blocks


def _notes_like(query: Tensor, bounds: Tensor) -> Tensor:
    """A number for each head and query, and room between rows: long_kernels.py's `_note_of`."""
    tokens, heads, _ = query.shape
    return query.new_empty(heads, (tokens // 4 + len(bounds)) * 4, dtype=torch.float32)


def _tokens(block: int, *tensors: Tensor) -> Sequence[Tensor | TensorDescriptor]:
    """As loops read them that take `block` tokens of one head at a time."""
    if not DESCRIPTORS:
        return tensors
    return [
        _descriptor(_with_aligned_heads(tensor).flatten(1), block, tensor.shape[2])
        for tensor in tensors
    ]


def _notes(block: int, *tensors: Tensor) -> Sequence[Tensor | TensorDescriptor]:
    return [_descriptor(tensor, 1, block) for tensor in tensors] if DESCRIPTORS else tensors


def _descriptor(tensor: Tensor, *block: int) -> TensorDescriptor:
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), list(block))


def _with_aligned_heads(tensor: Tensor) -> Tensor:
    """What a descriptor can describe: heads side by side, tokens any distance apart, as in a slice
    of a wide tensor."""
    is_aligned = (
        tensor.data_ptr() % ALIGNED == 0 == tensor.stride(0) * tensor.element_size() % ALIGNED
    )
    is_dense = tensor.stride()[1:] == (tensor.shape[2], 1)
    return (
        tensor if is_aligned and is_dense else tensor.clone(memory_format=torch.contiguous_format)
    )
