"""Compiling changes no result, an evaluation is not compiled, and a failure costs one message."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from litebert.config import PRESETS, ModelConfig
from litebert.kernels.compile import compile_for_inference
from litebert.model.layers import apply_layer
from litebert.model.model import Model
from litebert.train.compile import compile_model
from litebert.train.runtime import Runtime

RUNTIME = Runtime(rank=0, world_size=1, device=torch.device("cpu"), dtype=torch.float32)


def make() -> Model:
    torch.manual_seed(0)
    return Model(ModelConfig(encoder=PRESETS["tiny"]))


def refuse(message: str) -> None:
    raise AssertionError(message)


@pytest.mark.parametrize("wish", ["off", "auto"])
def test_on_a_processor_compiling_must_be_asked_for(wish: str) -> None:
    model = make()
    before = model.encoder.layer
    assert not compile_model(model, wish, RUNTIME, refuse)  # type: ignore[arg-type]
    assert model.encoder.layer is before


def test_reversible_layers_run_uncompiled_and_say_so() -> None:
    config = replace(PRESETS["tiny"], norm="pre", reversible=True)
    model, messages = Model(ModelConfig(encoder=config)), []
    assert not compile_model(model, "on", RUNTIME, messages.append)
    assert messages == ["reversible layers run uncompiled, and without CUDA graphs"]
    compile_for_inference(model, messages.append)
    assert messages[1:] == ["reversible layers run uncompiled"]
    assert model.encoder.layer is apply_layer


def test_a_failure_falls_back_with_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> object:
        raise torch._dynamo.exc.Unsupported("no such thing\nmany more lines")

    monkeypatch.setattr(torch, "compile", lambda function, **settings: broken)
    model, said, ids = make(), [], torch.zeros(1, 4, dtype=torch.long)
    expected = model.encoder(token_ids=ids)
    assert compile_model(model, "on", RUNTIME, said.append)
    assert torch.equal(model.encoder(token_ids=ids), expected)
    assert said == ["torch.compile failed (Unsupported), so layers run uncompiled: no such thing"]


# in a process of its own: what checks shapes under pytest stands in the way of a tracer
PROGRAM = """
import functools, torch
from dataclasses import replace
from litebert.config import PRESETS, ModelConfig
from litebert.model.model import Model
from litebert.train.compile import compile_model
from litebert.train.runtime import Runtime
torch.compile = functools.partial(torch.compile, backend="aot_eager")
torch.manual_seed(0)
config = replace(PRESETS["tiny"], adapter_rank=2)  # each application has adapters of its own
model, ids = Model(ModelConfig(encoder=config)), torch.arange(12).view(2, 6)
mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
def gradients():
    model.zero_grad()
    model.encoder.pool(model.encoder(token_ids=ids, mask=mask)).square().sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]
plain = gradients()
runtime = Runtime(rank=0, world_size=1, device=torch.device("cpu"), dtype=torch.float32)
assert compile_model(model, "on", runtime, print)
for a, b in zip(plain, gradients()):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
counters = torch._dynamo.utils.counters["stats"]
assert counters["unique_graphs"] == 1, counters  # three layers, one compilation
with torch.no_grad():
    model.encoder(token_ids=ids[:1])
assert counters["unique_graphs"] == 1, counters
"""


def test_compiled_gradients_are_the_plain_ones_and_layers_compile_once() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


SPARING = """
import functools, torch
from dataclasses import replace
from litebert.config import PRESETS, ModelConfig
from litebert.model.model import Model
from litebert.train.compile import compile_model
from litebert.train.runtime import Runtime
torch.compile = functools.partial(torch.compile, backend="aot_eager")
runtime = Runtime(rank=0, world_size=1, device=torch.device("cpu"), dtype=torch.float32)
ids = torch.arange(2 * 48).view(2, 48) % 90
def run(recompute):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Model(ModelConfig(encoder=replace(PRESETS["tiny"], norm="pre")))
    assert compile_model(model, "on", runtime, print, recompute=recompute)
    weights, kept = {parameter.data_ptr() for parameter in model.parameters()}, {}
    def keep(tensor):
        if tensor.data_ptr() not in weights:
            # held, so that no other comes to lie there
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        states = model.encoder(token_ids=ids)
    states.square().sum().backward()
    gradients = [each.grad for each in model.encoder.parameters() if each.grad is not None]
    assert torch._functorch.config.activation_memory_budget == 1.0
    return gradients, sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
(plain, all_of_it), (sparing, some) = run(False), run(True)
for a, b in zip(plain, sparing, strict=True):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
print(round(some / all_of_it, 3))
"""


def test_what_is_cheap_is_computed_again_where_asked_for_and_gradients_stay() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SPARING], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert 0.5 < float(done.stdout) < 0.9  # with the embedding, which keeps its own


# rows end to end, of another length in every batch: the layer, the last layer at the tokens that
# are read, and the heads
PACKED = """
import functools, sys, numpy as np, torch
from dataclasses import replace
from litebert.config import PRESETS, HeadConfig, ModelConfig, generator_of
from litebert.data.batch import Batch
from litebert.data.random import keys
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.objective import pretrain_losses
from litebert.train.compile import compile_model, compile_tail
from litebert.train.runtime import Runtime
torch.compile = functools.partial(torch.compile, backend="aot_eager")
torch.manual_seed(0)
kind, graphs = sys.argv[1], int(sys.argv[2])
heads = HeadConfig(kind=kind), HeadConfig(kind="order")
encoder = replace(PRESETS["tiny"], norm="pre")
generator = None
if kind == "detect":
    generator = generator_of(encoder, size=8, layers=2, tie="embeddings")
model = Model(ModelConfig(encoder=encoder, heads=heads, generator=generator))
def batch(seed):
    draw = np.random.default_rng(seed)
    mask = np.arange(12) < draw.integers(4, 13, 8)[:, None]
    places = np.arange(8) * 12 + 1
    return Batch(token_ids=np.where(mask, draw.integers(5, 50, mask.shape), 0).astype(np.int32),
        segment_ids=np.zeros(mask.shape, np.uint8), mask=mask, masked_positions=places,
        masked_labels=places.astype(np.int32),
        order_labels=np.arange(8, dtype=np.int32) % 2, indices=np.arange(8),
        sample_keys=keys(seed, np.arange(8)))
def gradients(seed, tail=None):
    model.zero_grad()
    host = batch(seed).packed(most_masked=2, fraction=0.2, multiple=8, draws=kind == "detect")
    tensors = DeviceBatch.of(host)
    losses = pretrain_losses(model, tensors, tail=tail)
    total = losses.mean(num_masked=8, num_examples=8)
    (total + losses.detection / 50 if kind == "detect" else total).backward()
    return tensors.token_ids.shape[1], [parameter.grad.clone() for parameter in model.parameters()]
plain = [gradients(seed) for seed in range(5)]
runtime = Runtime(rank=0, world_size=1, device=torch.device("cpu"), dtype=torch.float32)
for part in {model, model.filler}:
    assert compile_model(part, "on", runtime, print)
tail = compile_tail(print)
for seed, (size, expected) in enumerate(plain):
    for a, b in zip(expected, gradients(seed, tail)[1]):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
assert len({size for size, _ in plain}) > 1
counters = torch._dynamo.utils.counters["stats"]
assert counters["unique_graphs"] == graphs, counters
"""


@pytest.mark.parametrize(("kind", "graphs"), [("masked", 3), ("detect", 5)])
def test_packed_batches_of_any_length_share_compilations(kind: str, graphs: int) -> None:
    """Of the layer, the layer at needed tokens alone and the heads; with a generator, of both its
    layers, of the encoder's and of two heads."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PACKED, kind, str(graphs)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
