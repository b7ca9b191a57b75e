"""Fine-tuning as a GPU does it, on a CPU: packed batches learn what padded ones do, and a pass that
reads static memory alone, as a replayed graph does, learns it too.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from litebert.model.batch import DeviceBatch, pinned
from litebert.model.model import Model
from litebert.packing import HostBatch
from litebert.train.finetune import run as finetune
from litebert.train.finetune.job import COMPILE_TOKENS, FinetuneJob
from litebert.train.finetune.run import Finetuning
from litebert.train.graphs import WARM, Graphs, Recorded
from litebert.train.runtime import Runtime
from tests.helpers.finetuning import CPU, TASKS, ready, recipe, source

KINDS = ["classify", "multilabel", "regress", "choose", "answer", "tag"]
CASES: list[tuple[str, dict[str, Any]]] = [
    *((kind, {}) for kind in KINDS),
    ("classify", {"exits": "each"}),
    ("classify", {"class_weights": "balanced"}),
]
PLAIN = {"encoder_dropout": 0.0, "head_dropout": 0.0, "steps": 8, "microbatch_tokens": 4096}


@dataclass
class Pretended:
    """In place of a CUDA graph: what was recorded runs again, from the memory that it was recorded
    with."""

    graphs: "PretendedGraphs"
    layout: HostBatch
    depth: int | None
    recorded: Recorded | None = None

    def replay(self) -> None:
        assert self.recorded is not None
        actual = self.recorded
        losses, gradients = self.graphs.run(
            DeviceBatch.within(self.layout, actual.inputs), actual.divisors, self.depth
        )
        for mine, new in zip(actual.gradients, gradients, strict=True):
            if mine is not None and new is not None:
                mine.copy_(new)
        for name, number in losses.numbers().items():
            getattr(actual.losses, name).copy_(number)
        self.graphs.replays += 1


class PretendedGraphs(Graphs):
    replays = 0

    def record(self, layout: Any, depth: int | None, count: int) -> Recorded:
        inputs, divisors = pinned(layout).clone(), torch.ones(count)
        losses, gradients = self.run(DeviceBatch.within(layout, inputs), divisors, depth)
        graph = Pretended(self, layout, depth)
        graph.recorded = Recorded(
            graph=graph,  # type: ignore[arg-type]
            inputs=inputs,
            divisors=divisors,
            losses=losses.clone(),
            gradients=[None if gradient is None else gradient.clone() for gradient in gradients],
        )
        return graph.recorded


def losses_of(training: Finetuning, folder: Path) -> list[float]:
    training.train(folder, progress=False)
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if record["kind"] == "step"]


def make(kind: str, **changes: Any) -> Finetuning:
    wish = recipe(kind, **PLAIN | changes)
    prepared = ready(kind)
    if "class_weights" in changes:  # the examples are balanced
        prepared = replace(prepared, class_weights=np.linspace(0.5, 1.5, len(TASKS[kind].labels)))
    return Finetuning(wish, prepared, source(), CPU, say=pytest.fail)


@pytest.mark.parametrize(("kind", "changes"), CASES)
def test_packed_batches_learn_what_padded_ones_do(
    kind: str, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    padded = losses_of(make(kind, **changes), tmp_path / "padded")
    monkeypatch.setattr(finetune, "can_pack", lambda *_: True)
    packed = make(kind, **changes)
    assert packed.job.pack
    assert packed.graphs is None
    assert losses_of(packed, tmp_path / "packed") == pytest.approx(padded, rel=1e-3)


@pytest.mark.parametrize(("kind", "changes"), CASES)
def test_a_replayed_pass_reads_static_memory_alone(
    kind: str, changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finetune, "can_pack", lambda *_: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    plain = losses_of(make(kind, steps=16, **changes), tmp_path / "plain")
    training = make(kind, steps=16, **changes)
    graphs = PretendedGraphs(training.job, training.learner.working.model, pytest.fail)
    training.learner.passes = graphs
    # the gradients of a float32 master are the recorded ones themselves, which the optimizer's
    # clipping would change
    monkeypatch.setattr(
        training.learner.working, "collect", lambda: keep_apart(training.learner.model)
    )
    assert losses_of(training, tmp_path / "replayed") == pytest.approx(plain, rel=1e-4)
    assert graphs.recorded
    assert graphs.replays >= 16 - (WARM + 1) * len(graphs.seen)


def keep_apart(model: Model) -> None:
    for parameter in model.parameters():
        parameter.grad = None if parameter.grad is None else parameter.grad.clone()


def test_a_batch_that_was_drawn_ahead_is_the_one_handed_out() -> None:
    wish = recipe(**PLAIN)
    job, other = (FinetuneJob(wish, ready("classify").train.inputs, CPU) for _ in range(2))
    for step in range(6):
        batch = job.batch(step)
        shown = job.name(batch), job.microbatch_rows(step)
        ahead = job.prefetch(step + 1)
        assert (job.name(batch), job.microbatch_rows(step)) == shown  # of the step at hand, still
        assert np.array_equal(batch.token_ids, other.batch(step).token_ids)
        if step + 1 < 6:
            assert job.batch(step + 1) is ahead
    assert job.prefetch(job.steps) is None


def test_a_batch_drawn_ahead_of_a_new_beginning_is_drawn_again() -> None:
    job = FinetuneJob(recipe(**PLAIN), ready("classify").train.inputs, CPU)
    job.batch(0)
    before = job.prefetch(1)
    job.begin(1, 1)
    assert job.batch(1) is not before
    assert job.drawn.position == job.position(1)


def test_a_batch_in_parts_is_not_laid_out_ahead() -> None:
    job = FinetuneJob(
        recipe(**PLAIN | {"microbatch_tokens": 32}), ready("classify").train.inputs, CPU
    )
    job.batch(0)
    assert job.prefetch(1) is None


def test_a_rank_without_units_learns_nothing_of_what_it_reads() -> None:
    """64 examples in batches of 3 leave one for the last batch, and the second rank none."""
    wish = recipe(**PLAIN | {"batch_size": 3, "steps": 22})
    second = Runtime(rank=1, world_size=2, device=torch.device("cpu"), dtype=torch.float32)
    job = FinetuneJob(wish, ready("classify").train.inputs, second, pack=True)
    model = make("classify").learner.model
    spare = [step for step in range(22) if len(job.units(step)) == 1]
    assert spare
    batch = job.batch(spare[0])
    sums = job.losses(model, batch, spare[0])
    assert sums.loss == 0
    assert sums.correct == 0
    assert set(job.counts(batch).values()) == {0.0}


@pytest.mark.parametrize(
    ("wish", "pack", "share", "expected"),
    [
        ("auto", True, 0.9, "off"),
        ("auto", True, 1.1, "auto"),
        ("auto", False, 1.1, "off"),
        ("on", False, 0.0, "on"),
        ("off", True, 9.0, "off"),
    ],
)
def test_long_runs_over_packed_rows_pay_for_compiling(
    wish: Any, pack: bool, share: float, expected: str
) -> None:
    inputs = ready("classify").train.inputs
    tokens = float(np.mean(inputs.row_lengths)) * 8
    steps = max(int(share * COMPILE_TOKENS / tokens), 1)
    job = FinetuneJob(recipe(**PLAIN | {"steps": steps, "compile": wish}), inputs, CPU, pack=pack)
    assert job.tokens == pytest.approx(steps * tokens, rel=1e-3, abs=1)
    assert job.compile_wish == expected
