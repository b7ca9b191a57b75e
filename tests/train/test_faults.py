"""What goes wrong in a real pretraining, and what it may cost: NaN, memory, a full disk, a loss
that does not fall."""

import errno
import json
import os
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from litebert.errors import CheckpointError, DivergedError, InterruptedRunError
from litebert.recipes import Stages, named
from litebert.storage.checkpoint import Checkpoint
from litebert.storage.snapshot import Snapshot, SnapshotStore
from litebert.testing import tiny_recipe
from litebert.train.log import Log
from litebert.train.loop import BetweenSteps, Event
from litebert.train.pretrain.evaluate import PlateauWatch
from tests.helpers.pretraining import (
    CPU,
    Watched,
    assert_same_run,
    essence,
    events,
    losses,
    signalled,
    train,
    weights,
)


class Poisoned(Watched):
    """The losses of these steps are not a number, each as often as said."""

    def __init__(self, bad: dict[int, int], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.bad, compute = bad, self.job.losses

        def poisoned(model: Any, microbatch: Any, step: int) -> Any:
            actual = compute(model, microbatch, step)
            if self.bad.get(step, 0) > 0:
                self.bad[step] -= 1
                actual = replace(actual, masked=actual.masked * float("nan"))
            return actual

        self.job.losses = poisoned  # type: ignore[method-assign]

    def all_finite(self) -> bool:
        return all(
            bool(parameter.isfinite().all()) for parameter in self.learner.model.parameters()
        )


def test_thirty_nans_never_reach_the_weights(shards: Path, tmp_path: Path) -> None:
    """Scattered over a run of two microbatches a step; every one is skipped and named."""
    steps = sorted(random.Random(0).sample(range(80), 30))
    recipe = tiny_recipe(steps=80, evaluate_every=0, save_every=0, max_skips=30)
    training = Poisoned(dict.fromkeys(steps, 1), recipe, shards, CPU)
    training.train(tmp_path / "run", progress=False)
    assert training.all_finite()
    told = events(tmp_path / "run")
    assert [(event["event"], event["step"]) for event in told] == [("skip", step) for step in steps]
    pattern = (
        r"loss nan and gradient norm nan of the batch at place \d+ of epoch \d+, examples "
        r"\d+(, \d+){7}: not stepped on"
    )
    assert all(re.fullmatch(pattern, event["message"]) for event in told)
    assert [loss for loss in losses(tmp_path / "run") if isinstance(loss, str)] == ["nan"] * 30


def test_skip_then_roll_back_then_exit_4_with_the_examples(shards: Path, tmp_path: Path) -> None:
    """Steps 6, 7, 8 are bad: two are skipped, the third goes back to step 4; bad again, it
    stops."""
    recipe = tiny_recipe(max_skips=2, max_rollbacks=1)
    training = Poisoned({6: 99, 7: 99, 8: 99}, recipe, shards, CPU)
    with pytest.raises(
        DivergedError,
        match=r"diverged at step 8: loss nan .* epoch 0, examples \d+, .*; lower the learning rate",
    ) as told:
        training.train(tmp_path / "run", progress=False)
    assert told.value.exit_code == 4
    assert training.all_finite()
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "diverged"
    kept = [(event["event"], event["step"]) for event in events(tmp_path / "run")]
    assert kept == [("rollback", 4), ("skip", 6), ("skip", 7), ("stop", 8)]
    rates = [
        record["learning_rate"] for record in essence(tmp_path / "run") if record["kind"] == "step"
    ]
    assert rates[4] == training.job.learning_rate(4) / 2  # half the rate after going back


def test_a_bad_stretch_that_passes_is_survived_and_resumed_exactly(
    shards: Path, tmp_path: Path
) -> None:
    """After the return the same steps are good; a run ended after it remembers the halved rate."""
    recipe = tiny_recipe(max_skips=1, max_rollbacks=1)
    once = {5: 1, 6: 1}
    Poisoned(dict(once), recipe, shards, CPU).train(tmp_path / "whole", progress=False)
    assert [event["event"] for event in events(tmp_path / "whole")] == ["rollback"]
    with pytest.raises(InterruptedRunError):
        Poisoned(dict(once), recipe, shards, CPU, at=signalled(25)).train(
            tmp_path / "parts", progress=False
        )
    train(recipe, shards, tmp_path / "parts")
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


def test_without_a_snapshot_to_go_back_to_it_stops(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SnapshotStore, "save", lambda self, snapshot: None)
    with pytest.raises(
        DivergedError, match=r"diverged at step 3: .*; and no snapshot was saved to go back to"
    ):
        Poisoned({3: 9}, tiny_recipe(max_skips=0), shards, CPU).train(
            tmp_path / "run", progress=False
        )


def test_weights_that_are_not_finite_are_not_saved(shards: Path, tmp_path: Path) -> None:
    """A rate so high that weights overflow: the snapshots that a run goes back to stay good."""

    def overflow(event: Event) -> None:
        if isinstance(event, BetweenSteps) and event.state.step == 4:
            with torch.no_grad():
                next(training.learner.model.parameters()).fill_(float("inf"))

    recipe = tiny_recipe(evaluate_every=0, max_skips=1, max_rollbacks=1)
    training = Watched(recipe, shards, CPU)
    training.run.subscribers.insert(0, overflow)
    with pytest.raises(DivergedError, match="diverged at step 5"):
        training.train(tmp_path / "run", progress=False)
    assert any(
        "weights are not finite any more, so they are not saved" in event["message"]
        for event in events(tmp_path / "run")
    )
    snapshot = SnapshotStore(tmp_path / "run" / "snapshots").latest()
    assert snapshot is not None
    assert snapshot.step == 0
    assert all(bool(tensor.isfinite().all()) for tensor in snapshot.model.values())


def test_twenty_times_out_of_memory_changes_no_loss(shards: Path, tmp_path: Path) -> None:
    """At moments of its own in each of twenty steps; the microbatch shrinks, the batch and its
    order stay."""
    recipe = tiny_recipe(
        steps=24,
        batch_size=Stages.constant(16),
        microbatch_tokens=24 * 16,
        evaluate_every=0,
        save_every=0,
    )
    undisturbed = train(recipe, shards, tmp_path / "whole")
    assert undisturbed.calls == 25 - 1 + len(undisturbed.evaluation.batches("sop", 24)) * 2  # type: ignore[union-attr]

    class Short(Watched):
        failed = 0

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            compute, done = self.job.losses, set[int]()

            def losses(model: Any, microbatch: Any, step: int) -> Any:
                if step < 20 and step not in done and len(microbatch) > 1:
                    done.add(step)
                    Short.failed += 1
                    raise torch.OutOfMemoryError("faked")
                return compute(model, microbatch, step)

            self.job.losses = losses  # type: ignore[method-assign]

    def forget(event: Event) -> None:
        if isinstance(event, BetweenSteps) and event.state.step % 4 == 0:
            training.run.loop.most_rows = None

    training = Short(recipe, shards, CPU)
    training.run.subscribers.append(forget)
    training.train(tmp_path / "short", progress=False)
    assert Short.failed == 20
    told = [event for event in events(tmp_path / "short") if event["event"] == "memory"]
    assert len(told) == 20
    assert told[0]["message"] == "out of memory; microbatches of 8 rows now"
    assert losses(tmp_path / "short") == pytest.approx(losses(tmp_path / "whole"), rel=1e-6)


def full(*args: Any, **kwargs: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_costs_snapshots_and_not_the_run(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny_recipe(), shards, tmp_path / "whole")
    with monkeypatch.context() as patch:
        write = Snapshot.write
        patch.setattr(
            Snapshot,
            "write",
            lambda self, folder: full() if self.step in (4, 8) else write(self, folder),
        )
        training = train(tiny_recipe(), shards, tmp_path / "run")
    assert training.result.steps == 12  # type: ignore[attr-defined]
    told = [event["message"] for event in events(tmp_path / "run")]
    assert len(told) == 2
    assert re.match(
        r"no snapshot of step 4, the disk of .* is full: No space left on device\. The run "
        r"continues; .* step-00000000",
        told[0],
    )
    mine, theirs = weights(tmp_path / "run"), weights(tmp_path / "whole")
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_interrupted_on_a_full_disk_it_says_that_nothing_was_saved(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny_recipe(), shards, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "write", full)
        with pytest.raises(
            InterruptedRunError,
            match=(
                "interrupted at step 5 of 12; not saved, the same command resumes from the last "
                "snapshot"
            ),
        ):
            train(tiny_recipe(), shards, tmp_path / "run", at=signalled(10))
    train(tiny_recipe(), shards, tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_metrics_and_status_wait_while_the_disk_is_full(
    shards: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither can be written from step 2 to step 9, then there is room again: no record is
    missing."""
    train(tiny_recipe(), shards, tmp_path / "whole")
    drain, replaced = Log._drain, os.replace
    now = {"step": 0}
    monkeypatch.setattr(Log, "_drain", lambda self: full() if 2 <= now["step"] < 9 else drain(self))
    monkeypatch.setattr(
        Path,
        "replace",
        lambda self, to: (
            full() if 2 <= now["step"] < 9 and to.name == "status.json" else replaced(self, to)
        ),
    )

    def tell(event: Event) -> None:
        if isinstance(event, BetweenSteps):
            now["step"] = event.state.step

    training = Watched(tiny_recipe(), shards, CPU)
    training.run.subscribers.insert(0, tell)
    training.train(tmp_path / "run", progress=False)
    assert capsys.readouterr().err.count("the disk is full, so metrics wait in memory") == 1
    told = [event["message"] for event in events(tmp_path / "run")]
    assert told == [
        f"no snapshot of step {step}: the disk is too full even for metrics; free some space"
        for step in (4, 8)
    ]
    assert [record for record in essence(tmp_path / "run") if record["kind"] != "event"] == essence(
        tmp_path / "whole"
    )
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "finished"


def test_a_disk_too_full_for_best_goes_on_and_for_final_says_what_to_do(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", full)
        with pytest.raises(
            CheckpointError,
            match=r"at its end, but the checkpoint .*final could not be written: .*No space left",
        ):
            train(tiny_recipe(), shards, tmp_path / "run")
    assert (
        sum("best could not be written" in event["message"] for event in events(tmp_path / "run"))
        >= 1
    )
    again = train(tiny_recipe(), shards, tmp_path / "run")
    assert again.calls == 0
    assert weights(tmp_path / "run")


LEARNS = {
    "steps": 150,
    "evaluate_every": 0,
    "save_every": 0,
    "microbatch_tokens": 24 * 32,
    "max_ngram": 1,
}
"""With a rate of 5e-3 this is far below the entropy of single tokens at its end."""
WIDE = {"hidden_size": 64, "ffn_size": 128, "embedding_size": 64}


@pytest.mark.parametrize(("rate", "objective"), [(1e-5, "masked"), (0.3, "masked"), (1e-5, "rtd")])
def test_a_run_with_a_bad_rate_says_that_it_is_on_the_plateau(
    shards: Path, tmp_path: Path, rate: float, objective: str
) -> None:
    recipe = tiny_recipe(
        **LEARNS,
        batch_size=Stages.constant(32),
        encoder=WIDE,
        plateau_steps=75,
        learning_rate=rate,
        objective=objective,
    )
    train(recipe, shards, tmp_path / "run")
    told = events(tmp_path / "run")
    assert [(event["event"], event["step"]) for event in told] == [
        ("plateau", 74),
        ("plateau", 149),
    ]
    assert re.match(
        r"the masked-token loss is \d+\.\d+, the entropy of single tokens 3\.\d+: after 75 steps",
        told[0]["message"],
    )
    advice = (
        "looks at nothing; try muon (--optimizer muon --learning-rate 2e-3), a lower learning rate"
    )
    assert advice in told[0]["message"]


@pytest.mark.parametrize(
    ("name", "ideas"),
    [
        ("affordable", "a lower"),
        ("affordable-post", r"the pre-norm model \(--encoder norm=pre\), a lower"),
        ("paper", r"muon \(.* 1e-3\), a smaller batch \(.*\), the pre-norm model \(.*\), a lower"),
    ],
)
def test_the_advice_leaves_out_what_the_recipe_has(name: str, ideas: str) -> None:
    watch = PlateauWatch(replace(named(name), plateau_steps=1), vocab_size=4)
    warning = watch.see(0, np.array([0, 1, 2, 3]), 2.0)
    assert warning is not None
    expected = (
        f"looks at nothing; try {ideas} learning rate or a longer warm-up; see docs/pretrain.md$"
    )
    assert re.search(expected, warning)


def test_a_run_with_a_good_rate_never_does(shards: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(
        **LEARNS,
        batch_size=Stages.constant(32),
        encoder=WIDE,
        plateau_steps=150,
        learning_rate=5e-3,
    )
    train(recipe, shards, tmp_path / "run")
    assert events(tmp_path / "run") == []
    assert sum(losses(tmp_path / "run")[-10:]) / 10 < 3.0
