"""What holds on a GPU: packed rows and replayed graphs err no more than plain steps, and a run goes
on where it stopped.

Shape checks stand in the way of compiling: run it with --noconftest.
"""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from litebert.data.stream import Stream
from litebert.errors import InterruptedRunError
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.objective import pretrain_losses
from litebert.packing import HostBatch
from litebert.recipes import Stages
from litebert.testing import tiny_recipe, tiny_shards
from litebert.train.graphs import WARM, Graphs, RecordedUpdate
from litebert.train.loop import BetweenSteps, Event
from litebert.train.pretrain.dry_run import run_dry
from litebert.train.pretrain.job import Feed, PretrainJob
from litebert.train.pretrain.run import Pretraining, example_spec, model_config
from litebert.train.runtime import Runtime

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
SHAPE = {
    "embedding_size": 64,
    "hidden_size": 256,
    "num_layers": 4,
    "num_attention_heads": 4,
    "ffn_size": 1024,
}
COUNTS = {"masked": 100.0, "examples": 32.0, "real_tokens": 700.0}
RTD: dict[str, Any] = {"objective": "rtd", "generator_size": 128, "generator_layers": 2}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_shards(tmp_path_factory.mktemp("gpu"), documents=400)


@pytest.fixture(params=[{}, RTD], ids=["masked", "replaced"])
def job(shards: Path, request: pytest.FixtureRequest) -> PretrainJob:
    recipe = tiny_recipe(
        encoder=SHAPE,
        batch_size=Stages.constant(32),
        microbatch_tokens=32 * 24,
        **request.param,
    )
    runtime = Runtime.start()
    stream = Stream.open(shards, example_spec(recipe), seed=0)
    return PretrainJob(recipe, Feed(stream, recipe, runtime), runtime, static_shapes=True)


def make_model(job: PretrainJob, **changes: Any) -> Model:
    torch.manual_seed(0)
    overrides = tuple((dict(job.recipe.overrides) | changes).items())
    model = Model(model_config(replace(job.recipe, overrides=overrides), vocab_size=96))
    if model.generator is not None:
        # one sample whatever the rounding: another would be another input of the encoder
        model.generator.heads["masked"].bias.data[7] = 30.0  # type: ignore[union-attr, operator, index]
    return model.cuda()


def flat(gradients: list[torch.Tensor | None]) -> torch.Tensor:
    return torch.cat(
        [gradient.double().flatten() for gradient in gradients if gradient is not None]
    )


def gradient_of(job: PretrainJob, model: Model, layout: HostBatch) -> torch.Tensor:
    losses = pretrain_losses(model, DeviceBatch.of(layout, "cuda"))
    total = job.divided(losses, job.divisors(COUNTS))
    return flat(list(torch.autograd.grad(total, list(model.parameters()), allow_unused=True)))


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_packed_and_replayed_passes_err_no_more_than_plain_ones(
    job: PretrainJob, positions: str
) -> None:
    """The truth is the same weights in float64; the plain pass is padded, uncompiled and unrecorded
    bfloat16."""
    rounded = make_model(job, positions=positions).bfloat16()
    truth = copy.deepcopy(rounded).double()
    for part in {rounded, rounded.filler}:
        job.runtime.gate(part.config.encoder).apply(part)
    errors: dict[str, list[float]] = {"plain": [], "packed": [], "replayed": []}
    graphs = Graphs(job, rounded, pytest.fail)
    for step in range(WARM + 8):
        batch = job.batch(step)
        exact = gradient_of(job, truth, batch.padded(draws=job.replaces))
        graphs(batch, step, COUNTS)
        replayed = flat([parameter.grad for parameter in graphs.parameters])
        actual = {
            "plain": gradient_of(job, rounded, batch.padded(draws=job.replaces)),
            "packed": gradient_of(job, rounded, job.layout(batch)),
            "replayed": replayed,
        }
        for name, gradient in actual.items():
            errors[name].append(float((gradient - exact).norm() / exact.norm()))
        for parameter in graphs.parameters:
            parameter.grad = None
    assert graphs.recorded
    assert graphs.is_on
    means = {name: float(np.mean(values)) for name, values in errors.items()}
    assert means["packed"] <= 1.1 * means["plain"], means
    assert means["replayed"] <= 1.1 * means["plain"], means


def losses_of(run: Path) -> list[float]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record["masked_loss"] for record in records if record["kind"] == "step"]


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.filterwarnings("ignore")  # of compilers
@pytest.mark.parametrize("settings", [{}, RTD], ids=["masked", "replaced"])
def test_an_interrupted_run_goes_on(
    shards: Path, tmp_path: Path, positions: str, settings: dict[str, Any]
) -> None:
    """In bfloat16 on a GPU sums differ in their last places; the course is the same."""
    recipe = tiny_recipe(encoder=SHAPE | {"positions": positions}, compile="on", **settings)
    Pretraining(recipe, shards, Runtime.start()).train(tmp_path / "whole", progress=False)
    broken = Pretraining(recipe, shards, Runtime.start())

    def stop(event: Event) -> None:
        if isinstance(event, BetweenSteps) and event.state.step == 6:
            raise InterruptedRunError("here")

    broken.run.subscribers.append(stop)
    with pytest.raises(InterruptedRunError):
        broken.train(tmp_path / "broken", progress=False)
    Pretraining(recipe, shards, Runtime.start()).train(tmp_path / "broken", progress=False)
    whole, resumed = losses_of(tmp_path / "whole"), losses_of(tmp_path / "broken")
    assert len(whole) == len(resumed) == recipe.total_steps
    assert resumed == pytest.approx(whole, rel=2e-2)


@pytest.mark.filterwarnings("ignore")  # of compilers
def test_a_rehearsal_times_replayed_steps(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passes and updates that run unrecorded or are recorded come first."""
    calls: list[str] = []

    def watch(kind: type, names: str) -> None:
        for name in names.split():
            original = getattr(kind, name)

            def watched(self: Any, *args: Any, _name: str = name, _call: Any = original) -> Any:
                calls.append(f"{kind.__name__}.{_name}")
                return _call(self, *args)

            monkeypatch.setattr(kind, name, watched)

    watch(Graphs, "__call__ plain record")
    watch(RecordedUpdate, "__call__ run record")
    recipe = tiny_recipe(encoder=SHAPE, compile="on", microbatch_tokens=24 * 8, steps=40)
    measured = run_dry(recipe, shards, tmp_path)
    assert measured["tokens_per_second"] > 0
    assert {"Graphs.record", "RecordedUpdate.record"} <= set(calls)
    replayed = ["Graphs.__call__", "RecordedUpdate.__call__", "Graphs.__call__"]
    assert replayed in [calls[start : start + 3] for start in range(len(calls))]
