"""LAMB equals its definition in float64, Google's choices, and pytorch_optimizer's where the
definitions coincide."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from litebert.errors import ConfigError
from litebert.optim.lamb import Lamb

SHAPES = [(7, 5), (5,), (3, 4, 2), (1,)]


def draw(seed: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).mul(0.3).to(dtype) for shape in SHAPES]


def parameters_of(dtype: torch.dtype = torch.float32) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(tensor) for tensor in draw(0, dtype)]


def train(
    optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter], steps: range
) -> None:
    for step in steps:
        for parameter, gradient in zip(parameters, draw(100 + step), strict=True):
            parameter.grad = gradient.to(parameter.dtype)
        optimizer.step()


def by_hand(
    weights: list[np.ndarray],
    gradients: Callable[[int], list[np.ndarray]],
    *,
    steps: int,
    lr: float = 1.76e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
    weight_decay: float = 0.01,
    bias_correction: bool = False,
    clamp: tuple[float, float] | None = None,
    adapt: bool = True,
) -> list[np.ndarray]:
    """The definition, one tensor at a time, in float64."""
    weights = [w.copy() for w in weights]
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    for step in range(steps):
        for w, g, m, v in zip(weights, gradients(step), first, second, strict=True):
            m[...] = betas[0] * m + (1 - betas[0]) * g
            v[...] = betas[1] * v + (1 - betas[1]) * g**2
            correct1, correct2 = (
                1 - beta ** (step + 1) if bias_correction else 1.0 for beta in betas
            )
            u = (m / correct1) / (np.sqrt(v / correct2) + eps) + weight_decay * w
            wn, un = np.linalg.norm(w), np.linalg.norm(u)
            scale = min(max(wn, clamp[0]), clamp[1]) if clamp else wn
            w -= lr * (scale / un if adapt and wn > 0 and un > 0 else 1.0) * u
    return weights


SETTINGS: list[dict[str, Any]] = [
    {},
    {"bias_correction": True},
    {"clamp": (0.5, 0.9), "lr": 0.01},
    {"bias_correction": True, "clamp": (0.0, 10.0), "weight_decay": 0.1},
    {"adapt": False},
    {"adapt": False, "bias_correction": True, "betas": (0.8, 0.98), "eps": 1e-3},
    {"weight_decay": 0.0, "lr": 0.1},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_equals_the_definition_in_float64(settings: dict[str, Any]) -> None:
    truth = by_hand(
        [w.double().numpy() for w in draw(0)],
        lambda step: [g.double().numpy() for g in draw(100 + step)],
        steps=10,
        **settings,
    )
    for dtype, tolerance in ((torch.float64, 1e-13), (torch.float32, 1e-6)):
        parameters = parameters_of(dtype)
        train(Lamb(parameters, **settings), parameters, range(10))
        for ours, theirs in zip(parameters, truth, strict=True):
            np.testing.assert_allclose(
                ours.detach().double().numpy(), theirs, atol=tolerance, rtol=0
            )


def test_first_step_worked_out() -> None:
    """With one gradient, m/√v is (1 − β₁)/√(1 − β₂) = 3.162 in every coordinate, and ‖w‖/‖u‖ takes
    that away again."""
    weight = torch.nn.Parameter(torch.tensor([3.0, 4.0], dtype=torch.float64))
    weight.grad = torch.tensor([1.0, 1.0], dtype=torch.float64)
    Lamb([weight], lr=0.1, eps=0.0, weight_decay=0.0).step()
    assert weight.tolist() == pytest.approx([3 - 0.5 / math.sqrt(2), 4 - 0.5 / math.sqrt(2)])


def test_equals_pytorch_optimizer_where_definitions_coincide() -> None:
    """Where they differ: theirs clamps ‖w‖ at 10 and divides by ‖u‖ + ε, decays outside of u unless
    `weight_decouple=False`, divides the rate by 1 − β₁ᵗ unless `adam_debias`, and exempts nobody by
    name."""
    theirs_module = pytest.importorskip("pytorch_optimizer")
    ours, theirs = parameters_of(), parameters_of()
    train(Lamb(ours, lr=1e-2, clamp=(0.0, 10.0)), ours, range(50))
    settings = {"weight_decay": 0.01, "weight_decouple": False, "adam_debias": True}
    train(theirs_module.Lamb(theirs, lr=1e-2, eps=1e-6, **settings), theirs, range(50))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


def test_without_ratio_and_with_correction_it_is_torch_adamw() -> None:
    ours, theirs = parameters_of(), parameters_of()
    train(Lamb(ours, lr=1e-2, bias_correction=True, adapt=False), ours, range(50))
    train(
        torch.optim.AdamW(theirs, lr=1e-2, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01),
        theirs,
        range(50),
    )
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


@pytest.mark.parametrize("zero", ["weight", "gradient"])
def test_ratio_is_one_where_a_norm_is_zero(zero: str) -> None:
    weight = torch.nn.Parameter(torch.zeros(3) if zero == "weight" else torch.ones(3))
    weight.grad = torch.zeros(3) if zero == "gradient" else torch.ones(3)
    before = weight.detach().clone()
    Lamb([weight], lr=0.1, weight_decay=0.0, clamp=(5.0, 10.0)).step()
    moved = 0.0 if zero == "gradient" else 0.1 * 0.1 / (math.sqrt(0.001) + 1e-6)
    torch.testing.assert_close(before - weight.detach(), torch.full((3,), moved))


def test_scaling_all_gradients_changes_nothing() -> None:
    """LAMB's own law: a step depends on a gradient's direction (eps aside)."""
    one, many = parameters_of(torch.float64), parameters_of(torch.float64)
    for parameters, scale in ((one, 1.0), (many, 1024.0)):
        optimizer = Lamb(parameters, eps=0.0)
        for step in range(5):
            for parameter, gradient in zip(
                parameters, draw(100 + step, torch.float64), strict=True
            ):
                parameter.grad = gradient * scale
            optimizer.step()
    for a, b in zip(one, many, strict=True):
        torch.testing.assert_close(a, b, atol=1e-14, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias_correction", [False, True])
def test_state_dict_round_trip_is_bitwise(dtype: torch.dtype, bias_correction: bool) -> None:
    through, resumed = parameters_of(dtype), parameters_of(dtype)
    full = Lamb(through, bias_correction=bias_correction)
    train(full, through, range(7))
    first = Lamb(resumed, bias_correction=bias_correction)
    train(first, resumed, range(3))
    second = Lamb(resumed, lr=99.0)
    second.load_state_dict(first.state_dict())
    train(second, resumed, range(3, 7))
    for a, b in zip(through, resumed, strict=True):
        assert torch.equal(a, b)
        assert full.state[a].keys() == second.state[b].keys()
        for key, value in full.state[a].items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(second.state[b][key])), key


def test_loaded_state_is_a_copy() -> None:
    parameters = parameters_of()
    first, second = Lamb(parameters), Lamb(parameters)
    train(first, parameters, range(1))
    second.load_state_dict(first.state_dict())
    kept = first.state[parameters[0]]["first"].clone()
    train(second, parameters, range(1, 2))
    assert torch.equal(first.state[parameters[0]]["first"], kept)


def test_bfloat16_parameters_follow_the_float32_run() -> None:
    """A thousand steps far below half a unit in the last place still add up, since the float32 copy
    moves."""
    weight = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    optimizer = Lamb([weight], lr=1e-4, weight_decay=0.0)
    for _ in range(1000):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    state = optimizer.state[weight]
    assert {state[key].dtype for key in ("first", "second", "master")} == {torch.float32}
    assert weight.dtype == torch.bfloat16
    assert weight[0].item() == pytest.approx(math.exp(-0.1), abs=4e-3)


def test_parameters_without_gradient_stay_and_stay_young() -> None:
    parameters = parameters_of()
    optimizer = Lamb(parameters, bias_correction=True)
    late = parameters[0].detach().clone()
    for step in range(3):
        for parameter, gradient in list(zip(parameters, draw(100 + step), strict=True))[1:]:
            parameter.grad = gradient
        optimizer.step()
    assert torch.equal(parameters[0], late)
    assert parameters[0] not in optimizer.state
    alone = torch.nn.Parameter(late.clone())
    parameters[0].grad = alone.grad = draw(5)[0]
    optimizer.step()
    Lamb([alone], bias_correction=True).step()
    torch.testing.assert_close(parameters[0], alone, atol=0, rtol=0)


def test_a_step_never_asks_the_device() -> None:
    """Fake tensors have no values: whatever needs one (`.item()`, a branch on a tensor) raises."""
    with FakeTensorMode():
        parameters = [torch.nn.Parameter(torch.empty(shape)) for shape in SHAPES]
        optimizer = Lamb(parameters, bias_correction=True, clamp=(0.0, 10.0))
        for _ in range(2):
            for parameter in parameters:
                parameter.grad = torch.empty_like(parameter)
            optimizer.step()


def test_closure_gives_the_loss() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = Lamb([weight])

    def closure() -> float:
        loss = (weight**2).sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == 2.0
    assert weight[0] < 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"betas": (0.9, 1.0)}, r"betas are two numbers from 0 to below 1; got \(0\.9, 1\.0\)"),
        ({"lr": -1.0}, r"lr is at least 0; got -1\.0"),
        ({"eps": float("nan")}, "eps is at least 0; got nan"),
        ({"clamp": (2.0, 1.0)}, "clamp is a lower and an upper bound"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Lamb(parameters_of(), **settings)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu_nothing_waits_and_the_result_is_the_cpus(dtype: torch.dtype) -> None:
    here = parameters_of(dtype)
    there = [torch.nn.Parameter(parameter.detach().cuda()) for parameter in here]
    train(Lamb(here, bias_correction=True), here, range(5))
    optimizer = Lamb(there, bias_correction=True)
    for step in range(5):
        for parameter, gradient in zip(there, draw(100 + step), strict=True):
            parameter.grad = gradient.to(parameter.dtype).cuda()
        torch.cuda.set_sync_debug_mode("error")
        try:
            optimizer.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    for a, b in zip(here, there, strict=True):
        torch.testing.assert_close(
            a, b.cpu(), atol=1e-6 if dtype is torch.float32 else 4e-3, rtol=0
        )
