"""What holds of the update on a GPU: replayed as a CUDA graph it is the plain one, whatever changes
from step to step.

Shape checks stand in the way of compiling: run it with --noconftest.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from litebert.config import EncoderConfig, ModelConfig
from litebert.model.model import Model
from litebert.optim.lamb import StepGroup
from litebert.recipes import FinetuneRecipe, OptimizerSpec
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.registry import open_task
from litebert.testing import tiny_task, tiny_tokenizer
from litebert.text.tokenizer import Tokenizer
from litebert.train.finetune.prepare import prepare
from litebert.train.finetune.run import Finetuning
from litebert.train.graphs import RecordedUpdate
from litebert.train.runtime import Runtime
from tests.helpers.updating import SPECS, Rig

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CLOSE = {"muon": 1e-2, "lamb": 1e-4, "google": 1e-4, "adamw": 1e-4}
"""As a part of the way that the weights come; Muon's matmuls are in bfloat16, and may be added up
in another order."""


@pytest.mark.parametrize("name", SPECS)
def test_replayed_steps_are_plain_steps(name: str) -> None:
    """Under a warm-up, so each step has another rate; in bfloat16 the working copy is its master
    rounded."""
    plain, replayed = Rig(SPECS[name], "cuda").run(range(12)), Rig(SPECS[name], "cuda")
    update = replayed.recorded()
    replayed.run(range(12))
    assert replayed.said == []
    assert update.recorded is not None
    replayed.assert_like(plain, close=CLOSE[name])


@pytest.mark.parametrize("name", SPECS)
def test_the_rate_is_that_of_the_step(name: str) -> None:
    rig = Rig(SPECS[name], "cuda")
    update = rig.recorded()
    before = rig.run(range(6)).weights()
    assert update.recorded is not None, rig.said
    rig.run(range(6, 9), rate=lambda step: 0.0)
    assert torch.equal(rig.weights(), before)
    rig.run(range(9, 10))
    assert not torch.equal(rig.weights(), before)


@pytest.mark.parametrize("name", SPECS)
def test_a_restored_snapshot_is_gone_on_from(name: str) -> None:
    plain, rig = Rig(SPECS[name], "cuda").run(range(12)), Rig(SPECS[name], "cuda")
    update = rig.recorded()
    snapshot = rig.run(range(6)).snapshot(6)
    first = update.recorded
    rig.run(range(20, 24))
    rig.restore(snapshot)
    rig.run(range(6, 12))
    assert first is not None
    assert update.recorded is not None
    assert update.recorded is not first
    assert plain.distance(rig) < CLOSE[name]


@pytest.mark.parametrize("name", SPECS)
def test_layers_that_join_are_moved(name: str) -> None:
    late = {"layers.1": 5, "layers.2": 9}
    plain, rig = Rig(SPECS[name], "cuda", late).run(range(14)), Rig(SPECS[name], "cuda", late)
    update = rig.recorded()
    rig.run(range(14))
    assert update.recorded is not None, rig.said
    assert plain.distance(rig) < CLOSE[name]
    assert rig.ages() == plain.ages()


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_replay_waits_for_nothing() -> None:
    rig = Rig(SPECS["muon"], "cuda")
    update = rig.recorded()
    rig.run(range(6))
    assert update.recorded is not None, rig.said
    torch.cuda.set_sync_debug_mode("error")
    try:
        update()
    finally:
        torch.cuda.set_sync_debug_mode("default")


STEPS = 16
SHAPE = {
    "embedding_size": 64,
    "hidden_size": 256,
    "num_layers": 4,
    "num_attention_heads": 4,
    "ffn_size": 1024,
}


def finetuning(folder: Path, **optimizer: Any) -> Finetuning:
    tokenizer = Tokenizer.load(tiny_tokenizer(folder / "tokenizer"))
    torch.manual_seed(0)
    encoder = EncoderConfig(**SHAPE, vocab_size=tokenizer.vocab_size, max_positions=128)
    spec = OptimizerSpec(learning_rate=1e-4, warmup=0.1, **optimizer)
    settings: dict[str, Any] = {
        "epochs": None,
        "batch_size": 8,
        "max_length": 64,
        "head_dropout": 0.0,
    }
    recipe = FinetuneRecipe(
        task="sst2", optimizer=spec, steps=STEPS, patience=0, retries=0, **settings
    )
    prepared = prepare(
        recipe, open_task("sst2", tiny_task(folder / "sst2", "sst2", scale=2)), tokenizer
    )
    source = Checkpoint(model=Model(ModelConfig(encoder=encoder)), tokenizer=tokenizer)
    return Finetuning(recipe, prepared, source, Runtime.start(), say=pytest.fail)


def losses_of(training: Finetuning, folder: Path) -> list[float]:
    training.train(folder, progress=False)
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if record["kind"] == "step"]


@pytest.mark.parametrize("optimizer", [{}, {"bias_correction": False}], ids=str)
@pytest.mark.filterwarnings("ignore")  # of compilers
def test_a_run_learns_what_it_learns_without(tmp_path: Path, optimizer: dict[str, Any]) -> None:
    """In bfloat16 on a GPU sums differ in their last places; the course is the same."""
    plain, recorded = (finetuning(tmp_path / name, **optimizer) for name in ("plain", "recorded"))
    plain.learner.update = None
    expected = losses_of(plain, tmp_path / "plain-run")
    actual = losses_of(recorded, tmp_path / "recorded-run")
    assert isinstance(recorded.learner.update, RecordedUpdate)
    assert recorded.learner.update.recorded is not None
    assert len(actual) == STEPS
    assert actual == pytest.approx(expected, rel=5e-2)


class Failing(RecordedUpdate):
    def move(self, parts: list[StepGroup], scalars: torch.Tensor) -> None:
        self.optimizer.apply(parts[0], scalars[: len(self.optimizer.scalars(parts[0]))].unbind())
        raise RuntimeError("half-way")


@pytest.mark.parametrize("name", SPECS)
def test_a_recording_that_fails_half_way_leaves_nothing_behind(name: str) -> None:
    plain, rig = Rig(SPECS[name], "cuda").run(range(8)), Rig(SPECS[name], "cuda")
    update = rig.recorded(Failing)
    rig.run(range(8))
    assert not update.is_on
    assert rig.said == [
        "the optimizer could not be recorded, so its steps run without a CUDA graph: half-way"
    ]
    assert plain.distance(rig) < CLOSE[name]
    assert rig.ages() == plain.ages()
