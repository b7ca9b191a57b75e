"""Query, key and value as one tensor, with one gradient, change nothing: an attention part is the
same, forward and backward.
 Without a GPU the kernels are replaced by attention written in torch, or run in Triton's
interpreter (TRITON_INTERPRET=1 before the start, where triton is installed).
"""

import copy
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from litebert.config import PRESETS
from litebert.model import layers, layout
from litebert.model.layers import Attention
from litebert.model.layout import Needed, Packing

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
needs_kernels = pytest.mark.skipif(
    find_spec("triton") is None or not (HAS_GPU or os.environ.get("TRITON_INTERPRET") == "1"),
    reason="needs a GPU, or triton and TRITON_INTERPRET=1",
)
LENGTHS, COUNTS = [5, 16, 1, 31], [2, 3, 0, 9]
CONFIG = replace(PRESETS["tiny"], hidden_size=64, num_attention_heads=4)


def bounds_of(sizes: list[int]) -> Tensor:
    return torch.tensor([0, *sizes]).cumsum(0).to(DEVICE, torch.int32)


PACKING = Packing(bounds_of(LENGTHS), max(LENGTHS))
PLACES = torch.cat(
    [first + torch.arange(count) for first, count in zip([0, 5, 21, 22], COUNTS, strict=True)]
)
NEEDED = Needed(PLACES[None].to(DEVICE), bounds_of(COUNTS), max(COUNTS))


def in_torch(
    parts: list[Tensor], among: Packing, needed: Needed | None, *, dropout: float
) -> Tensor:
    """What the kernels do, in any arithmetic."""
    query, key, value = [side for part in parts for side in part.unbind(2)]
    bounds, _ = layout._of_queries(among, needed)
    same_row = layout._rows(bounds, query.shape[1])[:, None] == layout._rows(
        among.bounds, key.shape[1]
    )
    return layout._dense(query, key, value, same_row, dropout)


def make(norm: str = "post") -> Attention:
    torch.manual_seed(0)
    part = Attention(replace(CONFIG, norm=norm)).to(DEVICE)  # type: ignore[arg-type]
    for parameter in part.parameters():  # numbers that every arithmetic here can hold
        parameter.data = (
            (parameter + 0.1 * torch.randn_like(parameter)).bfloat16().to(parameter.dtype)
        )
    return part


def outcome(
    part: Attention, dtype: torch.dtype, needed: Needed | None, *, fp8: bool = False
) -> dict[str, Tensor]:
    """The output, and the gradients of states and parameters."""
    part = copy.deepcopy(part).to(dtype)
    if fp8:
        part.quantize()
    draw = torch.Generator().manual_seed(1)
    states = (
        torch.randn(1, sum(LENGTHS), 64, generator=draw)
        .bfloat16()
        .to(DEVICE, dtype)
        .requires_grad_()
    )
    out = part(states, PACKING, needed)
    gradient = torch.randn(out.shape, generator=draw).bfloat16().to(DEVICE, dtype)
    named = dict(part.named_parameters())
    found = torch.autograd.grad(out, [states, *named.values()], gradient)
    return dict(zip(["out", "states", *named], [out.detach(), *found], strict=True))


def errors(found: dict[str, Tensor], truth: dict[str, Tensor]) -> dict[str, float]:
    """Beside the whole gradient, since that of a key's bias is nothing but rounding: softmax does
    not see it."""
    whole = max(float(tensor.norm()) for tensor in truth.values())
    return {
        name: float((tensor.double() - truth[name]).norm()) / whole
        for name, tensor in found.items()
    }


@pytest.mark.skipif(HAS_GPU, reason="its attention has no float64 to compare with")
@pytest.mark.parametrize("needed", [None, NEEDED], ids=["all", "needed"])
def test_an_attention_part_is_the_same(
    needed: Needed | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = outcome(make(), torch.float64, needed)
    seen: list[list[int]] = []

    def attend(parts: list[Tensor], *where: object, dropout: float) -> Tensor:
        seen.append([part.shape[2] for part in parts])
        return in_torch(parts, *where, dropout=dropout)  # type: ignore[arg-type]

    monkeypatch.setattr(layers, "takes_wide", lambda *args, **_: True)
    monkeypatch.setattr(layers, "wide_attention", attend)
    wide = outcome(make(), torch.float64, needed)
    assert seen == ([[3]] if needed is None else [[1, 2]])
    for name, tensor in split.items():
        torch.testing.assert_close(wide[name], tensor, rtol=0, atol=1e-12, msg=name)


def test_weights_are_dropped_in_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def attend(parts: list[Tensor], *where: object, dropout: float) -> Tensor:
        seen.append(dropout)
        return in_torch(parts, *where, dropout=dropout)  # type: ignore[arg-type]

    monkeypatch.setattr(layers, "takes_wide", lambda *args, **_: True)
    monkeypatch.setattr(layers, "wide_attention", attend)
    part = Attention(replace(CONFIG, attention_dropout=0.3)).to(DEVICE)
    states = torch.randn(1, sum(LENGTHS), 64, device=DEVICE)
    part(states, PACKING)
    part.eval()(states, PACKING)
    assert seen == [0.3, 0.0]


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_key_has_no_use_for_its_bias(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "takes_wide", lambda *args, **_: True)
    monkeypatch.setattr(layers, "wide_attention", in_torch)
    assert not outcome(make(norm), torch.float32, None)["key.bias"].any()


@pytest.mark.parametrize(
    ("dropout", "is_packed", "is_training", "is_known"),
    [
        (0.0, True, True, True),
        (0.3, True, True, False),
        (0.3, True, False, True),
        (0.0, False, True, False),
    ],
)
def test_weights_that_add_up_to_1_hand_a_bias_on(
    dropout: float,
    is_packed: bool,
    is_training: bool,
    is_known: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Tensor | None] = []

    def forked(
        norm: nn.Module,
        part: Any,
        states: Tensor,
        needed: None,
        last: nn.Linear,
        before: Tensor | None,
    ) -> Tensor:
        seen.append(before)
        summed: Tensor = part(norm(states), states)
        return summed

    monkeypatch.setattr(layers, "takes_wide", lambda *args, **_: True)
    monkeypatch.setattr(layers, "takes_fused", lambda states: True)
    monkeypatch.setattr(layers, "wide_attention", in_torch)
    monkeypatch.setattr(layers, "forked_pre_norm", forked)
    part = (
        Attention(replace(CONFIG, norm="pre", attention_dropout=dropout))
        .to(DEVICE)
        .train(is_training)
    )
    out = part(torch.randn(1, sum(LENGTHS), 64, device=DEVICE), PACKING if is_packed else None)
    assert seen == [part.value.bias if is_known else None]
    (of_bias,) = torch.autograd.grad(out.sum(), [part.value.bias], allow_unused=True)
    assert (of_bias is None) is is_known, "who has it is asked once"


def test_padded_rows_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "takes_wide", lambda *args, **_: True)
    monkeypatch.setattr(layers, "wide_attention", lambda *args, **_: pytest.fail("not for these"))
    states = torch.randn(1, sum(LENGTHS), 64, device=DEVICE, dtype=torch.bfloat16)
    assert Attention(CONFIG).to(DEVICE, torch.bfloat16)(states, None).shape == states.shape


@pytest.mark.skipif(HAS_GPU, reason="its attention has no float32 to compare with")
@pytest.mark.parametrize("needed", [None, NEEDED], ids=["all", "needed"])
def test_products_in_8_bits_may_be_wide_too(
    needed: Needed | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = outcome(make(), torch.float32, needed, fp8=True)
    monkeypatch.setattr(layers, "takes_wide", lambda *args, **_: True)
    monkeypatch.setattr(layers, "wide_attention", in_torch)
    wide = outcome(make(), torch.float32, needed, fp8=True)
    assert all(
        error < 1e-6
        for error in errors(
            wide, {name: tensor.double() for name, tensor in split.items()}
        ).values()
    )


def test_a_processor_takes_nothing_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "WIDE", True)
    monkeypatch.setattr(layout, "HAS_TRITON", True)
    assert not layout.takes_wide(torch.empty(1, 4, 2, 64), PACKING, drops=False)


@pytest.mark.parametrize(
    ("changes", "capability", "expected"),
    [
        ({}, (9, 0), True),
        ({}, (8, 9), False),
        ({}, (10, 0), False),
        ({"HAS_TRITON": False}, (9, 0), False),
        ({"SHORT_KERNELS": False}, (9, 0), False),
    ],
)
def test_kernels_are_for_the_gpus_they_were_made_for(
    changes: dict[str, bool],
    capability: tuple[int, int],
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: capability)
    for name, value in ({"HAS_TRITON": True} | changes).items():
        monkeypatch.setattr(layout, name, value)
    assert layout.has_short_kernels() is expected
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert not layout.has_short_kernels()


def test_a_compiler_takes_the_answer_for_a_constant() -> None:
    """It cannot look into CUDA, and a graph that breaks here would break in every layer."""
    layered = torch.compile(
        lambda x: x + layout.has_short_kernels(), fullgraph=True, backend="eager"
    )
    assert layered(torch.zeros(2)).tolist() == [float(layout.has_short_kernels())] * 2


@needs_kernels
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("needed", [None, NEEDED], ids=["all", "needed"])
def test_the_kernels_err_no_more(
    norm: str, needed: Needed | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Than those of the split way on a GPU in bfloat16; in the interpreter, than float32 does. With
    the norm before, its kernel has the gradient of the value's bias."""
    part, dtype = make(norm), torch.bfloat16 if HAS_GPU else torch.float32
    monkeypatch.setattr(layers, "takes_fused", lambda states: False)
    with monkeypatch.context() as patch:
        patch.setattr(layers, "takes_wide", lambda *args, **_: True)
        patch.setattr(layers, "wide_attention", in_torch)
        truth = outcome(part, torch.float64, needed)
    split = errors(outcome(part, dtype, needed), truth)
    monkeypatch.setattr(layers, "takes_wide", lambda *args, **_: True)
    monkeypatch.setattr(layers, "takes_fused", lambda states: True)
    wide = errors(outcome(part, dtype, needed), truth)
    least = 1e-3 if HAS_GPU else 1e-6  # of the whole gradient: below, it is luck
    assert all(wide[name] <= 1.1 * max(split[name], least) for name in wide), (wide, split)


@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
@pytest.mark.parametrize(
    ("size", "longest", "is_taken"), [(64, 128, True), (64, 129, False), (48, 128, False)]
)
def test_short_rows_are_taken(
    size: int, longest: int, is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "WIDE", True)
    monkeypatch.setattr(layout, "LONG_KERNELS", False)
    states = torch.empty(1, 4, 2, size, device=DEVICE, dtype=torch.bfloat16)
    assert layout.takes_wide(states, Packing(PACKING.bounds, longest), drops=False) is is_taken


# in a process of its own: what checks shapes under pytest stands in the way of a tracer
PROGRAM = """
import sys
import torch
from dataclasses import replace
from litebert.config import PRESETS
from litebert.model import layers, layout
from litebert.model.encoder import Encoder
from litebert.model.layout import Needed, Packing
from litebert.kernels.compile import guarded
from litebert.train.compile import _mark_packed
longest = int(sys.argv[1])
layers.takes_wide, layout.LONG_KERNELS = lambda *args, **_: True, True
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.bfloat16 if device == "cuda" else torch.float32
backend = "inductor" if device == "cuda" else "aot_eager"
torch.manual_seed(0)
config = replace(PRESETS["tiny"], hidden_size=64, num_attention_heads=4, norm="pre")
encoder = Encoder(config).to(device, dtype)
eager = encoder.layer
def bounds(sizes):
    return torch.tensor([0, *sizes]).cumsum(0).to(device, torch.int32)
def gradients(*sizes):
    packing, places = Packing(bounds(sizes), longest), torch.arange(0, sum(sizes), sizes[0], device=device)
    ends = [int((places < end).sum()) for end in bounds(sizes)[1:]]
    needed = Needed(places[None], bounds([b - a for a, b in zip([0, *ends], ends)]), longest)
    ids = torch.arange(sum(sizes), device=device)[None] % 50
    states = encoder(token_ids=ids, mask=packing, positions=ids % 8, needed=needed)
    parameters = [parameter for name, parameter in encoder.named_parameters() if "pooler" not in name]
    return torch.cat([gradient.flatten() for gradient in torch.autograd.grad(states.sin().sum(), parameters)])
batches = (7, 20, 3), (9, longest, 1), (4, 4, longest - 2)
plain = [gradients(*sizes) for sizes in batches]
encoder.layer = guarded("layers", _mark_packed(torch.compile(encoder.layer, backend=backend)), encoder.layer, print)
for sizes, expected in zip(batches, plain):
    assert (gradients(*sizes) - expected).norm() <= (3e-2 if device == "cuda" else 1e-5) * expected.norm(), sizes
counters = torch._dynamo.utils.counters["stats"]
# a full layer, and the last one when the needed tokens are found to vary
assert counters["unique_graphs"] <= 3, counters
if device == "cuda":
    encoder.layer, graph = eager, torch.cuda.CUDAGraph()
    ids, weight = torch.arange(9 + longest, device=device)[None] % 50, encoder.attentions[0].query.weight
    packing = Packing(bounds((9, longest)), longest)
    def step():
        return torch.autograd.grad(encoder(token_ids=ids, mask=packing, positions=ids % 8).sin().sum(), weight)[0]
    expected = step()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        recorded = step()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(recorded, expected)
"""


@needs_kernels
@pytest.mark.parametrize(
    "longest",
    [32, pytest.param(160, marks=pytest.mark.skipif(not HAS_GPU, reason="takes no float32"))],
)
def test_compiled_layers_are_the_plain_ones(longest: int) -> None:
    """Over a free number of tokens, with the last layer at the needed ones; and on a GPU a recorded
    pass."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(longest)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
