"""Several linear layers by one matmul are the same linear layers, forward and backward, and err no
more."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from litebert.kernels.linear import FusedProjection, bias_gradients, concatenated

WIDTHS = (8, 8, 4)


def apart(states: Tensor, parts: list[nn.Linear]) -> list[Tensor]:
    return [part(states) for part in parts]


def one_product(states: Tensor, parts: list[nn.Linear]) -> list[Tensor]:
    parameters = [parameter for part in parts for parameter in (part.weight, part.bias)]
    return list(FusedProjection.apply(states, *parameters))  # type: ignore[no-untyped-call]


def wide(states: Tensor, parts: list[nn.Linear]) -> list[Tensor]:
    widths = [part.out_features for part in parts]
    outputs = bias_gradients(
        concatenated(states, parts, tuned=True),
        [part.bias for part in parts],
        [0, widths[0], sum(widths[:2])],
    )
    return list(outputs.split(widths, -1))


WAYS = {"fused": one_product, "wide": wide}


def outcome(
    project: Callable[[Tensor, list[nn.Linear]], list[Tensor]], dtype: torch.dtype, *, rows: int = 5
) -> list[Tensor]:
    """Outputs and all gradients, of numbers that bfloat16 can hold."""
    torch.manual_seed(0)
    states = torch.randn(2, rows, 8).bfloat16().to(dtype).requires_grad_()
    parts = [nn.Linear(8, width).bfloat16().to(dtype) for width in WIDTHS]
    outputs = project(states, parts)
    gradients = [torch.randn(output.shape).bfloat16().to(dtype) for output in outputs]
    inputs = [states, *(parameter for part in parts for parameter in part.parameters())]
    actual = torch.autograd.grad(outputs, inputs, gradients)
    return [*(output.detach() for output in outputs), *actual]


@pytest.mark.parametrize("way", WAYS)
def test_maps_in_one_product_equal_the_maps(way: str) -> None:
    for mine, theirs in zip(
        outcome(WAYS[way], torch.float64), outcome(apart, torch.float64), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
def test_maps_in_one_product_err_no_more_in_bfloat16(way: str) -> None:
    truth = outcome(apart, torch.float64, rows=300)

    def errors(project: Callable[[Tensor, list[nn.Linear]], list[Tensor]]) -> list[float]:
        actual = zip(outcome(project, torch.bfloat16, rows=300), truth, strict=True)
        return [float((mine.double() - exact).norm() / exact.norm()) for mine, exact in actual]

    for mine, theirs in zip(errors(WAYS[way]), errors(apart), strict=True):
        assert mine <= 1.1 * theirs
