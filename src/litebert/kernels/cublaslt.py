"""One product by NVIDIA's cuBLASLt, by its C interface, with a say in which of its algorithms is
used. Matrices in; one out.
 torch takes the first algorithm that the library proposes. On a Hopper GPU others that it has are
up to a fifth faster for the products of an encoder, always the same ones, and one of them writes
GELU and its input at once: docs/decisions/products.md. Whatever cannot be done here is answered
with False, and torch multiplies.
"""

import ctypes
import threading
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

WORKSPACE = 32 << 20
"""Bytes that an algorithm may use to add up parts of a sum."""
VERSION = 13
"""Of the library whose algorithms were looked at. Another one may number them otherwise: there its
own proposal is taken."""
ALIGNMENTS = (256, 16)
"""Bytes that all matrices start at a multiple of: torch's own memory, and a part of it."""


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
"""A sum of so many terms is SQUARE's."""
ENOUGH = 1 << 23
"""A gradient of so many weights has tiles for all multiprocessors; of fewer, its sums are cut into
parts, and the library knows best into how many."""

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
"""Where nobody looks before it is known where to."""


class Shape(NamedTuple):
    """What decides how to multiply: (rows × inner) · (inner × columns)."""

    device: int
    rows: int
    columns: int
    inner: int
    transpose_left: bool
    transpose_right: bool
    epilogue: int
    alignment: int


class Proposal(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t"""

    _fields_ = [
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


class Plan(NamedTuple):
    handle: ctypes.c_void_p
    description: ctypes.c_void_p
    layouts: tuple[ctypes.c_void_p, ...]
    """Of the right matrix, the left one and the product: the library counts columns first."""
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
    """`out` = left · right (+ bias) (+ residual), each of the two as it lies or turned; with `gelu_input`
    that goes there, and GELU by tanh to `out`. False, and nothing is done, where the library is not
    there or does not know how."""
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
    found = plan(
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
        return found is not None and _run(
            found,
            out,
            left,
            right,
            out if residual is None else residual,
            {BIAS: bias, AUX: gelu_input},
        )


def _run(
    made: Plan,
    out: Tensor,
    left: Tensor,
    right: Tensor,
    residual: Tensor,
    others: dict[int, Tensor | None],
) -> bool:
    lib = library()
    workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=out.device)
    one, share = ctypes.c_float(1), ctypes.c_float(residual is not out)
    of_right, of_left, of_out = made.layouts
    with (
        LOCK
    ):  # the description has the addresses of bias and gelu_input until the product is on its way
        places = {name: place(tensor) for name, tensor in others.items() if tensor is not None}
        _give(lib.cublasLtMatmulDescSetAttribute, made.description, places)
        status = lib.cublasLtMatmul(
            made.handle, made.description, ctypes.byref(one), place(right), of_right, place(left), of_left,
            ctypes.byref(share), place(residual), of_out, place(out), of_out, ctypes.byref(made.algorithm),
            place(workspace), ctypes.c_size_t(WORKSPACE), ctypes.c_void_p(torch.cuda.current_stream(out.device).cuda_stream),
        )  # fmt: skip
    return int(status) == 0


LOCK = threading.Lock()


def place(tensor: Tensor) -> ctypes.c_void_p:
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
    made = ctypes.c_void_p()
    with torch.cuda.device(device):
        _check(library().cublasLtCreate(ctypes.byref(made)))
    return made


@cache
def plan(shape: Shape) -> Plan | None:
    """How to multiply matrices of this shape, found once."""
    try:
        return _plan(shape)
    except RefusedError:
        return None


class RefusedError(Exception):
    """The library does not do it."""


def _plan(shape: Shape) -> Plan:
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
    _give(lib.cublasLtMatmulDescSetAttribute, description, settings)
    layouts = tuple(_layout(lib, *size) for size in _sizes(shape))
    wish = choice(shape) if version() == VERSION else None
    try:
        algorithm = _made(lib, owner, description, layouts, wish) if wish else None
    except RefusedError:
        algorithm = None
    return Plan(
        owner,
        description,
        layouts,
        algorithm or _proposed(lib, owner, description, layouts, shape.alignment),
    )


def choice(shape: Shape) -> Algorithm | None:
    """The fastest of those that were tried on an H200, or None for what the library proposes."""
    if shape.epilogue == WITH_BIAS_AND_GELU:
        return GELU
    if shape.transpose_left:
        return WIDE if shape.rows * shape.columns >= ENOUGH else None
    return SQUARE if shape.inner >= LONG else WIDE


def _made(lib: Any, owner: Any, description: Any, layouts: tuple[Any, ...], wish: Algorithm) -> Any:
    """The algorithm that is wished for, if it will do."""
    algorithm, found = (ctypes.c_uint64 * 8)(), Proposal()
    kinds = SUMS_IN_FLOAT32, FLOAT32, BFLOAT16, BFLOAT16, BFLOAT16, BFLOAT16
    _check(lib.cublasLtMatmulAlgoInit(owner, *kinds, HOPPERS, ctypes.byref(algorithm)))
    settings: dict[int, Any] = {
        TILE: ctypes.c_uint32(wish.tile),
        CUSTOM_OPTION: ctypes.c_uint32(wish.option),
    }
    settings |= {
        STAGES: ctypes.c_uint32(AS_MANY_AS_FIT),
        SPLITS: ctypes.c_int32(1),
        CLUSTER: ctypes.c_uint16(wish.cluster),
    }
    _give(lib.cublasLtMatmulAlgoConfigSetAttribute, ctypes.byref(algorithm), settings)
    matrices = *layouts, layouts[-1]
    _check(
        lib.cublasLtMatmulAlgoCheck(
            owner, description, *matrices, ctypes.byref(algorithm), ctypes.byref(found)
        )
    )
    if found.status or found.workspace > WORKSPACE:
        raise RefusedError
    return algorithm


def _proposed(
    lib: Any, owner: Any, description: Any, layouts: tuple[Any, ...], alignment: int
) -> Any:
    """The library's own first choice."""
    preference, found, count = ctypes.c_void_p(), Proposal(), ctypes.c_int()
    _check(lib.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)))
    settings: dict[int, Any] = {MOST_WORKSPACE: ctypes.c_uint64(WORKSPACE)}
    settings |= {FIRST_ALIGNMENT + matrix: ctypes.c_uint32(alignment) for matrix in range(4)}
    _give(lib.cublasLtMatmulPreferenceSetAttribute, preference, settings)
    where = *layouts, layouts[-1], preference, 1, ctypes.byref(found), ctypes.byref(count)
    _check(lib.cublasLtMatmulAlgoGetHeuristic(owner, description, *where))
    lib.cublasLtMatmulPreferenceDestroy(preference)
    if not count.value or found.status:
        raise RefusedError
    return found.algorithm


def _sizes(shape: Shape) -> list[tuple[int, int]]:
    """(length of a line, lines) of the right matrix, the left one and the product, as they lie."""
    right = (shape.inner, shape.columns) if shape.transpose_right else (shape.columns, shape.inner)
    left = (shape.rows, shape.inner) if shape.transpose_left else (shape.inner, shape.rows)
    return [right, left, (shape.columns, shape.rows)]


def _layout(lib: Any, length: int, lines: int) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    numbers = ctypes.c_uint64(length), ctypes.c_uint64(lines), ctypes.c_int64(length)
    _check(lib.cublasLtMatrixLayoutCreate(ctypes.byref(made), BFLOAT16, *numbers))
    return made


def _give(setter: Any, target: Any, settings: dict[int, Any]) -> None:
    """Set what is to be known of a product, an algorithm or a preference."""
    for name, value in settings.items():
        _check(setter(target, name, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))))


def _check(status: int) -> None:
    if status:
        raise RefusedError(f"cuBLASLt says {status}")
