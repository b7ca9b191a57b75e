"""One matmul by NVIDIA's cuBLASLt, through its C interface, by an algorithm of our choice. Matrices
in; one out.

torch takes the first algorithm that the library proposes. On a Hopper GPU others are up to a fifth
faster for the matmuls of an encoder, always the same ones, and one of them writes GELU and its
input at once: docs/decisions/matmuls.md. Where cuBLASLt cannot do it, `multiply` returns False and
torch multiplies.
"""

import ctypes
import threading
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

WORKSPACE = 32 << 20
"""Bytes that an algorithm may use for partial sums."""
VERSION = 13
"""Of the library whose algorithms were measured. Another one may number them otherwise: there its
own proposal is used."""
ALIGNMENTS = (256, 16)
"""Bytes at whose multiples all matrices start: torch's own allocations, and slices of them."""


class Algorithm(NamedTuple):
    """As the library numbers tiles, its custom options, and clusters of multiprocessors."""

    tile: int
    option: int
    cluster: int


WIDE = Algorithm(29, 1, 3)
"""128 × 160 numbers at a time."""
SQUARE = Algorithm(20, 1, 3)
"""128 × 128."""
GELU = Algorithm(28, 0, 3)
"""96 × 128."""
LONG = 2048
"""Terms of a sum from which SQUARE is faster."""
ENOUGH = 1 << 23
"""Weights whose gradient has tiles for all multiprocessors; with fewer, sums are split, and the
library knows best into how many."""

# from cublasLt.h and library_types.h
BFLOAT16, FLOAT32, SUMS_IN_FLOAT32 = 14, 0, 68
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS, AUX, AUX_STRIDE, AUX_TYPE, BIAS_TYPE = (
    3,
    4,
    7,
    8,
    11,
    12,
    22,
    26,
)
PLAIN, WITH_BIAS, WITH_BIAS_AND_GELU = 1, 4, 164
MOST_WORKSPACE, FIRST_ALIGNMENT = 1, 5
HOPPERS, TILE, SPLITS, CUSTOM_OPTION, STAGES, CLUSTER = 66, 1, 2, 5, 6, 8
AS_MANY_AS_FIT = 35
SOMEWHERE = ctypes.c_void_p(256)
"""A pointer that is replaced before it is read."""


class Shape(NamedTuple):
    """What the algorithm depends on: (rows × inner) · (inner × columns)."""

    device: int
    rows: int
    columns: int
    inner: int
    transpose_left: bool
    transpose_right: bool
    epilogue: int
    alignment: int


class _Proposal(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t"""

    _fields_ = [
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


class _Plan(NamedTuple):
    handle: ctypes.c_void_p
    description: ctypes.c_void_p
    layouts: tuple[ctypes.c_void_p, ...]
    """Of the right matrix, the left one and the result: the library is column-major."""
    algorithm: Any


def multiply(
    out: Tensor,
    left: Tensor,
    right: Tensor,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    gelu_input: Tensor | None = None,
    transpose_left: bool = False,
    transpose_right: bool = False,
) -> bool:
    """`out` = left · right (+ bias) (+ residual), each factor as it is or transposed; with
    `gelu_input` the sum goes there, and its GELU by tanh to `out`. False, and nothing is done,
    where the library is missing or refuses."""
    tensors = [
        tensor for tensor in (out, left, right, bias, residual, gelu_input) if tensor is not None
    ]
    rows, columns = out.shape
    epilogue = PLAIN if bias is None else WITH_BIAS if gelu_input is None else WITH_BIAS_AND_GELU
    alignment = next(
        (
            bytes
            for bytes in ALIGNMENTS
            if all(tensor.data_ptr() % bytes == 0 for tensor in tensors)
        ),
        None,
    )
    if alignment is None or library() is None:
        return False
    inner = left.shape[0 if transpose_left else 1]
    chosen = plan(
        Shape(
            out.device.index,
            rows,
            columns,
            inner,
            transpose_left,
            transpose_right,
            epilogue,
            alignment,
        )
    )
    with torch.cuda.device_of(out):  # type: ignore[no-untyped-call]
        return chosen is not None and _run(
            chosen,
            out,
            left,
            right,
            out if residual is None else residual,
            {BIAS: bias, AUX: gelu_input},
        )


def _run(
    chosen: _Plan,
    out: Tensor,
    left: Tensor,
    right: Tensor,
    residual: Tensor,
    others: dict[int, Tensor | None],
) -> bool:
    lib = library()
    workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=out.device)
    alpha, beta = ctypes.c_float(1), ctypes.c_float(residual is not out)
    right_layout, left_layout, out_layout = chosen.layouts
    with (
        LOCK
    ):  # the description has the addresses of bias and gelu_input until the matmul is enqueued
        pointers = {name: _pointer(tensor) for name, tensor in others.items() if tensor is not None}
        _set(lib.cublasLtMatmulDescSetAttribute, chosen.description, pointers)
        status = lib.cublasLtMatmul(
            chosen.handle, chosen.description, ctypes.byref(alpha), _pointer(right), right_layout,
            _pointer(left), left_layout,
            ctypes.byref(beta), _pointer(residual), out_layout, _pointer(out), out_layout,
            ctypes.byref(chosen.algorithm),
            _pointer(workspace), ctypes.c_size_t(WORKSPACE),
            ctypes.c_void_p(torch.cuda.current_stream(out.device).cuda_stream),
        )  # fmt: skip
    return int(status) == 0


LOCK = threading.Lock()


def _pointer(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


@cache
def library() -> Any:
    """The one that torch has loaded, or None."""
    if not torch.version.cuda:
        return None
    try:
        return ctypes.CDLL(f"libcublasLt.so.{torch.version.cuda.split('.')[0]}")
    except OSError:
        return None


@cache
def version() -> int:
    return int(library().cublasLtGetVersion()) // 10_000


@cache
def handle(device: int) -> ctypes.c_void_p:
    created = ctypes.c_void_p()
    with torch.cuda.device(device):
        _check(library().cublasLtCreate(ctypes.byref(created)))
    return created


@cache
def plan(shape: Shape) -> _Plan | None:
    """How to multiply matrices of this shape; resolved once."""
    try:
        return _plan(shape)
    except _RefusedError:
        return None


class _RefusedError(Exception):
    """The library does not do it."""


def _plan(shape: Shape) -> _Plan:
    lib, owner, description = library(), handle(shape.device), ctypes.c_void_p()
    _check(lib.cublasLtMatmulDescCreate(ctypes.byref(description), SUMS_IN_FLOAT32, FLOAT32))
    settings: dict[int, Any] = {
        TRANSPOSE_A: ctypes.c_int32(shape.transpose_right),
        TRANSPOSE_B: ctypes.c_int32(shape.transpose_left),
    }
    settings |= {EPILOGUE: ctypes.c_int32(shape.epilogue)}
    if shape.epilogue != PLAIN:
        settings |= {BIAS: SOMEWHERE, BIAS_TYPE: ctypes.c_int32(BFLOAT16)}
    if shape.epilogue == WITH_BIAS_AND_GELU:
        settings |= {
            AUX: SOMEWHERE,
            AUX_TYPE: ctypes.c_int32(BFLOAT16),
            AUX_STRIDE: ctypes.c_int64(shape.columns),
        }
    _set(lib.cublasLtMatmulDescSetAttribute, description, settings)
    layouts = tuple(_layout(lib, *size) for size in _sizes(shape))
    wanted = choice(shape) if version() == VERSION else None
    try:
        algorithm = _chosen_algorithm(lib, owner, description, layouts, wanted) if wanted else None
    except _RefusedError:
        algorithm = None
    return _Plan(
        owner,
        description,
        layouts,
        algorithm or _proposed_algorithm(lib, owner, description, layouts, shape.alignment),
    )


def choice(shape: Shape) -> Algorithm | None:
    """The fastest of those that were tried on an H200, or None for what the library proposes."""
    if shape.epilogue == WITH_BIAS_AND_GELU:
        return GELU
    if shape.transpose_left:
        return WIDE if shape.rows * shape.columns >= ENOUGH else None
    return SQUARE if shape.inner >= LONG else WIDE


def _chosen_algorithm(
    lib: Any, owner: Any, description: Any, layouts: tuple[Any, ...], wanted: Algorithm
) -> Any:
    """The algorithm of our choice, if the library accepts it."""
    algorithm, proposal = (ctypes.c_uint64 * 8)(), _Proposal()
    kinds = SUMS_IN_FLOAT32, FLOAT32, BFLOAT16, BFLOAT16, BFLOAT16, BFLOAT16
    _check(lib.cublasLtMatmulAlgoInit(owner, *kinds, HOPPERS, ctypes.byref(algorithm)))
    settings: dict[int, Any] = {
        TILE: ctypes.c_uint32(wanted.tile),
        CUSTOM_OPTION: ctypes.c_uint32(wanted.option),
    }
    settings |= {
        STAGES: ctypes.c_uint32(AS_MANY_AS_FIT),
        SPLITS: ctypes.c_int32(1),
        CLUSTER: ctypes.c_uint16(wanted.cluster),
    }
    _set(lib.cublasLtMatmulAlgoConfigSetAttribute, ctypes.byref(algorithm), settings)
    matrices = *layouts, layouts[-1]
    _check(
        lib.cublasLtMatmulAlgoCheck(
            owner, description, *matrices, ctypes.byref(algorithm), ctypes.byref(proposal)
        )
    )
    if proposal.status or proposal.workspace > WORKSPACE:
        raise _RefusedError
    return algorithm


def _proposed_algorithm(
    lib: Any, owner: Any, description: Any, layouts: tuple[Any, ...], alignment: int
) -> Any:
    """The library's own first choice."""
    preference, proposal, count = ctypes.c_void_p(), _Proposal(), ctypes.c_int()
    _check(lib.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)))
    settings: dict[int, Any] = {MOST_WORKSPACE: ctypes.c_uint64(WORKSPACE)}
    settings |= {FIRST_ALIGNMENT + matrix: ctypes.c_uint32(alignment) for matrix in range(4)}
    _set(lib.cublasLtMatmulPreferenceSetAttribute, preference, settings)
    where = *layouts, layouts[-1], preference, 1, ctypes.byref(proposal), ctypes.byref(count)
    _check(lib.cublasLtMatmulAlgoGetHeuristic(owner, description, *where))
    lib.cublasLtMatmulPreferenceDestroy(preference)
    if not count.value or proposal.status:
        raise _RefusedError
    return proposal.algorithm


def _sizes(shape: Shape) -> list[tuple[int, int]]:
    """(length of a line, lines) of the right matrix, the left one and the result, in memory."""
    right = (shape.inner, shape.columns) if shape.transpose_right else (shape.columns, shape.inner)
    left = (shape.rows, shape.inner) if shape.transpose_left else (shape.inner, shape.rows)
    return [right, left, (shape.columns, shape.rows)]


def _layout(lib: Any, length: int, lines: int) -> ctypes.c_void_p:
    created = ctypes.c_void_p()
    numbers = ctypes.c_uint64(length), ctypes.c_uint64(lines), ctypes.c_int64(length)
    _check(lib.cublasLtMatrixLayoutCreate(ctypes.byref(created), BFLOAT16, *numbers))
    return created


def _set(setter: Any, target: Any, settings: dict[int, Any]) -> None:
    """Set attributes of a matmul, an algorithm or a preference."""
    for name, value in settings.items():
        _check(setter(target, name, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))))


def _check(status: int) -> None:
    if status:
        raise _RefusedError(f"cuBLASLt says {status}")
