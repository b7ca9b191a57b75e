"""Matmuls by an algorithm of our choice equal torch's, forward and backward, whoever multiplies.

Without a GPU a library in Python stands in for NVIDIA's: it knows the same calls, and reads and
writes the same memory.
"""

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from litebert.kernels import cublaslt as lt
from litebert.kernels import linear as linear_module
from litebert.kernels.linear import linear, matmul

HAS_GPU = torch.cuda.is_available()
needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
TRANSPOSES = [(False, False), (False, True), (True, False), (True, True)]
ROWS, INNER, COLUMNS = 40, 24, 16
PROPOSED = (0, 0, 0)
"""The algorithm that a library in Python proposes."""


def draw(
    *shape: int, seed: int = 0, dtype: torch.dtype = torch.float64, device: str = "cpu"
) -> Tensor:
    """Numbers that bfloat16 can hold."""
    return (
        torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        .bfloat16()
        .to(device, dtype)
    )


def factors(
    transpose_left: bool, transpose_right: bool, **settings: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Two matrices as they are stored, and their matmul."""
    left, right = draw(ROWS, INNER, seed=1, **settings), draw(INNER, COLUMNS, seed=2, **settings)
    stored = [
        (each.mT if is_transposed else each).contiguous()
        for each, is_transposed in ((left, transpose_left), (right, transpose_right))
    ]
    return stored[0], stored[1], left.double() @ right.double()


@pytest.mark.parametrize(("transpose_left", "transpose_right"), TRANSPOSES)
def test_either_factor_may_be_transposed(transpose_left: bool, transpose_right: bool) -> None:
    left, right, expected = factors(transpose_left, transpose_right)
    bias = draw(COLUMNS, seed=3)
    actual = matmul(
        left, right, bias, transpose_left=transpose_left, transpose_right=transpose_right
    )
    torch.testing.assert_close(actual, expected + bias, rtol=0, atol=1e-12)
    added = draw(ROWS, COLUMNS, seed=4)
    actual = matmul(
        left,
        right,
        None,
        added.clone(),
        transpose_left=transpose_left,
        transpose_right=transpose_right,
    )
    torch.testing.assert_close(actual, expected + added, rtol=0, atol=1e-12)
    assert torch.equal(
        matmul(left, right, transpose_left=transpose_left, transpose_right=transpose_right),
        expected,
    )


@pytest.mark.parametrize("wants_bias", [True, False])
@pytest.mark.parametrize("adds", [True, False])
def test_a_linear_layer_is_that_of_torch(wants_bias: bool, adds: bool) -> None:
    states, weight, bias = draw(2, 5, 6, seed=1), draw(3, 6, seed=2), draw(3, seed=3)
    leaves = [
        leaf.requires_grad_()
        for leaf in ([states, weight, bias] if wants_bias else [states, weight])
    ]
    ours, theirs = linear(states, weight, bias), F.linear(states, weight, bias)
    added = draw(2, 5, 3, seed=4).requires_grad_()
    if adds:
        leaves, ours, theirs = [*leaves, added], linear(states, weight, bias, added), theirs + added
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    for mine, other in zip(
        *(torch.autograd.grad(out.sin().sum(), leaves) for out in (ours, theirs)), strict=True
    ):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)


def test_torch_takes_it_for_an_operator_of_its_own() -> None:
    """Schema, shapes without data, and what it costs: torch's own checks."""
    left, right, _ = factors(False, True)
    torch.library.opcheck(linear_module._matmul, (left, right, None, None, False, True, True))
    torch.library.opcheck(
        linear_module._matmul, (left, right, None, draw(ROWS, COLUMNS), False, True, True)
    )
    for transpose_left, transpose_right in TRANSPOSES:
        left, right, _ = factors(transpose_left, transpose_right)
        with FlopCounterMode(display=False) as counter:
            matmul(left, right, transpose_left=transpose_left, transpose_right=transpose_right)
        assert counter.get_total_flops() == 2 * ROWS * INNER * COLUMNS


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, lt.WIDE),
        ({"epilogue": lt.WITH_BIAS}, lt.WIDE),
        ({"inner": 3072}, lt.SQUARE),
        ({"epilogue": lt.WITH_BIAS_AND_GELU}, lt.GELU),
        ({"transpose_left": True, "rows": 3072, "columns": 768}, None),
        ({"transpose_left": True, "rows": 4096, "columns": 4096}, lt.WIDE),
    ],
)
def test_what_decides_is_the_shape(changes: dict[str, Any], expected: lt.Algorithm | None) -> None:
    shape = lt.Shape(0, 100_000, 768, 768, False, False, lt.PLAIN, 256)
    assert lt.choice(shape._replace(**changes)) == expected


def memory(address: Any, numbers: int) -> Tensor:
    return torch.frombuffer(
        (ctypes.c_char * (2 * numbers)).from_address(address.value), dtype=torch.bfloat16
    )


class StandIn:
    """cuBLASLt's calls in Python, on a CPU's memory: columns come first, as in the library."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self.status: dict[str, int] = {}
        """Of calls that fail."""
        self.multiplied: list[tuple[int, ...]] = []
        """Tile, custom option and cluster of the algorithms that were used."""

    def cublasLtGetVersion(self) -> int:  # noqa: N802
        return 130_100

    def keep(self, where: Any, thing: Any) -> int:
        self.objects.append(thing)
        where._obj.value = len(self.objects)
        return 0

    def cublasLtCreate(self, where: Any) -> int:  # noqa: N802
        return self.keep(where, "handle")

    def cublasLtMatmulDescCreate(self, where: Any, compute: int, scale: int) -> int:  # noqa: N802
        assert (compute, scale) == (lt.SUMS_IN_FLOAT32, lt.FLOAT32)
        return self.keep(where, {})

    def cublasLtMatmulPreferenceCreate(self, where: Any) -> int:  # noqa: N802
        return self.keep(where, {})

    def cublasLtMatmulPreferenceDestroy(self, _: Any) -> int:  # noqa: N802
        return 0

    def cublasLtMatrixLayoutCreate(  # noqa: N802
        self, where: Any, kind: int, rows: Any, columns: Any, stride: Any
    ) -> int:
        assert (kind, stride.value) == (lt.BFLOAT16, rows.value)
        return self.keep(where, (rows.value, columns.value))

    def cublasLtMatmulDescSetAttribute(  # noqa: N802
        self, description: Any, name: int, value: Any, size: Any
    ) -> int:
        assert ctypes.sizeof(value._obj) == size.value
        self.objects[description.value - 1][name] = value._obj
        return 0

    cublasLtMatmulPreferenceSetAttribute = cublasLtMatmulDescSetAttribute  # noqa: N815

    def cublasLtMatmulAlgoInit(self, *args: Any) -> int:  # noqa: N802
        assert args[1:-1] == (lt.SUMS_IN_FLOAT32, lt.FLOAT32, *[lt.BFLOAT16] * 4, lt.HOPPERS)
        return 0

    def cublasLtMatmulAlgoConfigSetAttribute(  # noqa: N802
        self, algorithm: Any, name: int, value: Any, size: Any
    ) -> int:
        assert ctypes.sizeof(value._obj) == size.value
        indices = {lt.TILE: 0, lt.CUSTOM_OPTION: 1, lt.CLUSTER: 2}
        if name in indices:
            algorithm._obj[indices[name]] = value._obj.value
        return 0

    def cublasLtMatmulAlgoCheck(self, *args: Any) -> int:  # noqa: N802
        return self.status.get("check", 0)

    def cublasLtMatmulAlgoGetHeuristic(self, *args: Any) -> int:  # noqa: N802
        args[-1]._obj.value = 1
        return self.status.get("heuristic", 0)

    def cublasLtMatmul(self, _: Any, description: Any, *args: Any) -> int:  # noqa: N802
        alpha, a, of_a, b, of_b, beta, c, of_c, d, of_d, algorithm, *_rest = args
        assert alpha._obj.value == 1
        assert beta._obj.value == (c.value != d.value)
        about = self.objects[description.value - 1]

        def matrix(address: Any, layout: Any) -> Tensor:
            rows, columns = self.objects[layout.value - 1]
            return memory(address, rows * columns).view(columns, rows).mT

        left, right, out = matrix(a, of_a), matrix(b, of_b), matrix(d, of_d)
        left, right = (
            each.mT if about[name].value else each
            for name, each in ((lt.TRANSPOSE_A, left), (lt.TRANSPOSE_B, right))
        )
        actual = left.double() @ right.double()
        if beta._obj.value:
            actual += matrix(c, of_c).double()
        if lt.BIAS in about:
            actual += memory(about[lt.BIAS], len(actual)).double()[:, None]
        if lt.AUX in about:
            assert about[lt.AUX_STRIDE].value == len(actual)
            memory(about[lt.AUX], actual.numel()).copy_(actual.mT.flatten())
            actual = F.gelu(actual, approximate="tanh")
        if "multiply" not in self.status:
            out.copy_(actual)
            self.multiplied.append(tuple(algorithm._obj[:3]))
        return self.status.get("multiply", 0)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """In place of the library; a CPU has no streams and no devices."""
    library = StandIn()
    for name in ("version", "handle", "plan"):
        monkeypatch.setattr(lt, name, getattr(lt, name).__wrapped__)
    monkeypatch.setattr(lt, "library", lambda: library)
    monkeypatch.setattr(lt, "handle", lambda device: ctypes.c_void_p(1))
    monkeypatch.setattr(linear_module, "suits_cublaslt", lambda *args: True)
    monkeypatch.setattr("torch.cuda.current_stream", lambda device: SimpleNamespace(cuda_stream=0))
    return library


@pytest.mark.skipif(HAS_GPU, reason="there the library itself is")
@pytest.mark.parametrize(("transpose_left", "transpose_right"), TRANSPOSES)
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("adds", [True, False])
def test_the_library_gets_the_right_arguments(
    stand_in: StandIn, transpose_left: bool, transpose_right: bool, has_bias: bool, adds: bool
) -> None:
    left, right, expected = factors(transpose_left, transpose_right, dtype=torch.bfloat16)
    bias = draw(COLUMNS, seed=3, dtype=torch.bfloat16) if has_bias else None
    added = draw(ROWS, COLUMNS, seed=4, dtype=torch.bfloat16) if adds else None
    actual = matmul(
        left, right, bias, added, transpose_left=transpose_left, transpose_right=transpose_right
    )
    exact = sum((each.double() for each in (bias, added) if each is not None), start=expected)
    assert torch.equal(actual, exact.bfloat16())
    assert stand_in.multiplied == [PROPOSED if transpose_left else lt.WIDE]


@pytest.mark.skipif(HAS_GPU, reason="there the library itself is")
def test_gelu_and_its_input_come_from_one_matmul(stand_in: StandIn) -> None:
    left, right, expected = factors(False, True, dtype=torch.bfloat16)
    bias = draw(COLUMNS, seed=3, dtype=torch.bfloat16)
    before, out = torch.empty(2, ROWS, COLUMNS, dtype=torch.bfloat16)
    assert lt.multiply(out, left, right, bias, gelu_input=before, transpose_right=True)
    exact = expected + bias.double()
    assert torch.equal(before, exact.bfloat16())
    assert torch.equal(out, F.gelu(exact, approximate="tanh").bfloat16())
    assert stand_in.multiplied == [lt.GELU]


@pytest.mark.skipif(HAS_GPU, reason="there the library itself is")
@pytest.mark.parametrize("fault", ["it will not do", "another version"])
def test_the_proposal_is_taken_where_our_choiceis_none(
    stand_in: StandIn, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "another version":
        monkeypatch.setattr(lt, "version", lambda: 99)
    else:
        stand_in.status = {"check": 15}
    left, right, expected = factors(False, False, dtype=torch.bfloat16)
    assert torch.equal(matmul(left, right), expected.bfloat16())
    assert stand_in.multiplied == [PROPOSED]


@pytest.mark.skipif(HAS_GPU, reason="there the library itself is")
@pytest.mark.parametrize("fault", ["no algorithm", "it fails", "no library"])
def test_torch_multiplies_where_the_library_does_not(
    stand_in: StandIn, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.status = {
        "no algorithm": {"check": 15, "heuristic": 15},
        "it fails": {"multiply": 14},
    }.get(fault, {})
    if fault == "no library":
        monkeypatch.setattr(lt, "library", lambda: None)
    left, right, expected = factors(False, False, dtype=torch.bfloat16)
    assert torch.equal(matmul(left, right), expected.bfloat16())
    assert stand_in.multiplied == []


@pytest.mark.skipif(HAS_GPU, reason="there the library itself is")
def test_memory_that_begins_anywhere_is_left_to_torch(stand_in: StandIn) -> None:
    left, right, expected = factors(False, False, dtype=torch.bfloat16)
    odd = torch.empty(left.numel() + 1, dtype=torch.bfloat16)[1:].view_as(left).copy_(left)
    assert torch.equal(matmul(odd, right), expected.bfloat16())
    assert stand_in.multiplied == []


def test_few_tokens_and_other_arithmetic_are_left_to_torch() -> None:
    assert not linear_module.suits_cublaslt(
        torch.empty(linear_module.LEAST_TOKENS, 8, dtype=torch.bfloat16), 8
    ), "on a processor"
    if HAS_GPU:
        many = torch.empty(linear_module.LEAST_TOKENS, 8, dtype=torch.bfloat16, device="cuda")
        assert linear_module.suits_cublaslt(many, 8, 16)
        assert not linear_module.suits_cublaslt(many[1:], 8)
        assert not linear_module.suits_cublaslt(many.float(), 8)
        assert not linear_module.suits_cublaslt(many, 8, 12)


# on a GPU: the library itself


def relative(actual: Tensor, exact: Tensor) -> float:
    return float((actual.double() - exact).norm() / exact.norm())


def plainly(states: Tensor, weight: Tensor, bias: Tensor, added: Tensor | None = None) -> Tensor:
    mapped = F.linear(states, weight, bias)
    return mapped if added is None else mapped + added


@needs_gpu
@pytest.mark.parametrize("rows", [8192, 8192 + 264])
@pytest.mark.parametrize(
    ("inputs", "outputs"), [(768, 2304), (768, 768), (768, 3072), (3072, 768), (64, 136)]
)
@pytest.mark.parametrize("adds", [True, False])
def test_each_matmul_errs_no_more_than_torch(
    rows: int, inputs: int, outputs: int, adds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"dtype": torch.bfloat16, "device": "cuda"}
    states, weight = (
        draw(1, rows, inputs, seed=1, **settings),
        draw(outputs, inputs, seed=2, **settings) / inputs**0.5,
    )
    bias, gradient = draw(outputs, seed=3, **settings), draw(1, rows, outputs, seed=4, **settings)
    others = [draw(1, rows, outputs, seed=5, **settings)] if adds else []

    def outcome(dtype: torch.dtype, way: Any) -> list[Tensor]:
        leaves = [leaf.to(dtype).requires_grad_() for leaf in (states, weight, bias, *others)]
        out = way(*leaves)
        return [out.detach(), *torch.autograd.grad(out, leaves, gradient.to(dtype))]

    calls: list[bool] = []
    multiply = lt.multiply
    monkeypatch.setattr(
        lt, "multiply", lambda *args, **how: calls.append(multiply(*args, **how)) or calls[-1]
    )
    exact, theirs = outcome(torch.float64, plainly), outcome(torch.bfloat16, plainly)
    ours = outcome(torch.bfloat16, linear)
    assert calls == [True] * 3
    for mine, other, truth in zip(ours, theirs, exact, strict=True):
        assert relative(mine, truth) <= 1.1 * relative(other, truth)


@pytest.mark.skipif(
    not HAS_GPU or torch.cuda.get_device_capability()[0] != 9, reason="needs a Hopper GPU"
)
@pytest.mark.parametrize("size", [768, 1024, 4096])
def test_our_choicewill_do(size: int) -> None:
    if lt.version() != lt.VERSION:
        pytest.skip(f"the algorithms of version {lt.VERSION} are known, and this is {lt.version()}")
    for columns, inner in ((3 * size, size), (size, size), (4 * size, size), (size, 4 * size)):
        shape = lt.Shape(0, 8192 + 256, columns, inner, False, False, lt.PLAIN, 256)
        kinds = [{"epilogue": lt.WITH_BIAS, "transpose_right": True}, {}]
        kinds += (
            [{"epilogue": lt.WITH_BIAS_AND_GELU, "transpose_right": True}]
            if columns == 4 * size
            else []
        )
        kinds += (
            [{"rows": inner, "inner": 8192, "transpose_left": True}]
            if inner * columns >= lt.ENOUGH
            else []
        )
        for changes in kinds:
            changed = shape._replace(**changes)
            plan, choice = lt._plan(changed), lt.choice(changed)
            assert choice is not None
            assert bytes(plan.algorithm) == bytes(
                lt._chosen_algorithm(
                    lt.library(), plan.handle, plan.description, plan.layouts, choice
                )
            )


@needs_gpu
@pytest.mark.parametrize("width", [768, 4096])
def test_gelu_in_a_matmul_errs_no_more_than_after_it(width: int) -> None:
    from litebert.kernels.feed_forward import _matmul_gelu

    settings: dict[str, Any] = {"dtype": torch.bfloat16, "device": "cuda"}
    states, weight = (
        draw(8192, width, seed=1, **settings),
        2 * draw(4 * width, width, seed=2, **settings) / width**0.5,
    )
    bias = draw(4 * width, seed=3, **settings)
    before, out = _matmul_gelu(states, weight, bias, True, True)
    exact = F.linear(states.double(), weight.double(), bias.double())
    plain = F.linear(states, weight, bias)
    assert relative(before, exact) <= 1.1 * relative(plain, exact)
    truth = F.gelu(exact, approximate="tanh")
    assert relative(out, truth) <= 1.1 * relative(F.gelu(plain, approximate="tanh"), truth)


@needs_gpu
def test_a_recorded_matmul_is_the_same() -> None:
    settings: dict[str, Any] = {"dtype": torch.bfloat16, "device": "cuda"}
    left, right = draw(8192, 768, seed=1, **settings), draw(768, 768, seed=2, **settings)
    expected, graph = matmul(left, right), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        recorded = matmul(left, right)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(recorded, expected)
