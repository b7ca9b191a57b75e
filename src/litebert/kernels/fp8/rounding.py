# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call, untyped-decorator"
"""Rounding to 8-bit floats on a GPU, as is and transposed at once, with the sums that biases need.
bfloat16 in; 8 bits out.

Two passes, since a scale is not known before every number was seen. The first saves what each of
its programs saw; each program of the second combines that for itself. No atomics, so the same input
gives the same bits. Needs Triton; with TRITON_INTERPRET=1 it runs on a CPU.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from litebert.kernels.norm import COLUMNS, add_up, warps

SURVEY: dict[str, int] = {"rows": 2, "stages": 3, "programs": 4 * 132}
"""Of the first pass: as in norm.py."""
TILE: dict[str, int] = {"rows": 128, "columns": 64}
"""Of the second pass: as it lies a line of a tile is 128 bytes read and 64 written, transposed it
is 128 written."""


@torch.library.custom_op("litebert::round_both", mutates_args=())
def round_both(
    numbers: Tensor, is_gradient: bool, multiple: int, smallest: float, adds: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The numbers as they are and transposed, filled up with rows of zeros to a multiple; their
    scale; and sums, if wanted."""
    numbers = numbers.contiguous()
    out, transposed, scale, totals = _like(numbers, is_gradient, multiple, smallest, adds)
    rows, width = numbers.shape
    columns = min(COLUMNS, triton.next_power_of_2(width))
    blocks = triton.cdiv(width, columns)
    programs = max(1, SURVEY["programs"] // blocks)
    largest = scale.new_empty(programs * blocks)
    sums = scale.new_empty((programs, width) if adds else 0)
    filled = out.shape[0]
    with torch.cuda.device_of(numbers):
        _survey_kernel[(programs, blocks)](
            numbers, largest, sums, rows, width, SURVEY["rows"], columns, SURVEY["stages"], adds,
            num_warps=warps(columns),
        )  # fmt: skip
        grid = triton.cdiv(filled, TILE["rows"]), triton.cdiv(width, TILE["columns"])
        _round_kernel[grid](
            numbers, largest, scale, out, transposed, rows, filled, width, programs * blocks,
            triton.next_power_of_2(programs * blocks), torch.finfo(out.dtype).max, smallest,
            TILE["rows"], TILE["columns"],
            num_warps=4,
        )  # fmt: skip
        if adds:
            add_up(sums, totals)
    return out, transposed, scale, totals


@round_both.register_fake
def _like(
    numbers: Tensor, is_gradient: bool, multiple: int, smallest: float, adds: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dtype = torch.float8_e5m2 if is_gradient else torch.float8_e4m3fn
    rows, width = numbers.shape
    filled = (rows + multiple - 1) // multiple * multiple
    scale, totals = (
        numbers.new_empty((), dtype=torch.float32),
        numbers.new_empty(width if adds else 0),
    )
    return (
        numbers.new_empty(filled, width, dtype=dtype),
        numbers.new_empty(width, filled, dtype=dtype),
        scale,
        totals,
    )


# Kernels. no_type_check: Triton reads their source, which shape checks in tests must not wrap.


@triton.jit(do_not_specialize=["num_rows"])
@no_type_check
def _survey_kernel(
    numbers, largest, sums, num_rows, width: tl.constexpr,
    rows: tl.constexpr, columns: tl.constexpr, stages: tl.constexpr, adds: tl.constexpr,
):  # fmt: skip
    """`largest` has a number a program, `sums` a row for all programs beside each other. Columns
    beyond the width are zeros."""
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    top = tl.zeros([columns], tl.float32)
    total = tl.zeros([columns], tl.float32)
    for first in tl.range(
        tl.program_id(0) * rows, num_rows, tl.num_programs(0) * rows, num_stages=stages
    ):
        row = first + tl.arange(0, rows)
        is_there = (row < num_rows)[:, None] & (column < width)[None, :]
        block = tl.load(
            numbers + row.to(tl.int64)[:, None] * width + column[None, :], is_there, 0.0
        ).to(tl.float32)
        top = tl.maximum(top, tl.max(tl.abs(block), 0))
        if adds:
            total += tl.sum(block, 0)
    tl.store(largest + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), tl.max(top, 0))
    if adds:
        tl.store(sums + tl.program_id(0) * width + column, total, column < width)


@triton.jit(do_not_specialize=["num_rows"])
@no_type_check
def _round_kernel(
    numbers, largest, scale_out, out, transposed, num_rows, filled, width: tl.constexpr,
    programs: tl.constexpr, room: tl.constexpr,
    most: tl.constexpr, smallest: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """A tile, rounded, as it is and transposed. Rows from `num_rows` to `filled` are zeros. What is
    not a number stays so."""
    seen = tl.arange(0, room)
    scale = tl.maximum(tl.max(tl.load(largest + seen, seen < programs, 0.0), 0), smallest) / most
    row = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    column = tl.program_id(1) * columns + tl.arange(0, columns)
    is_there = (row < num_rows)[:, None] & (column < width)[None, :]
    block = (
        tl.load(numbers + row[:, None] * width + column[None, :], is_there, 0.0).to(tl.float32)
        / scale
    )
    block = tl.where(
        block > most, most, tl.where(block < -most, -most, block)
    )  # a quotient may be a bit too large
    rounded = block.to(out.dtype.element_ty)
    is_written = (row < filled)[:, None] & (column < width)[None, :]
    tl.store(out + row[:, None] * width + column[None, :], rounded, is_written)
    pointers = transposed + column.to(tl.int64)[:, None] * filled + row[None, :]
    tl.store(pointers, tl.trans(rounded), (column < width)[:, None] & (row < filled)[None, :])
    if (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
        tl.store(scale_out, scale)
