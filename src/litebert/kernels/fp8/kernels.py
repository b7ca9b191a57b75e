# mypy: ignore-errors
"""The kernels of fp8.py's roundings: rows of numbers in; their largest sizes and sums, then the
same numbers in 8 bits, out.
 Two passes, since a scale is not known before every number was seen. The first leaves what each of
its programs saw; each program of the second puts that together for itself. Nothing is added in
memory, so the same input gives the same bits.
"""

from typing import (
    no_type_check,
)  # keeps shape checks away in tests: Triton reads source, not functions

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_rows"])
@no_type_check
def survey_kernel(
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
def round_kernel(
    numbers, largest, scale_out, out, turned, num_rows, filled, width: tl.constexpr, programs: tl.constexpr, room: tl.constexpr,
    most: tl.constexpr, smallest: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr,
):  # fmt: skip
    """A tile, rounded, as it lies and turned. Rows from `num_rows` to `filled` are zeros. What is
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
    is_kept = (row < filled)[:, None] & (column < width)[None, :]
    tl.store(out + row[:, None] * width + column[None, :], rounded, is_kept)
    places = turned + column.to(tl.int64)[:, None] * filled + row[None, :]
    tl.store(places, tl.trans(rounded), (column < width)[:, None] & (row < filled)[None, :])
    if (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
        tl.store(scale_out, scale)
