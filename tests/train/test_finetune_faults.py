"""What goes wrong in a real fine-tuning, and what it may cost: chance, NaN, memory, a full disk;
and what several seeds say."""

import contextlib
import errno
import json
import random
import re
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from litebert.errors import CheckpointError, DivergedError, InterruptedRunError
from litebert.recipes import OptimizerSpec
from litebert.storage.checkpoint import Checkpoint
from litebert.storage.snapshot import Snapshot, SnapshotStore
from litebert.train.finetune import run as conclusion
from litebert.train.finetune import seeds
from litebert.train.finetune.evaluation import ChanceWatch
from litebert.train.finetune.job import FinetuneJob
from litebert.train.finetune.prepare import prepare, tokenizer_of
from litebert.train.finetune.seeds import train_seeds
from litebert.train.loop import BetweenSteps, Event
from tests.helpers.finetuning import (
    WatchedTuning,
    assert_same_tuning,
    made,
    ready,
    recipe,
    source,
    tune,
)
from tests.helpers.full_disk import full_disk
from tests.helpers.pretraining import CPU, essence, events, losses, signalled


class Poisoned(WatchedTuning):
    """The losses of these steps are not a number, each as often as said."""

    def __init__(self, bad: dict[int, int], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.bad, compute = bad, self.job.losses

        def poisoned(model: Any, microbatch: Any, step: int) -> Any:
            actual = compute(model, microbatch, step)
            if self.bad.get(step, 0) > 0:
                self.bad[step] -= 1
                actual = replace(actual, loss=actual.loss * float("nan"))
            return actual

        self.job.losses = poisoned  # type: ignore[method-assign]

    def all_finite(self) -> bool:
        return all(
            bool(parameter.isfinite().all()) for parameter in self.learner.model.parameters()
        )


def poisoned(bad: dict[int, int], wish: Any, **more: Any) -> Poisoned:
    return Poisoned(bad, wish, ready("classify"), source(), CPU, **more)


def result(run: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((run / "result.json").read_text())
    return record


def test_thirty_nans_never_reach_the_weights(tmp_path: Path) -> None:
    steps = sorted(random.Random(0).sample(range(80), 30))
    training = poisoned(dict.fromkeys(steps, 1), recipe(epochs=10, save_every=0, max_skips=30))
    training.train(tmp_path, progress=False)
    assert training.all_finite()
    told = [event for event in events(tmp_path) if event["event"] == "skip"]
    assert [event["step"] for event in told] == steps
    pattern = r"loss nan and gradient norm nan of training examples \d+(, \d+){7}: not stepped on"
    assert all(re.fullmatch(pattern, event["message"]) for event in told)


def test_a_bad_stretch_that_passes_is_survived_and_resumed_exactly(tmp_path: Path) -> None:
    wish = recipe(max_skips=1, max_rollbacks=1)
    poisoned({9: 1, 10: 1}, wish).train(tmp_path / "whole", progress=False)
    assert [event["event"] for event in events(tmp_path / "whole")][:1] == ["rollback"]
    with pytest.raises(InterruptedRunError):
        poisoned({9: 1, 10: 1}, wish, at=signalled(45)).train(tmp_path / "parts", progress=False)
    tune(wish, tmp_path / "parts")
    assert_same_tuning(tmp_path / "parts", tmp_path / "whole")


def test_a_run_that_diverges_begins_again_with_a_third_of_the_rate_and_twice_the_warmup(
    tmp_path: Path,
) -> None:
    """Steps 6 and 7 are never good: the first attempt ends there, the second begins at that count
    and has 16 more."""
    wish = recipe(warmup=2, max_skips=1, max_rollbacks=0, retries=1)
    training = poisoned({6: 99, 7: 99}, wish)
    training.train(tmp_path, progress=False)
    told = [(event["event"], event["step"]) for event in events(tmp_path)]
    assert told[:3] == [("skip", 6), ("stop", 7), ("retry", 7)]
    message = next(event["message"] for event in events(tmp_path) if event["event"] == "retry")
    assert re.search(
        r"diverged at step 7: .*; restarts from the pretrained weights with the learning rate / 3 "
        r".*attempt 2 of 2",
        message,
    )
    steps = [record for record in essence(tmp_path) if record["kind"] == "step"]
    assert [record["step"] for record in steps] == [*range(7), *range(7, 23)]
    rates = [record["learning_rate"] for record in steps]
    assert rates[7:11] == pytest.approx([3e-3 / 3 * part for part in (0.25, 0.5, 0.75, 1.0)])
    assert rates[:2] == pytest.approx([1.5e-3, 3e-3])
    assert (result(tmp_path)["attempts"], result(tmp_path)["steps"]) == (2, 23)


def test_a_run_that_diverges_in_every_attempt_ends_with_4(tmp_path: Path) -> None:
    wish = recipe(max_skips=0, max_rollbacks=0, retries=1)
    with pytest.raises(
        DivergedError, match=r"diverged at step \d+: loss nan .* of training examples \d+, "
    ) as told:
        poisoned(dict.fromkeys(range(99), 999), wish).train(tmp_path, progress=False)
    assert told.value.exit_code == 4
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "diverged"


def test_answers_that_are_not_numbers_are_a_divergence(tmp_path: Path) -> None:
    """Weights so large that states overflow, met by the evaluation before the next step's loss."""
    training = WatchedTuning(
        recipe("answer", retries=1), ready("answer", null_search="dev"), source(), CPU
    )

    def overflow(event: Event) -> None:
        evaluated = training.evaluation.every if training.job.attempt == 0 else -1
        if isinstance(event, BetweenSteps) and event.state.step == evaluated:
            with torch.no_grad():
                next(training.learner.model.parameters()).fill_(float("nan"))

    training.run.subscribers.insert(0, overflow)
    training.train(tmp_path, progress=False)
    assert "what the model says of answers is not a number" in events(tmp_path)[0]["message"]
    assert result(tmp_path)["attempts"] == 2


HOPELESS = {"learning_rate": 1e-9, "retries": 2, "epochs": 2, "evaluations": 1}


@pytest.fixture(scope="module")
def hopeless(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A rate that changes nothing: three attempts at chance."""
    run = tmp_path_factory.mktemp("hopeless") / "run"
    return run, tune(recipe(**HOPELESS), run).calls


def test_a_run_that_never_leaves_chance_is_said_aloud_and_retried_twice(
    hopeless: tuple[Path, int],
) -> None:
    told = events(hopeless[0])
    assert [(event["event"], event["step"]) for event in told] == [
        ("retry", 16),
        ("retry", 32),
        ("chance", 48),
    ]
    pattern = (
        r"it never beat the majority baseline: accuracy on dev at best 0\.\d{3} where the "
        r"majority baseline has "
        r"0\.225, "
        r"a loss of 1\.\d+ where guessing has 1\.3\d\d; restarts from the pretrained weights "
        r"with the learning rate / 3 and "
        r"the warm-up × 2, attempt 2 of 3"
    )
    assert re.fullmatch(pattern, told[0]["message"])
    assert told[2]["message"].endswith(
        "; look at the data, or try another --learning-rate or --epochs"
    )
    actual = result(hopeless[0])
    assert (actual["attempts"], actual["left_chance"], actual["steps"]) == (3, False, 48)
    firsts = [
        record
        for record in essence(hopeless[0])
        if record["kind"] == "step" and record["step"] in (0, 16, 32)
    ]
    assert (
        len({record["loss"] for record in firsts}) == 3
    )  # another head and another order each time


@pytest.mark.parametrize("part", [0.2, 0.34, 0.5, 0.8])
def test_new_beginnings_resume_exactly(
    hopeless: tuple[Path, int], tmp_path: Path, part: float
) -> None:
    with pytest.raises(InterruptedRunError):
        tune(recipe(**HOPELESS), tmp_path / "run", at=signalled(int(part * hopeless[1])))
    tune(recipe(**HOPELESS), tmp_path / "run")
    assert_same_tuning(tmp_path / "run", hopeless[0])


def test_a_run_that_learns_is_never_retried(tmp_path: Path) -> None:
    tune(recipe(epochs=8, learning_rate=5e-3, retries=2), tmp_path)
    assert [event["event"] for event in events(tmp_path)] == []
    assert result(tmp_path)["left_chance"]


def test_what_chance_is() -> None:
    """Above it on dev or in training is enough: a run that learned train and not dev has overfit,
    which is another thing."""
    watch = ChanceWatch(ready("classify"), steps=10)
    assert watch.failed
    watch.see_score(watch.chance + 0.9 / 40**0.5)  # within the noise of 40 examples
    watch.see_loss(1.38)
    assert watch.failed
    watch.see_loss(1.0)
    assert not watch.failed
    watch.begin()
    watch.see_score(watch.chance + 1.1 / 40**0.5)
    assert not watch.failed
    assert ChanceWatch(ready("regress"), steps=10).chance_loss == pytest.approx(
        2.0, rel=0.2
    )  # the variance of 0 … 4
    assert ChanceWatch(ready("choose"), steps=10).chance_loss == pytest.approx(
        1.0986, abs=1e-4
    )  # ln 3
    assert ChanceWatch(ready("answer"), steps=10).chance_loss is None


def test_what_is_gentler() -> None:
    def spec(attempt: int, warmup: float = 0.1) -> OptimizerSpec:
        wish = recipe(warmup=warmup, learning_rate=9e-3, steps=100, epochs=None)
        job = FinetuneJob(wish, ready("classify").train.inputs, CPU)
        job.begin(attempt, 100 * attempt)
        return job.spec

    first = spec(0)
    assert (first.learning_rate, first.warmup) == (9e-3, 0.1)
    assert spec(1) == replace(first, learning_rate=9e-3 / 3, warmup=20)
    assert spec(2) == replace(first, learning_rate=9e-3 / 9, warmup=40)
    assert spec(3).warmup == 50
    assert spec(1, warmup=0.0).warmup == 2


def test_twenty_times_out_of_memory_changes_no_loss(tmp_path: Path) -> None:
    wish = recipe(
        steps=24,
        batch_size=16,
        microbatch_tokens=4096,
        encoder_dropout=0.0,
        head_dropout=0.0,
        save_every=0,
    )
    tune(wish, tmp_path / "whole")

    class Short(WatchedTuning):
        failed = 0

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            compute, done = self.job.losses, set[int]()

            def short(model: Any, microbatch: Any, step: int) -> Any:
                if step < 20 and step not in done and len(microbatch) > 1:
                    done.add(step)
                    Short.failed += 1
                    raise torch.OutOfMemoryError("faked")
                return compute(model, microbatch, step)

            self.job.losses = short  # type: ignore[method-assign]

    def forget(event: Event) -> None:
        if isinstance(event, BetweenSteps) and event.state.step % 3 == 0:
            training.run.loop.most_rows = None

    training = Short(wish, ready("classify"), source(), CPU)
    training.run.subscribers.append(forget)
    training.train(tmp_path / "short", progress=False)
    assert Short.failed == 20
    assert sum(event["event"] == "memory" for event in events(tmp_path / "short")) == 20
    assert losses(tmp_path / "short") == pytest.approx(losses(tmp_path / "whole"), rel=1e-5)


def full(*args: Any, **kwargs: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_costs_snapshots_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(recipe(), tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "write", full)
        tune(recipe(), tmp_path / "run")
    assert all("the disk of" in event["message"] for event in events(tmp_path / "run"))
    kept = [record for record in essence(tmp_path / "run") if record["kind"] != "event"]
    assert kept == essence(tmp_path / "whole")


def test_the_best_weights_wait_in_memory_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first evaluation is best and cannot be written; the weights of that step are written
    later, not those of then."""
    save, room = Checkpoint.save, {"from": 2}

    def tight(self: Checkpoint, *args: Any, **kwargs: Any) -> Any:
        room["from"] -= 1
        return full() if room["from"] >= 0 else save(self, *args, **kwargs)

    class First(WatchedTuning):
        """Only the first evaluation counts."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            predict = self.evaluation.predict

            def first(pause: Callable[[], None]) -> Any:
                card, predictions = predict(pause)
                truth = [example.label for example in self.prepared.dev.examples]
                return card, [
                    replace(p, label=t) if self.evaluation.evaluated < 0 else p
                    for p, t in zip(predictions, truth, strict=True)
                ]

            self.evaluation.predict = first  # type: ignore[method-assign]

    First(recipe(), ready("classify"), source(), CPU).train(tmp_path / "whole", progress=False)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", tight)
        First(recipe(), ready("classify"), source(), CPU).train(tmp_path / "run", progress=False)
    (event,) = (event for event in events(tmp_path / "run") if event["event"] == "snapshot")
    assert re.search(r"best could not be written: .*No space left", event["message"])
    mine, theirs = (
        Checkpoint.load(tmp_path / name / "final").model.state_dict() for name in ("run", "whole")
    )
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert result(tmp_path / "run")["best_step"] == 6


def test_a_disk_too_full_at_the_end_says_what_to_do_and_the_same_command_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", full)
        with pytest.raises(
            CheckpointError,
            match=r"at its end, but the checkpoint .*best could not be written: .*No space",
        ):
            tune(recipe(), tmp_path / "run")
    again = tune(recipe(), tmp_path / "run")
    assert Checkpoint.load(tmp_path / "run" / "final").task is not None
    assert again.result.steps == 16  # type: ignore[attr-defined]


@pytest.mark.parametrize("what", ["save_predictions", "write_json"])
def test_a_disk_too_full_for_the_result_says_so_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    tune(recipe(), tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(conclusion, what, full)
        with pytest.raises(
            CheckpointError,
            match=r"at its end, but its result could not be written: .*No space.*; free some",
        ):
            tune(recipe(), tmp_path / "run")
    assert tune(recipe(), tmp_path / "run").calls == 0
    assert_same_tuning(tmp_path / "run", tmp_path / "whole")


def test_a_damaged_result_says_what_to_do(tmp_path: Path) -> None:
    tune(recipe(steps=1), tmp_path)
    (tmp_path / "result.json").write_text("{")
    with pytest.raises(
        CheckpointError,
        match=r"result.json cannot be read: .*; remove the folder, and give the same command",
    ):
        tune(recipe(steps=1), tmp_path)


def test_without_a_snapshot_to_go_back_to_it_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SnapshotStore, "save", lambda self, snapshot: None)
    poisoned({3: 1}, recipe(max_skips=0, retries=1)).train(tmp_path, progress=False)
    assert result(tmp_path)["attempts"] == 2


def test_a_disk_that_is_full_at_the_end_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wish = recipe(steps=2, calibrate=True)
    prepared = prepare(wish, made("classify"), tokenizer_of(source(), ""))
    with contextlib.ExitStack() as stack:

        def fill(*args: Any) -> float:
            stack.enter_context(full_disk(2000))
            return 1.0

        monkeypatch.setattr(conclusion, "fit_temperature", fill)
        with pytest.raises(CheckpointError, match=r"could not be written: .*\(os error 27\); free"):
            WatchedTuning(wish, prepared, source(), CPU).train(tmp_path, progress=False)
    monkeypatch.undo()
    assert (tmp_path / "snapshots").exists()
    WatchedTuning(wish, prepared, source(), CPU).train(tmp_path, progress=False)
    assert result(tmp_path)["steps"] == 2
    assert not (tmp_path / "snapshots").exists()
    (tmp_path / "snapshots" / "step-00000002").mkdir(parents=True)  # killed while removing them
    WatchedTuning(wish, prepared, source(), CPU).train(tmp_path, progress=False)
    assert not (tmp_path / "snapshots").exists()

    def full(*args: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(seeds, "_copy_checkpoint", full)
    with pytest.raises(CheckpointError, match=r"run is at its end, but .*No space left on device"):
        train_seeds(recipe(steps=1), ready("classify"), source(), CPU, tmp_path / "two", seeds=2)


def test_several_seeds_have_a_median_a_spread_and_a_best(tmp_path: Path) -> None:
    wish, said = recipe(epochs=4), list[str]()
    summed = train_seeds(
        wish, ready("classify"), source(), CPU, tmp_path, seeds=3, say=said.append, progress=False
    )
    summary = summed.details
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    scores = [result(tmp_path / f"seed-{number}")["score"] for number in range(3)]
    assert len(set(scores)) > 1
    assert summary["score"] == sorted(scores)[1] == summed.scores["accuracy"]
    assert summary["scores"]["accuracy"] == pytest.approx(
        {
            "median": sorted(scores)[1],
            "mean": statistics.mean(scores),
            "deviation": statistics.stdev(scores),
            "lowest": min(scores),
            "highest": max(scores),
        }
    )
    best = tmp_path / f"seed-{summary['best_seed']}" / "final" / "model.safetensors"
    assert (tmp_path / "final" / "model.safetensors").read_bytes() == best.read_bytes()
    assert Checkpoint.load(tmp_path / "final").task is not None
    assert said == ["seed 0, 1 of 3", "seed 1, 2 of 3", "seed 2, 3 of 3"]
    alone = tune(replace(wish, seed=1), tmp_path / "alone").result  # type: ignore[attr-defined]
    assert alone.details["score"] == scores[1]
    assert (
        train_seeds(wish, ready("classify"), source(), CPU, tmp_path, seeds=3, say=said.append)
        == summed
    )


def test_one_seed_that_diverges_is_part_of_the_spread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from litebert.train.finetune import seeds as module

    class Sometimes(WatchedTuning):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(
                *args, **{name: value for name, value in kwargs.items() if name != "say"}
            )

        def train(self, *args: Any, **kwargs: Any) -> Any:
            if self.recipe.seed == 1 or "all" in str(args[0]):
                raise DivergedError("diverged at step 3")
            return super().train(*args, **kwargs)

    monkeypatch.setattr(module, "Finetuning", Sometimes)
    common = {"seeds": 2, "say": lambda message: None, "progress": False}
    summary = train_seeds(
        recipe(), ready("classify"), source(), CPU, tmp_path / "one", **common
    ).details
    assert [each["score"] is None for each in summary["seeds"]] == [False, True]
    assert summary["failed"] >= 1
    with pytest.raises(DivergedError):
        train_seeds(recipe(), ready("classify"), source(), CPU, tmp_path / "all", **common)
