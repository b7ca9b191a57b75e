"""Kernels that round to 8 bits, turn and add up give what torch gives."""

import pytest
import torch

from litebert.kernels.fp8 import linear as fp8
from litebert.kernels.fp8 import rounding as fp8_rounding
from tests.helpers.kernels import (  # skips all of this where kernels cannot run
    DEVICE,
    HAS_GPU,
    quiet,
)

pytestmark = quiet
DTYPE = torch.bfloat16 if HAS_GPU else torch.float32
AS_IT_IS = (fp8.MULTIPLE, fp8.SMALLEST)


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter runs them one after another."""
    if not HAS_GPU:
        monkeypatch.setitem(fp8_rounding.SURVEY, "programs", 3)
        monkeypatch.setitem(fp8_rounding.SURVEY, "rows", 16)


def draw(*shape: int) -> torch.Tensor:
    return (3 * torch.randn(shape, generator=torch.Generator().manual_seed(0))).to(DEVICE, DTYPE)


@pytest.mark.parametrize("dtype", [fp8.FORWARD, fp8.BACKWARD])
@pytest.mark.parametrize("shape", [(16, 16), (37, 48), (300, 80), (40, 1040)])
@pytest.mark.parametrize("adds", [True, False])
def test_both_orders_the_scale_and_the_sums(
    shape: tuple[int, int], dtype: torch.dtype, adds: bool
) -> None:
    numbers = draw(*shape)
    expected, expected_scale = fp8.quantize(fp8.filled(numbers), dtype)
    rounded, turned, scale, sums = fp8_rounding.round_both(
        numbers, dtype == fp8.BACKWARD, *AS_IT_IS, adds
    )
    assert (rounded.dtype, rounded.shape, turned.shape) == (dtype, expected.shape, expected.T.shape)
    assert torch.equal(rounded.float(), turned.float().T)
    torch.testing.assert_close(scale, expected_scale, rtol=1e-6, atol=0)
    assert not rounded[len(numbers) :].float().any()
    apart = (rounded.float() != expected.float()).float().mean()
    assert apart < (
        1e-3 if HAS_GPU else 0.12
    )  # the interpreter forgets to carry where a mantissa is rounded up to 2
    assert sums.shape == ((shape[1],) if adds else (0,))
    if adds:
        torch.testing.assert_close(sums.double(), numbers.double().sum(0), rtol=2**-8, atol=1e-3)


@pytest.mark.skipif(not HAS_GPU, reason="the interpreter's 8-bit numbers have no NaN")
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_seen(bad: float) -> None:
    numbers = draw(32, 32)
    numbers[3, 5] = bad
    for is_gradient in (True, False):
        rounded, turned, *_ = fp8_rounding.round_both(numbers, is_gradient, *AS_IT_IS, False)
        assert rounded.float().isnan().any()
        assert turned.float().isnan().any()


def test_zeros_stay() -> None:
    rounded, *_ = fp8_rounding.round_both(torch.zeros_like(draw(16, 16)), False, *AS_IT_IS, False)
    assert not rounded.float().any()


def test_torch_takes_it_for_an_operator_of_its_own() -> None:
    for adds in (True, False):
        torch.library.opcheck(
            fp8_rounding.round_both,
            (draw(32, 32), False, *AS_IT_IS, adds),
            test_utils=("test_schema", "test_faketensor"),
        )
