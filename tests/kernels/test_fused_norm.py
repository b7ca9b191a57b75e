"""Norms and GELU with sums of their own in the backward pass err no more than torch's in 16 bits;
the truth is float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from litebert.kernels import norm as fused_norm
from litebert.kernels.feed_forward import feed_forward
from tests.helpers.kernels import (  # skips all of this where kernels cannot run
    DEVICE,
    HALF,
    HAS_GPU,
    quiet,
)

pytestmark = quiet
ROWS = [1, 7, 128, 1000]
WIDTHS = [48, 64, 768] if HAS_GPU else [48, 64]
Outcome = dict[str, Tensor]


@pytest.fixture(autouse=True, params=[1, 3] if HAS_GPU else [1])
def on_a_processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter runs programs one after another: few, which then have several blocks of rows
    each."""
    native = torch.native_layer_norm

    def in_float32(states: Tensor, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Means and scales as a GPU gives them: a processor rounds them to the type of the
        states."""
        _, means, scales = native(states.float(), args[0], None, None, args[-1])
        return native(states, *args)[0], means, scales

    if not HAS_GPU:
        monkeypatch.setattr(torch, "native_layer_norm", in_float32)
    for sizes in (fused_norm.NORM, fused_norm.GELU):
        monkeypatch.setitem(sizes, "stages", request.param)
        monkeypatch.setitem(sizes, "programs", sizes["programs"] if HAS_GPU else 3)
        monkeypatch.setitem(sizes, "rows", sizes["rows"] if HAS_GPU else 32)


def draw(*shape: int, seed: int, dtype: torch.dtype, mean: float = 0.0) -> Tensor:
    """Numbers that bfloat16 can hold."""
    numbers = mean + torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return numbers.bfloat16().to(DEVICE, dtype)


def gradients(out: Tensor, leaves: Outcome, dtype: torch.dtype, *, draws: int = 1) -> Outcome:
    """By several random ones of the output: a bias has few numbers, and their error is a matter of
    luck."""
    tangents = [draw(*out.shape, seed=99 + number, dtype=dtype) for number in range(draws)]
    actual = [
        torch.autograd.grad(out, list(leaves.values()), tangent, retain_graph=True)
        for tangent in tangents
    ]
    return {
        "out": out.detach(),
        **{
            name: torch.cat(each)
            for name, each in zip(leaves, zip(*actual, strict=True), strict=True)
        },
    }


def norm_and_skip(dtype: torch.dtype, rows: int, width: int, *, fused: bool) -> Outcome:
    """One linear layer, with its norm before, a bias between them and its residual sum."""
    norm, shape = nn.LayerNorm(width, eps=1e-12).to(DEVICE, dtype), (1, rows, width)
    norm.weight.data, norm.bias.data = (
        draw(width, seed=2, dtype=dtype, mean=1.0),
        draw(width, seed=3, dtype=dtype),
    )
    last, before = nn.Linear(width, width), draw(width, seed=6, dtype=dtype).requires_grad_()
    last.weight = nn.Parameter(draw(width, width, seed=4, dtype=dtype) / 8, requires_grad=False)
    last.bias = nn.Parameter(draw(width, seed=5, dtype=dtype))
    states = draw(*shape, seed=1, dtype=dtype, mean=0.5).requires_grad_()
    leaves = {
        "states": states,
        **dict(norm.named_parameters()),
        "last": last.bias,
        "before": before,
    }
    if fused:
        skip, normed = fused_norm.norm_with_skip(states, norm, last, before)
        out = skip + F.linear(normed + before.detach(), last.weight, last.bias.detach())
    else:
        out = states + last(norm(states) + before)
    return gradients(out, leaves, dtype)


def through_gelu(
    dtype: torch.dtype, rows: int, width: int, *, fused: bool, is_tanh: bool
) -> Outcome:
    """Two linear layers with GELU between."""
    shapes = {
        "states": (1, rows, 16),
        "inner": (width, 16),
        "inner bias": (width,),
        "outer": (16, width),
        "outer bias": (16,),
    }
    leaves = {name: draw(*shape, seed=6, dtype=dtype) for name, shape in shapes.items()}
    leaves = {
        name: (leaf / 4 if name == "outer" else leaf).requires_grad_()
        for name, leaf in leaves.items()
    }
    states, weight, bias, outer, outer_bias = leaves.values()
    added = leaves["added"] = draw(1, rows, 16, seed=7, dtype=dtype).requires_grad_()
    if fused:
        out = feed_forward(states, weight, bias, outer, outer_bias, added, is_tanh=is_tanh)
    else:
        activated = F.gelu(
            F.linear(states, weight, bias), approximate="tanh" if is_tanh else "none"
        )
        out = F.linear(activated, outer, outer_bias) + added
    return gradients(out, leaves, dtype)


def errors(found: Outcome, truth: Outcome) -> dict[str, float]:
    """Beside the whole, since that of a key's bias is nothing but rounding: softmax does not see
    it."""
    full = max(float(tensor.norm()) for tensor in truth.values())
    return {
        name: float((tensor.double() - truth[name]).norm()) / full for name, tensor in found.items()
    }


def assert_errs_no_more(
    outcome: Callable[[torch.dtype, bool], Outcome], *, least: float = 0.0
) -> None:
    """Than torch does, or than the truth itself once it is rounded; below `least` it is luck."""
    truth, plain, mine = outcome(torch.float64, False), outcome(HALF, False), outcome(HALF, True)
    rounded = errors({name: tensor.to(HALF) for name, tensor in truth.items()}, truth)
    theirs = errors(plain, truth)
    ours = errors(mine, truth)
    worse = {
        name: (ours[name], theirs[name])
        for name in truth
        if ours[name] > 1.1 * max(theirs[name], rounded[name], least)
    }
    assert not worse
    assert all(
        tensor.dtype == HALF and tensor.shape == truth[name].shape for name, tensor in mine.items()
    )


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_norm_with_its_sums_errs_no_more(rows: int, width: int) -> None:
    assert_errs_no_more(lambda dtype, fused: norm_and_skip(dtype, rows, width, fused=fused))


@pytest.mark.parametrize("is_tanh", [True, False], ids=["tanh", "erf"])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("width", [48, 2048 + 16])
def test_gelu_with_its_sum_errs_no_more(rows: int, width: int, is_tanh: bool) -> None:
    assert_errs_no_more(
        lambda dtype, fused: through_gelu(dtype, rows, width, fused=fused, is_tanh=is_tanh)
    )


@pytest.mark.parametrize("is_tanh", [True, False], ids=["tanh", "erf"])
def test_gelu_of_every_size(is_tanh: bool) -> None:
    """From numbers that it leaves alone to those that it takes to nothing."""
    states = torch.cat([sign * 2.0 ** torch.arange(-14, 12, 0.125) for sign in (-1, 1)]).to(
        DEVICE, HALF
    )[None]
    exact = F.gelu(states.double(), approximate="tanh" if is_tanh else "none")
    torch.testing.assert_close(
        fused_norm.gelu(states, is_tanh).double(), exact, rtol=2**-8, atol=1e-6
    )
    leaf = states.double().requires_grad_()
    (slope,) = torch.autograd.grad(
        F.gelu(leaf, approximate="tanh" if is_tanh else "none").sum(), leaf
    )
    found, anew, total = fused_norm.gelu_backward(torch.ones_like(states), states, is_tanh)
    torch.testing.assert_close(found.double(), slope, rtol=2**-8, atol=1e-5)
    assert torch.equal(anew, fused_norm.gelu(states, is_tanh))
    assert torch.equal(total[None], found)


def test_the_same_bits_twice() -> None:
    for outcome in (
        lambda: norm_and_skip(HALF, 100, 64, fused=True),
        lambda: through_gelu(HALF, 100, 48, fused=True, is_tanh=True),
    ):
        first, second = outcome(), outcome()
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_gradient_without_strides_is_read_right() -> None:
    """That of a sum is one number, seen from everywhere."""
    norm = nn.LayerNorm(64).to(DEVICE, HALF)
    states, last = (
        draw(5, 64, seed=7, dtype=HALF).requires_grad_(),
        nn.Linear(64, 64).to(DEVICE, HALF),
    )
    skip, normed = fused_norm.norm_with_skip(states, norm, last)
    of_states, of_bias = torch.autograd.grad(skip.sum() + 2 * normed.sum(), [states, last.bias])
    torch.testing.assert_close(
        of_states, torch.ones_like(states), rtol=0, atol=1e-2
    )  # what a norm adds up to stays the same
    assert of_bias.tolist() == [5.0] * 64


def test_torch_takes_them_for_operators_of_its_own() -> None:
    """Schema, and shapes without data: torch's own checks."""
    states, gradient, skip = (draw(9, 64, seed=seed, dtype=HALF) for seed in range(3))
    means, scales, weight = (
        torch.zeros(9, 1, device=DEVICE),
        torch.ones(9, 1, device=DEVICE),
        states[0].clone(),
    )
    torch.library.opcheck(
        fused_norm._norm_backward, (gradient, skip, states, means, scales, weight)
    )
    torch.library.opcheck(fused_norm.gelu, (states, True))
    torch.library.opcheck(fused_norm.gelu_backward, (gradient, states, True))
