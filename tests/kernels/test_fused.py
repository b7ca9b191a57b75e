"""Several linear maps as one product are the same maps, forward and backward, and err no more; and
which parts have sums of their own on the way back."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from litebert.config import PRESETS
from litebert.kernels import projection as fused
from litebert.kernels.projection import FusedProjection, takes_fused, wide_projection, with_biases
from litebert.model import layers
from litebert.model.layers import FeedForward

WIDTHS = (8, 8, 4)


def apart(states: Tensor, parts: list[nn.Linear]) -> list[Tensor]:
    return [part(states) for part in parts]


def one_product(states: Tensor, parts: list[nn.Linear]) -> list[Tensor]:
    parameters = [parameter for part in parts for parameter in (part.weight, part.bias)]
    return list(FusedProjection.apply(states, *parameters))  # type: ignore[no-untyped-call]


def wide(states: Tensor, parts: list[nn.Linear]) -> list[Tensor]:
    widths = [part.out_features for part in parts]
    outputs = with_biases(
        wide_projection(states, parts),
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
    found = torch.autograd.grad(outputs, inputs, gradients)
    return [*(output.detach() for output in outputs), *found]


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
        found = zip(outcome(project, torch.bfloat16, rows=300), truth, strict=True)
        return [float((mine.double() - exact).norm() / exact.norm()) for mine, exact in found]

    for mine, theirs in zip(errors(WAYS[way]), errors(apart), strict=True):
        assert mine <= 1.1 * theirs


@pytest.mark.parametrize(
    ("changes", "width", "dtype", "device", "is_taken"),
    [
        ({}, 768, torch.bfloat16, "cuda", True),
        ({"FUSED_NORMS": False}, 768, torch.bfloat16, "cuda", False),
        ({"has_short_kernels": lambda: False}, 768, torch.bfloat16, "cuda", False),
        ({}, 768, torch.bfloat16, "cpu", False),
        ({}, 768, torch.float32, "cuda", False),
        ({}, 760, torch.bfloat16, "cuda", False),
        ({}, 8192, torch.bfloat16, "cuda", False),
    ],
)
def test_which_states_are_fused(
    changes: dict[str, Any],
    width: int,
    dtype: torch.dtype,
    device: str,
    is_taken: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in ({"FUSED_NORMS": True, "has_short_kernels": lambda: True} | changes).items():
        monkeypatch.setattr(fused, name, value)
    with FakeTensorMode():
        states = torch.empty(2, 3, width, dtype=dtype, device=device)
        assert takes_fused(states) is is_taken
        with torch.no_grad():
            assert not takes_fused(states)


@pytest.mark.parametrize(
    ("changes", "is_fp8", "expected"),
    [
        ({}, False, ["forked", "GELU"]),
        ({"norm": "post"}, False, ["GELU"]),
        ({"ffn_dropout": 0.1}, False, ["GELU"]),
        ({"activation": "relu"}, False, ["forked"]),
        ({}, True, ["forked"]),
    ],
)
def test_each_is_for_its_parts_alone(
    changes: dict[str, Any], is_fp8: bool, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []

    def forked(norm: nn.Module, part: Any, states: Tensor, *_: Any) -> Tensor:
        used.append("forked")
        summed: Tensor = part(norm(states), states)
        return summed

    def gelu(part: FeedForward, states: Tensor, _: Tensor, around: Tensor | None = None) -> Tensor:
        used.append("GELU")
        (outer,) = part.linear(part.activated(states), "outer")
        return outer if around is None else outer + around

    torch.manual_seed(0)
    part = FeedForward(replace(PRESETS["tiny"], **{"norm": "pre", **changes})).eval()
    if is_fp8:
        part.quantize()
    states = torch.randn(1, 16, PRESETS["tiny"].hidden_size)
    plain = part(states)
    monkeypatch.setattr(layers, "takes_fused", lambda states: True)
    monkeypatch.setattr(layers, "forked_pre_norm", forked)
    monkeypatch.setattr(FeedForward, "fused", gelu)
    torch.testing.assert_close(part(states), plain, rtol=1e-6, atol=1e-6)
    assert used == expected
