# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call"
"""Numbers rounded to 8 bits on a GPU, in both orders at once, with the sums that biases need.
bfloat16 in; 8 bits out.
 Needs Triton, which comes with torch's CUDA builds: import it where it is used. With
TRITON_INTERPRET=1 it runs on a CPU.
"""

import torch
import triton
from torch import Tensor

from litebert.kernels.fp8.kernels import round_kernel, survey_kernel
from litebert.kernels.norm import COLUMNS, add_up, warps

SURVEY: dict[str, int] = {"rows": 2, "stages": 3, "programs": 4 * 132}
"""Of the first pass: as fused_norm.py's."""
TILE: dict[str, int] = {"rows": 128, "columns": 64}
"""Of the second pass: as it lies a line of a tile is 128 bytes read and 64 written, turned it is
128 written."""


@torch.library.custom_op("litebert::round_both", mutates_args=())
def round_both(
    numbers: Tensor, is_gradient: bool, multiple: int, smallest: float, adds: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The numbers as they lie and turned, filled up with rows of zeros to a multiple; their scale;
    and sums, if wanted."""
    numbers = numbers.contiguous()
    out, turned, scale, totals = _like(numbers, is_gradient, multiple, smallest, adds)
    rows, width = numbers.shape
    columns = min(COLUMNS, triton.next_power_of_2(width))
    blocks = triton.cdiv(width, columns)
    programs = max(1, SURVEY["programs"] // blocks)
    largest = scale.new_empty(programs * blocks)
    sums = scale.new_empty((programs, width) if adds else 0)
    filled = out.shape[0]
    with torch.cuda.device_of(numbers):
        survey_kernel[(programs, blocks)](
            numbers, largest, sums, rows, width, SURVEY["rows"], columns, SURVEY["stages"], adds,
            num_warps=warps(columns),
        )  # fmt: skip
        grid = triton.cdiv(filled, TILE["rows"]), triton.cdiv(width, TILE["columns"])
        round_kernel[grid](
            numbers, largest, scale, out, turned, rows, filled, width, programs * blocks,
            triton.next_power_of_2(programs * blocks), torch.finfo(out.dtype).max, smallest, TILE["rows"], TILE["columns"],
            num_warps=4,
        )  # fmt: skip
        if adds:
            add_up(sums, totals)
    return out, turned, scale, totals


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
