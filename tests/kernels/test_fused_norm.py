"""Norms and GELU with sums of their own on the way back err no more than torch's in 16 bits; the
truth is float64."""

import copy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from litebert.config import PRESETS
from litebert.kernels import norm as fused_norm
from litebert.kernels.feed_forward import feed_forward
from litebert.model import layers, layout
from litebert.model.encoder import apply_layer
from litebert.model.layers import Attention, FeedForward
from litebert.model.layout import Needed, Packing
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
    found = [
        torch.autograd.grad(out, list(leaves.values()), tangent, retain_graph=True)
        for tangent in tangents
    ]
    return {
        "out": out.detach(),
        **{
            name: torch.cat(each)
            for name, each in zip(leaves, zip(*found, strict=True), strict=True)
        },
    }


def around_a_norm(dtype: torch.dtype, rows: int, width: int, *, fused: bool) -> Outcome:
    """A part that is one linear map, with its norm before and its residual sum; and a bias between
    norm and map."""
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
        around, normed = fused_norm.forked_norm(states, norm, last, before)
        out = around + F.linear(normed + before.detach(), last.weight, last.bias.detach())
    else:
        out = states + last(norm(states) + before)
    return gradients(out, leaves, dtype)


def through_gelu(
    dtype: torch.dtype, rows: int, width: int, *, fused: bool, is_tanh: bool
) -> Outcome:
    """Two linear maps with GELU between."""
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
    whole = max(float(tensor.norm()) for tensor in truth.values())
    return {
        name: float((tensor.double() - truth[name]).norm()) / whole
        for name, tensor in found.items()
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
    assert_errs_no_more(lambda dtype, fused: around_a_norm(dtype, rows, width, fused=fused))


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
        lambda: around_a_norm(HALF, 100, 64, fused=True),
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
    around, normed = fused_norm.forked_norm(states, norm, last)
    of_states, of_bias = torch.autograd.grad(around.sum() + 2 * normed.sum(), [states, last.bias])
    torch.testing.assert_close(
        of_states, torch.ones_like(states), rtol=0, atol=1e-2
    )  # what a norm adds up to stays the same
    assert of_bias.tolist() == [5.0] * 64


def test_torch_takes_them_for_operators_of_its_own() -> None:
    """Schema, and shapes without data: torch's own checks."""
    states, gradient, around = (draw(9, 64, seed=seed, dtype=HALF) for seed in range(3))
    means, scales, weight = (
        torch.zeros(9, 1, device=DEVICE),
        torch.ones(9, 1, device=DEVICE),
        states[0].clone(),
    )
    torch.library.opcheck(
        fused_norm._norm_backward, (gradient, around, states, means, scales, weight)
    )
    torch.library.opcheck(fused_norm.gelu, (states, True))
    torch.library.opcheck(fused_norm.gelu_backward, (gradient, states, True))


# whole layers

LENGTHS = [5, 16, 1, 31]
BOUNDS = torch.tensor([0, *LENGTHS]).cumsum(0).to(DEVICE, torch.int32)
PACKING = Packing(BOUNDS, max(LENGTHS))
COUNTS = [4, 12, 1, 20]
PLACES = torch.cat(
    [first + torch.arange(count) for first, count in zip([0, 5, 21, 22], COUNTS, strict=True)]
)
NEEDED = Needed(
    PLACES[None].to(DEVICE),
    torch.tensor([0, *COUNTS]).cumsum(0).to(DEVICE, torch.int32),
    max(COUNTS),
)
CONFIG = replace(PRESETS["tiny"], hidden_size=64, num_attention_heads=4)


def dense(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    among: Packing | None,
    needed: Needed | None,
    **_: object,
) -> Tensor:
    if among is None:
        return layout._dense(query, key, value, None, 0.0)
    bounds, _longest = layout._of_queries(among, needed)
    same_row = layout._rows(bounds, query.shape[1])[:, None] == layout._rows(
        among.bounds, key.shape[1]
    )
    return layout._dense(query, key, value, same_row, 0.0)


def layer_outcome(
    dtype: torch.dtype, parts: nn.ModuleList, among: Packing | None, needed: Needed | None
) -> Outcome:
    parts = copy.deepcopy(parts).to(dtype)
    states = draw(1, sum(LENGTHS), 64, seed=8, dtype=dtype).requires_grad_()
    leaves = {"states": states, **dict(parts.named_parameters())}
    return gradients(apply_layer(*parts, states, among, needed), leaves, dtype, draws=4)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["gelu_tanh", "gelu_erf", "relu"])
@pytest.mark.parametrize(("among", "needed"), [(None, None), (PACKING, None), (PACKING, NEEDED)])
def test_a_layer_errs_no_more(
    norm: str,
    activation: str,
    among: Packing | None,
    needed: Needed | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    config = replace(CONFIG, norm=norm, activation=activation)  # type: ignore[arg-type]
    parts = nn.ModuleList([Attention(config), FeedForward(config)]).to(DEVICE)
    for parameter in parts.parameters():
        parameter.data = (
            (parameter + 0.1 * torch.randn_like(parameter)).bfloat16().to(parameter.dtype)
        )

    def outcome(dtype: torch.dtype, fused: bool) -> Outcome:
        with monkeypatch.context() as patch:
            patch.setattr(layers, "takes_fused", lambda states: fused)
            if dtype == torch.float64:  # of which a GPU has no attention of packed rows
                patch.setattr(layers, "attention", dense)
            return layer_outcome(dtype, parts, among, needed)

    assert_errs_no_more(outcome, least=1e-3 if HAS_GPU else 1e-4)


def kept(part: nn.Module, states: Tensor, *args: object) -> int:
    """Bytes that are kept for the way back, of what is not there anyway."""
    there = {tensor.untyped_storage().data_ptr() for tensor in (states, *part.parameters())}
    found: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        found.update({} if storage.data_ptr() in there else {storage.data_ptr(): storage.nbytes()})
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = part(states, *args)
    assert out.requires_grad
    return sum(found.values())


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_no_more_is_kept(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a feed-forward part less: GELU's output is not."""
    config, states = (
        replace(CONFIG, norm=norm),
        draw(1, 40, 64, seed=8, dtype=HALF).requires_grad_(),
    )  # type: ignore[arg-type]
    packing = Packing(torch.tensor([0, 40], device=DEVICE, dtype=torch.int32), 40)
    for part, args, less in [
        (Attention(config), (packing,), 0),
        (FeedForward(config), (), config.ffn_size),
    ]:
        part.to(DEVICE, HALF)
        with monkeypatch.context() as patch:
            patch.setattr(layers, "takes_fused", lambda states: False)
            plain = kept(part, states, *args)
            patch.setattr(layers, "takes_fused", lambda states: True)
            statistics = (
                2 * 40 * 4 if norm == "pre" and not HAS_GPU else 0
            )  # which a processor keeps in 16 bits
            assert kept(part, states, *args) <= plain - less * 40 * 2 + statistics


# in a process of its own: what checks shapes under pytest stands in the way of a tracer
PROGRAM = """
import torch
from dataclasses import replace
from torch import nn
from litebert.config import PRESETS
from litebert.model import layers
from litebert.kernels import norm as fused_norm
from litebert.model.encoder import apply_layer
from litebert.model.layers import Attention, FeedForward
from litebert.model.layout import Packing
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.bfloat16 if device == "cuda" else torch.float32
if device == "cpu":
    fused_norm.NORM["programs"] = fused_norm.GELU["programs"] = 2
for norm in ("pre", "post"):
    torch.manual_seed(0)
    config = replace(PRESETS["tiny"], hidden_size=64, num_attention_heads=4, norm=norm)
    parts = nn.ModuleList([Attention(config), FeedForward(config)]).to(device, dtype)
    def gradients(layer, *sizes):
        bounds = torch.tensor([0, *sizes]).cumsum(0).to(device, torch.int32)
        states = torch.linspace(-1, 3, sum(sizes) * 64).sin().view(1, -1, 64).to(device, dtype).requires_grad_()
        torch._dynamo.mark_dynamic(states, 1)
        out = layer(*parts, states, Packing(bounds, 32))
        found = torch.autograd.grad(out.sin().sum(), [states, *parts.parameters()])
        return torch.cat([gradient.flatten() for gradient in found])
    batches = (7, 20, 3), (9, 32, 1)
    layers.takes_fused = lambda states: False
    plain = [gradients(apply_layer, *sizes) for sizes in batches]
    layers.takes_fused = lambda states: True
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    backend = "inductor" if device == "cuda" else "aot_eager"
    compiled = torch.compile(apply_layer, fullgraph=True, backend=backend)
    for sizes, expected in zip(batches, plain):
        for layer in (apply_layer, compiled):
            error = (gradients(layer, *sizes) - expected).norm() / expected.norm()
            assert error <= (3e-2 if device == "cuda" else 1e-5), (norm, sizes, error)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    if device == "cuda":
        graph, expected = torch.cuda.CUDAGraph(), gradients(apply_layer, 9, 32)
        bounds = torch.tensor([0, 9, 41], device=device, dtype=torch.int32)
        states = torch.linspace(-1, 3, 41 * 64).sin().view(1, -1, 64).to(device, dtype).requires_grad_()
        def step():
            out = apply_layer(*parts, states, Packing(bounds, 32))
            return torch.cat([g.flatten() for g in torch.autograd.grad(out.sin().sum(), [states, *parts.parameters()])])
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            recorded = step()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(recorded, expected)
"""


def test_a_compiled_layer_is_the_plain_one() -> None:
    """One graph over a free number of tokens; and on a GPU a recorded pass."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


SPARING = """
import torch
from dataclasses import replace
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from litebert.config import PRESETS
from litebert.model import layers
from litebert.kernels import projection as fused
from litebert.kernels import norm as fused_norm
from litebert.model.encoder import apply_layer
from litebert.model.layout import Packing
from litebert.train.compile import _sparing
fused.takes_fused = layers.takes_fused = lambda states: True
layers.takes_wide = lambda *args, **_: True
fused_norm.NORM["programs"] = fused_norm.GELU["programs"] = 2
config = replace(PRESETS["tiny"], hidden_size=64, num_attention_heads=4, norm="pre", ffn_size=256)
parts = nn.ModuleList([layers.Attention(config), layers.FeedForward(config)])
def operators(graph):
    return sorted(str(node.target).split(".")[1] for node in graph.graph.nodes if "litebert" in str(node.target))
def kept(graph):
    saved = [value.meta["val"] for node in graph.graph.nodes if node.op == "output" for value in node.args[0][1:]]
    return sum(tensor.numel() // (40 * 64) for tensor in saved if isinstance(tensor, torch.Tensor) and 40 in tensor.shape)
for wrap, expected in ((lambda layer: layer, 12), (_sparing, 10)):
    torch._dynamo.reset()
    seen = {}
    backend = aot_autograd(
        fw_compiler=lambda graph, _: seen.update(kept=kept(graph)) or graph,
        bw_compiler=lambda graph, _: seen.update(backward=operators(graph)) or graph,
        partition_fn=min_cut_rematerialization_partition,
    )
    states = torch.randn(1, 40, 64).requires_grad_()
    layer = wrap(torch.compile(apply_layer, fullgraph=True, backend=backend))
    layer(*parts, states, Packing(torch.tensor([0, 8, 40], dtype=torch.int32), 32)).sum().backward()
    assert seen["kept"] == expected, seen
    assert seen["backward"] == sorted(["gelu_backward", "short_attention_backward", *["norm_backward"] * 2, *["product"] * 8])
"""


@pytest.mark.skipif(HAS_GPU, reason="the same there")
def test_where_memory_counts_norms_alone_are_computed_twice() -> None:
    """Of a layer's 12 states 10 are kept then (the inner ones are 4), and no product is on the way
    back that was before."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SPARING], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
