"""The fast layer computes what the plain layer does, values and gradients, whichever families are
on: it errs no more than the plain layer in the same dtype; the truth is float64.

On a GPU in bfloat16, or in Triton's interpreter (TRITON_INTERPRET=1 before the start).
"""

import copy
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from litebert.config import PRESETS
from litebert.kernels import layer as layer_module
from litebert.kernels import norm as norm_kernels
from litebert.kernels.fp8.linear import quantize_layer
from litebert.kernels.gate import Gate
from litebert.model.layers import Attention, FeedForward, apply_layer
from litebert.model.positions import Needed, Packing, Rotation
from tests.helpers.kernels import (  # skips all of this where kernels cannot run
    DEVICE,
    HALF,
    HAS_GPU,
    quiet,
)

pytestmark = quiet
CONFIG = replace(PRESETS["tiny"], hidden_size=64, num_attention_heads=4)
ALL = Gate(
    attention=True, norm=True, linear=True, feed_forward=True, cross_entropy=True, fp8=HAS_GPU,
    varlen=HAS_GPU,
)  # fmt: skip
ALONE = {
    name: Gate(**{name: True, "varlen": HAS_GPU})  # type: ignore[arg-type]
    for name in ("attention", "norm", "linear", "feed_forward")
}
WITHOUT = {f"without {name}": replace(ALL, **{name: False}) for name in ALONE}
LENGTHS, COUNTS = [5, 16, 1, 31], [4, 12, 1, 20]
Outcome = dict[str, Tensor]


def bounds_of(sizes: list[int]) -> Tensor:
    return torch.tensor([0, *sizes]).cumsum(0).to(DEVICE, torch.int32)


PACKING = Packing(bounds_of(LENGTHS), max(LENGTHS))
POSITIONS = torch.cat(
    [first + torch.arange(count) for first, count in zip([0, 5, 21, 22], COUNTS, strict=True)]
)
NEEDED = Needed(POSITIONS[None].to(DEVICE), bounds_of(COUNTS), max(COUNTS))
INPUTS = {"padded": (None, None), "packed": (PACKING, None), "needed": (PACKING, NEEDED)}
PLACES = torch.cat([torch.arange(count) for count in LENGTHS])[None].to(DEVICE)
ROTARY = replace(CONFIG, num_attention_heads=2, positions="rotary", rotary_base=100.0)


@pytest.fixture(autouse=True)
def on_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter runs programs one after another: a few suffice. A CPU rounds the statistics
    of a norm to the states' dtype; a GPU does not."""
    if HAS_GPU:
        return
    native = torch.native_layer_norm

    def in_float32(states: Tensor, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
        _, means, scales = native(states.float(), args[0], None, None, args[-1])
        return native(states, *args)[0], means, scales

    monkeypatch.setattr(torch, "native_layer_norm", in_float32)
    for sizes in (norm_kernels.NORM, norm_kernels.GELU):
        monkeypatch.setitem(sizes, "programs", 3)
        monkeypatch.setitem(sizes, "rows", 32)


def draw(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    """Numbers that bfloat16 can hold."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return numbers.bfloat16().to(DEVICE, dtype)


def make(**changes: Any) -> nn.ModuleList:
    torch.manual_seed(0)
    config = replace(CONFIG, **changes)
    parts = nn.ModuleList([Attention(config), FeedForward(config)]).to(DEVICE)
    for parameter in parts.parameters():
        parameter.data = (
            (parameter + 0.1 * torch.randn_like(parameter)).bfloat16().to(parameter.dtype)
        )
    return parts


def outcome(
    layer: Any,
    parts: nn.ModuleList,
    dtype: torch.dtype,
    inputs: str,
    *,
    draws: int = 4,
    rotates: bool = False,
) -> Outcome:
    """The output, and the gradients of states and parameters, for several random gradients of the
    output: a bias has few numbers, and their error is a matter of luck."""
    parts = copy.deepcopy(parts).to(dtype)
    states = draw(1, sum(LENGTHS), 64, seed=8, dtype=dtype).requires_grad_()
    leaves = {"states": states, **dict(parts.named_parameters())}
    rotate = Rotation.of(ROTARY, states, PLACES, PACKING) if rotates else None
    out = layer(*parts, states, *INPUTS[inputs], rotate)
    gradients = [
        torch.autograd.grad(
            out,
            list(leaves.values()),
            draw(*out.shape, seed=99 + number, dtype=dtype),
            retain_graph=True,
        )
        for number in range(draws)
    ]
    return {"out": out.detach()} | {
        name: torch.cat(each)
        for name, each in zip(leaves, zip(*gradients, strict=True), strict=True)
    }


def errors(outcome: Outcome, truth: Outcome) -> dict[str, float]:
    """Relative to the largest gradient, since that of a key's bias is nothing but rounding: softmax
    does not see it."""
    scale = max(float(tensor.norm()) for tensor in truth.values())
    return {
        name: float((tensor.double() - truth[name]).norm()) / scale
        for name, tensor in outcome.items()
    }


def assert_errs_no_more(
    gate: Gate, parts: nn.ModuleList, inputs: str, *, rotates: bool = False
) -> Outcome:
    """Than the plain layer, or than the truth itself once it is rounded; below `least` it is
    luck."""
    truth, plain, fast = (
        outcome(layer, parts, dtype, inputs, rotates=rotates, draws=8 if rotates else 4)
        for layer, dtype in (
            (apply_layer, torch.float64),
            (apply_layer, HALF),
            (gate.layer(), HALF),
        )
    )
    rounded = {name: tensor.to(HALF) for name, tensor in truth.items()}
    least = 1e-3 if HAS_GPU else 2e-4
    ours, theirs, best = (errors(each, truth) for each in (fast, plain, rounded))
    worse = {
        name: (ours[name], theirs[name])
        for name in truth
        if ours[name] > 1.1 * max(theirs[name], best[name], least)
    }
    assert not worse
    assert all(tensor.dtype == HALF for tensor in fast.values())
    return fast


@pytest.mark.parametrize(
    ("norm", "activation", "inputs"),
    [
        *(("pre", "gelu_tanh", inputs) for inputs in INPUTS),
        ("post", "gelu_tanh", "needed"),
        ("pre", "gelu_erf", "packed"),
        ("post", "relu", "packed"),
        ("pre", "relu", "needed"),
    ],
)
def test_all_families_err_no_more_than_the_plain_layer(
    norm: str, activation: str, inputs: str
) -> None:
    gate = replace(ALL, norm=norm == "pre", feed_forward=activation != "relu")
    assert_errs_no_more(gate, make(norm=norm, activation=activation), inputs)


@pytest.mark.parametrize("gate", [*ALONE.items(), *WITHOUT.items()], ids=lambda item: item[0])
def test_each_family_alone_and_each_left_out(gate: tuple[str, Gate]) -> None:
    assert_errs_no_more(gate[1], make(norm="pre"), "needed")


@pytest.mark.parametrize(
    ("gate", "inputs"),
    [
        *((ALL, inputs) for inputs in INPUTS),
        *((gate, "needed") for gate in (Gate(varlen=HAS_GPU), *ALONE.values())),
    ],
    ids=[*INPUTS, "no kernels", *ALONE],
)
def test_rotary_positions_with_each_family(gate: Gate, inputs: str) -> None:
    """The key's bias has a gradient then: rotated, it is another constant for each key."""
    parts = make(norm="pre", num_attention_heads=2, positions="rotary")
    fast = assert_errs_no_more(gate, parts, inputs, rotates=True)
    assert fast["0.key.bias"].norm() > 0.01 * fast["0.query.bias"].norm()


def test_rotary_positions_in_post_norm_and_in_long_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = make(norm="post", num_attention_heads=2, positions="rotary")
    gate = replace(ALL, norm=False)
    assert_errs_no_more(gate, parts, "needed", rotates=True)
    monkeypatch.setattr(layer_module, "SHORT", 8)
    for inputs in ("packed", "needed"):
        assert_errs_no_more(gate, parts, inputs, rotates=True)


@pytest.mark.parametrize(
    "changes", [{"attention_output_dropout": 0.3}, {"ffn_dropout": 0.3}, {"attention_dropout": 0.3}]
)
def test_dropout_leaves_the_fused_paths_exact(changes: dict[str, float]) -> None:
    """In evaluation nothing is dropped, but a Dropout module keeps the residual apart."""
    assert_errs_no_more(ALL, make(norm="pre", **changes).eval(), "packed")


def test_attention_weights_are_dropped_in_training_alone() -> None:
    parts, gate = make(norm="pre", attention_dropout=0.3), ALL
    layer = gate.layer()
    states = draw(1, sum(LENGTHS), 64, seed=8, dtype=HALF)
    parts.to(HALF)
    first, second = (layer(*parts, states, PACKING) for _ in range(2))
    assert not torch.equal(first, second)
    parts.eval()
    first, second = (layer(*parts, states, PACKING) for _ in range(2))
    assert torch.equal(first, second)


def test_without_gradients_the_result_is_the_same() -> None:
    parts = make(norm="pre").to(HALF)
    states = draw(1, sum(LENGTHS), 64, seed=8, dtype=HALF)
    trained = ALL.layer()(*parts, states, PACKING, NEEDED)
    with torch.no_grad():
        predicted = ALL.layer()(*parts, states, PACKING, NEEDED)
    torch.testing.assert_close(predicted, trained.detach(), rtol=2e-2, atol=2e-2)


def test_a_keys_bias_has_no_gradient() -> None:
    parts = make(norm="pre").to(HALF)
    out = ALL.layer()(*parts, draw(1, sum(LENGTHS), 64, seed=8, dtype=HALF), PACKING)
    (gradient,) = torch.autograd.grad(out.sin().sum(), [parts[0].key.bias])
    assert not gradient.any()


@pytest.mark.skipif(HAS_GPU, reason="the same there, where test_gpu_fp8.py measures it")
@pytest.mark.parametrize(
    ("inputs", "rotates"), [*((inputs, False) for inputs in INPUTS), ("needed", True)]
)
def test_quantized_layers_may_be_fused_too(inputs: str, rotates: bool) -> None:
    """8-bit matmuls make the error of every gradient; the fused paths add none to it."""

    def quantized(gate: Gate) -> Outcome:
        parts = make(norm="pre", num_attention_heads=2 if rotates else 4)
        for part in parts:
            quantize_layer(part)  # type: ignore[arg-type]
        layer = replace(gate, quantizes=True).layer()
        states = draw(1, sum(LENGTHS), 64, seed=8, dtype=torch.float32).requires_grad_()
        leaves = {"states": states, **dict(parts.named_parameters())}
        rotate = Rotation.of(ROTARY, states, PLACES, PACKING) if rotates else None
        out = layer(*parts, states, *INPUTS[inputs], rotate)
        gradients = torch.autograd.grad(out.sin().sum(), list(leaves.values()))
        return {"out": out.detach(), **dict(zip(leaves, gradients, strict=True))}

    split = {name: tensor.double() for name, tensor in quantized(Gate()).items()}
    fused = errors(quantized(replace(ALL, norm=False)), split)
    assert all(error < 1e-5 for error in fused.values()), fused


def saved_bytes(layer: Any, parts: nn.ModuleList, states: Tensor) -> int:
    """Bytes saved for backward, less what is there anyway."""
    there = {tensor.untyped_storage().data_ptr() for tensor in (states, *parts.parameters())}
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved.update({} if storage.data_ptr() in there else {storage.data_ptr(): storage.nbytes()})
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        assert layer(*parts, states, Packing(bounds_of([40]), 40)).requires_grad
    return sum(saved.values())


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_no_more_is_saved_for_backward(norm: str) -> None:
    """Less in the feed-forward: GELU's output is not saved."""
    parts = make(norm=norm).to(HALF)
    states = draw(1, 40, 64, seed=8, dtype=HALF).requires_grad_()
    gate = replace(ALL, attention=False, linear=False, norm=norm == "pre")
    plain = saved_bytes(replace(ALONE["norm"], norm=False).layer(), parts, states)
    statistics = 0 if HAS_GPU or norm == "post" else 4 * 40 * 4  # a CPU's are in 16 bits
    assert saved_bytes(gate.layer(), parts, states) <= plain - CONFIG.ffn_size * 40 * 2 + statistics


# in a process of its own: what checks shapes under pytest stands in the way of a tracer
PROGRAM = """
import sys
import torch
from dataclasses import replace
from litebert.config import PRESETS
from litebert.kernels import norm as norm_kernels
from litebert.kernels.compile import guarded
from litebert.kernels.gate import Gate
from litebert.model.encoder import Encoder
from litebert.model.positions import Needed, Packing
from litebert.train.compile import _mark_packed
longest, norm, positions = int(sys.argv[1]), sys.argv[2], sys.argv[3]
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.bfloat16 if device == "cuda" else torch.float32
backend = "inductor" if device == "cuda" else "aot_eager"
if device == "cpu":
    norm_kernels.NORM["programs"] = norm_kernels.GELU["programs"] = 2
torch.manual_seed(0)
config = replace(
    PRESETS["tiny"], hidden_size=64, num_attention_heads=2, norm=norm, positions=positions,
    max_positions=160,
)
encoder = Encoder(config).to(device, dtype)
gate = Gate(
    attention=True, norm=norm == "pre", linear=True, feed_forward=True, varlen=device == "cuda"
)
encoder.layer = eager = gate.layer()
def bounds(sizes):
    return torch.tensor([0, *sizes]).cumsum(0).to(device, torch.int32)
def places(sizes):
    return torch.cat([torch.arange(size) for size in sizes])[None].to(device)
def gradients(*sizes):
    packing = Packing(bounds(sizes), longest)
    chosen = torch.arange(0, sum(sizes), sizes[0], device=device)
    ends = [int((chosen < end).sum()) for end in bounds(sizes)[1:]]
    needed = Needed(chosen[None], bounds([b - a for a, b in zip([0, *ends], ends)]), longest)
    ids = torch.arange(sum(sizes), device=device)[None] % 50
    states = encoder(token_ids=ids, mask=packing, positions=places(sizes), needed=needed)
    parameters = [each for name, each in encoder.named_parameters() if "pooler" not in name]
    tensors = torch.autograd.grad(states.sin().sum(), parameters)
    return torch.cat([tensor.flatten() for tensor in tensors])
batches = (7, 20, 3), (9, longest, 1), (4, 4, longest - 2)
plain = [gradients(*sizes) for sizes in batches]
compiled = torch.compile(eager, backend=backend, fullgraph=True)
encoder.layer = guarded("layers", _mark_packed(compiled), eager, print)
for sizes, expected in zip(batches, plain):
    tolerance = 3e-2 if device == "cuda" else 1e-5
    assert (gradients(*sizes) - expected).norm() <= tolerance * expected.norm(), sizes
counters = torch._dynamo.utils.counters["stats"]
# a full layer, and the last one when the needed tokens are found to vary
assert counters["unique_graphs"] <= 3, counters
if device == "cuda":
    encoder.layer, graph = eager, torch.cuda.CUDAGraph()
    ids = torch.arange(9 + longest, device=device)[None] % 50
    weight = encoder.attentions[0].query.weight
    packing, row_places = Packing(bounds((9, longest)), longest), places((9, longest))
    def step():
        states = encoder(token_ids=ids, mask=packing, positions=row_places)
        return torch.autograd.grad(states.sin().sum(), weight)[0]
    expected = step()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        recorded = step()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(recorded, expected)
"""


@pytest.mark.parametrize("norm", ["pre", "post"] if HAS_GPU else ["pre"])
@pytest.mark.parametrize(
    "longest",
    [32, pytest.param(160, marks=pytest.mark.skipif(not HAS_GPU, reason="takes no float32"))],
)
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_compiled_layers_are_the_eager_ones(longest: int, norm: str, positions: str) -> None:
    """One graph over a free number of tokens, with the last layer at the needed positions; and on a
    GPU a recorded pass."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(longest), norm, positions]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


RECOMPUTED = """
import torch
from dataclasses import replace
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from litebert.config import PRESETS
from litebert.kernels import norm as norm_kernels
from litebert.kernels.gate import Gate
from litebert.model.layers import Attention, FeedForward
from litebert.model.positions import Packing
from litebert.train.compile import _sparing
norm_kernels.NORM["programs"] = norm_kernels.GELU["programs"] = 2
config = replace(PRESETS["tiny"], hidden_size=64, num_attention_heads=4, norm="pre", ffn_size=256)
parts = nn.ModuleList([Attention(config), FeedForward(config)])
fast = Gate(attention=True, norm=True, linear=True, feed_forward=True).layer()
def operators(graph):
    targets = [str(node.target) for node in graph.graph.nodes]
    return sorted(target.split(".")[1] for target in targets if "litebert" in target)
def saved(graph):
    outputs = [node for node in graph.graph.nodes if node.op == "output"]
    values = [value.meta["val"] for node in outputs for value in node.args[0][1:]]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return sum(tensor.numel() // (40 * 64) for tensor in tensors if 40 in tensor.shape)
for wrap, expected in ((lambda layer: layer, 12), (_sparing, 10)):
    torch._dynamo.reset()
    seen = {}
    backend = aot_autograd(
        fw_compiler=lambda graph, _: seen.update(saved=saved(graph)) or graph,
        bw_compiler=lambda graph, _: seen.update(backward=operators(graph)) or graph,
        partition_fn=min_cut_rematerialization_partition,
    )
    states = torch.randn(1, 40, 64).requires_grad_()
    layer = wrap(torch.compile(fast, fullgraph=True, backend=backend))
    layer(*parts, states, Packing(torch.tensor([0, 8, 40], dtype=torch.int32), 32)).sum().backward()
    assert seen["saved"] == expected, seen
    assert seen["backward"] == sorted(
        ["gelu_backward", "short_attention_backward", *["norm_backward"] * 2, *["matmul"] * 8]
    )
"""


@pytest.mark.skipif(HAS_GPU, reason="the same there")
def test_where_memory_counts_norms_alone_are_computed_twice() -> None:
    """Of a layer's 12 states 10 are saved then (the inner ones are 4), and backward repeats no
    matmul."""
    command = [sys.executable, "-W", "ignore", "-c", RECOMPUTED]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
