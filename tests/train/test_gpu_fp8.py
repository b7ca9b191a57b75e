"""What holds of fp8 on a GPU that has it: matmuls err as on a CPU, and recorded passes as
unrecorded ones.

Shape checks stand in the way of compiling: run it with --noconftest.
"""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from litebert.config import EncoderConfig, HeadConfig, ModelConfig
from litebert.data.stream import Stream
from litebert.kernels.fp8.linear import QuantizedLinear
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.objective import pretrain_losses
from litebert.recipes import Stages
from litebert.testing import tiny_recipe, tiny_shards
from litebert.train.graphs import WARM, Graphs
from litebert.train.learner import WorkingCopy
from litebert.train.log import read_records
from litebert.train.pretrain.job import Feed, PretrainJob
from litebert.train.pretrain.run import Pretraining, example_spec
from litebert.train.runtime import FP8_CAPABILITY, Runtime

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < FP8_CAPABILITY,
    reason="needs a GPU with fp8",
)
SHAPE = {
    "embedding_size": 64,
    "hidden_size": 256,
    "num_layers": 4,
    "num_attention_heads": 4,
    "ffn_size": 1024,
}
COUNTS = {"masked": 100.0, "examples": 32.0}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_shards(tmp_path_factory.mktemp("gpu-fp8"), documents=400)


@pytest.mark.parametrize("tokens", [1024, 1000, 37])
def test_matmuls_are_those_of_a_cpu(tokens: int) -> None:
    """The same roundings; sums on a GPU have fewer bits, forward least."""
    torch.manual_seed(0)
    parts = [nn.Linear(256, width) for width in (256, 256, 64)]
    states, tangents = (
        torch.randn(1, tokens, 256),
        [torch.randn(1, tokens, part.out_features) for part in parts],
    )

    def outcome(device: str) -> list[torch.Tensor]:
        here = [copy.deepcopy(part).to(device, torch.bfloat16) for part in parts]
        leaf = states.to(device, torch.bfloat16).requires_grad_()
        outputs = torch.split(
            QuantizedLinear(*here)(leaf), [part.out_features for part in here], -1
        )
        inputs = [leaf, *(part.weight for part in here)]
        gradients = torch.autograd.grad(
            outputs, inputs, [tangent.to(device, torch.bfloat16) for tangent in tangents]
        )
        return [found.detach().double().cpu() for found in (*outputs, *gradients)]

    for mine, theirs in zip(outcome("cuda"), outcome("cpu"), strict=True):
        assert (
            mine - theirs
        ).norm() <= 1e-2 * theirs.norm()  # rounding the factors costs 3.7e-2 and more


def flat(gradients: list[torch.Tensor | None]) -> torch.Tensor:
    return torch.cat(
        [gradient.double().flatten() for gradient in gradients if gradient is not None]
    )


def test_packed_and_replayed_passes_err_no_more_than_plain_ones(shards: Path) -> None:
    recipe = tiny_recipe(encoder=SHAPE, batch_size=Stages.constant(32), microbatch_tokens=32 * 24)
    runtime = Runtime.start(dtype="fp8")
    feed = Feed(Stream.open(shards, example_spec(recipe), seed=0), recipe, runtime)
    job = PretrainJob(recipe, feed, runtime, static_shapes=True)
    torch.manual_seed(0)
    encoder = EncoderConfig(**SHAPE, vocab_size=96, max_positions=64)
    master = Model(
        ModelConfig(encoder=encoder, heads=(HeadConfig(kind="masked"), HeadConfig(kind="order")))
    ).cuda()
    working = WorkingCopy(master, torch.bfloat16, gate=runtime.gate(encoder))
    truth = copy.deepcopy(master).bfloat16().double()

    def plain(model: Model, step_batch: object) -> torch.Tensor:
        losses = pretrain_losses(model, DeviceBatch.of(step_batch.padded(), "cuda"))  # type: ignore[arg-type]
        total = losses.mean(num_masked=COUNTS["masked"], num_examples=COUNTS["examples"])
        return flat(list(torch.autograd.grad(total, list(model.parameters()), allow_unused=True)))

    graphs = Graphs(job, working.model, pytest.fail)
    errors: dict[str, list[float]] = {"plain": [], "replayed": []}
    for step in range(WARM + 8):
        batch = job.batch(step)
        exact = plain(truth, batch)
        graphs(batch, step, COUNTS)
        actual = {
            "plain": plain(working.model, batch),
            "replayed": flat([parameter.grad for parameter in graphs.parameters]),
        }
        for name, gradient in actual.items():
            errors[name].append(float((gradient - exact).norm() / exact.norm()))
        for parameter in graphs.parameters:
            parameter.grad = None
    assert graphs.recorded
    means = {name: float(np.mean(values)) for name, values in errors.items()}
    assert means["replayed"] <= 1.1 * means["plain"], means


@pytest.mark.filterwarnings("ignore")  # of compilers
def test_a_recorded_run_sees_its_new_weights(shards: Path, tmp_path: Path) -> None:
    """A graph that read old roundings would learn nothing."""
    recipe = tiny_recipe(
        encoder=SHAPE,
        compile="on",
        dtype="fp8",
        steps=60,
        batch_size=Stages.constant(32),
        save_every=0,
    )
    run = Pretraining(recipe, shards, Runtime.start(dtype="fp8"))
    run.train(tmp_path, progress=False)
    records = read_records(tmp_path / "metrics.jsonl")
    losses = [record["masked_loss"] for record in records if record["kind"] == "step"]
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.3
