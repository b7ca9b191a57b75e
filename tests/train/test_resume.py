"""A run that was interrupted and resumed equals one that was not, bit for bit: at any microbatch,
stage, evaluation, epoch."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from litebert.errors import InterruptedRunError
from litebert.recipes import OptimizerName, PretrainRecipe
from litebert.testing import tiny_recipe
from litebert.train.log import Log
from litebert.train.loop import BetweenSteps, Event
from tests.helpers.pretraining import (
    CPU,
    Watched,
    assert_same_run,
    essence,
    events,
    signalled,
    staged_recipe,
    train,
)


@pytest.fixture(scope="module")
def whole(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """An undisturbed run, and how many microbatches it has."""
    run = tmp_path_factory.mktemp("whole") / "run"
    return run, train(staged_recipe(), shards, run).calls


def test_the_undisturbed_run_crosses_stages_and_epochs(whole: tuple[Path, int]) -> None:
    steps = [record for record in essence(whole[0]) if record["kind"] == "step"]
    assert [record["step"] for record in steps] == list(range(12))
    assert {
        (record["batch_size"], record["sequence_length"], record["depth"]) for record in steps
    } == {
        (6, 16, 1),
        (8, 16, 1),
        (8, 24, 1),
        (8, 24, 2),
        (8, 16, 2),
    }
    assert [record["step"] for record in essence(whole[0]) if record["kind"] == "evaluation"] == [
        5,
        10,
        12,
    ]
    status = json.loads((whole[0] / "status.json").read_text())
    assert (status["state"], status["step"], status["steps"]) == ("finished", 12, 12)


@pytest.mark.parametrize("part", [0.0, 0.2, 0.4, 0.55, 0.7, 0.85, 0.999])
def test_interrupted_anywhere_it_ends_as_if_it_had_not_been(
    whole: tuple[Path, int], shards: Path, tmp_path: Path, part: float
) -> None:
    run, calls = whole
    with pytest.raises(
        InterruptedRunError,
        match=r"interrupted at step \d+ of 12; saved, the same command resumes it",
    ):
        train(staged_recipe(), shards, tmp_path / "run", at=signalled(int(part * calls)))
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "interrupted"
    train(staged_recipe(), shards, tmp_path / "run")
    assert_same_run(tmp_path / "run", run)


def test_interrupted_again_and_again_with_workers(
    whole: tuple[Path, int], shards: Path, tmp_path: Path
) -> None:
    """Every sitting does a few microbatches; the number of workers may change between them."""
    sittings = 0
    for workers in (2, 1, 0, 0, 0, 0, 0, 0, 0, 0):
        sittings += 1
        try:
            train(staged_recipe(), shards, tmp_path / "run", at=signalled(8), workers=workers)
            break
        except InterruptedRunError:
            continue
    assert sittings > 4
    assert_same_run(tmp_path / "run", whole[0])


@pytest.mark.parametrize("step", [5, 10, 12])
def test_ctrl_c_inside_evaluation_is_saved(
    whole: tuple[Path, int], shards: Path, tmp_path: Path, step: int
) -> None:
    """Also in the evaluation at the end, when all steps are done."""

    def interrupt(event: Event) -> None:
        if isinstance(event, BetweenSteps) and event.state.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    training = Watched(staged_recipe(), shards, CPU)
    training.run.subscribers.insert(0, interrupt)
    with pytest.raises(InterruptedRunError, match=f"interrupted at step {step} of 12; saved"):
        training.train(tmp_path / "run", progress=False)
    assert essence(tmp_path / "run")[-1]["step"] == step - 1
    train(staged_recipe(), shards, tmp_path / "run")
    assert_same_run(tmp_path / "run", whole[0])


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_killed_process_loses_only_what_follows_its_last_snapshot(
    whole: tuple[Path, int],
    shards: Path,
    tmp_path: Path,
    part: float,
    kill: Callable[[PretrainRecipe, Path, Path, int], None],
) -> None:
    """No handler runs; a torn last line of metrics and half a snapshot may be left behind."""
    kill(staged_recipe(), shards, tmp_path / "run", int(part * whole[1]))
    with (tmp_path / "run" / "metrics.jsonl").open("ab") as metrics:
        metrics.write(b'{"kind": "step", "st')
    torn = tmp_path / "run" / "snapshots" / ".step-00000099.tmp-abcd"
    torn.mkdir()
    (torn / "model.safetensors").write_bytes(b"half")
    train(staged_recipe(), shards, tmp_path / "run")
    assert_same_run(tmp_path / "run", whole[0])
    assert not torn.exists()


def test_a_damaged_snapshot_is_set_aside_told_and_the_one_before_is_used(
    whole: tuple[Path, int], shards: Path, tmp_path: Path
) -> None:
    with pytest.raises(InterruptedRunError):
        train(staged_recipe(), shards, tmp_path / "run", at=signalled(whole[1] * 3 // 4))
    newest = sorted((tmp_path / "run" / "snapshots").iterdir())[-1]
    weights = newest / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    told = train(staged_recipe(), shards, tmp_path / "run")
    (event,) = (event for event in events(tmp_path / "run") if event["event"] == "snapshot")
    assert "a bad snapshot is passed over, kept as " + newest.name + ".bad" in event["message"]
    assert told.result.steps == 12  # type: ignore[attr-defined]
    records = [record for record in essence(tmp_path / "run") if record.get("event") != "snapshot"]
    assert records == essence(whole[0])


def test_without_a_valid_snapshot_it_begins_anew_and_says_so(
    whole: tuple[Path, int], shards: Path, tmp_path: Path
) -> None:
    with pytest.raises(InterruptedRunError):
        train(staged_recipe(), shards, tmp_path / "run", at=signalled(whole[1] * 3 // 4))
    snapshots = sorted((tmp_path / "run" / "snapshots").iterdir())
    for folder in snapshots:
        (folder / "model.safetensors").write_bytes(b"half")
    train(staged_recipe(), shards, tmp_path / "run")
    messages = [
        event["message"] for event in events(tmp_path / "run") if event["event"] == "snapshot"
    ]
    assert len(messages) == len(snapshots) + 1
    assert f"passed over, kept as {snapshots[-1].name}.bad" in messages[0]
    assert messages[-1] == "no valid snapshot is left, so the run begins anew"
    records = [record for record in essence(tmp_path / "run") if record.get("event") != "snapshot"]
    assert records == essence(whole[0])


def test_a_finished_run_given_again_answers_at_once(whole: tuple[Path, int], shards: Path) -> None:
    before = essence(whole[0])
    again = train(staged_recipe(), shards, whole[0])
    assert again.calls == 0
    assert again.result.scores["masked_loss"] == before[-1]["masked_loss"]  # type: ignore[attr-defined]
    assert essence(whole[0]) == before


@pytest.mark.parametrize("damaged", [False, True])
def test_a_finished_run_without_snapshots_is_not_begun_again(
    whole: tuple[Path, int], shards: Path, tmp_path: Path, damaged: bool
) -> None:
    """Snapshots are three times the model, and the first that one deletes on a full disk."""
    run = Path(shutil.copytree(whole[0], tmp_path / "run"))
    result = train(staged_recipe(), shards, run).result  # type: ignore[attr-defined]
    for file in (run / "snapshots").glob("*/model.safetensors"):
        file.write_bytes(b"half")
    if not damaged:
        shutil.rmtree(run / "snapshots")
    again = train(staged_recipe(), shards, run)
    assert again.calls == 0
    assert again.result == result  # type: ignore[attr-defined]
    assert_same_run(run, whole[0])


def test_without_its_final_checkpoint_it_is(
    whole: tuple[Path, int], shards: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(whole[0], tmp_path / "run"))
    for name in ("snapshots", "final"):
        shutil.rmtree(run / name)
    assert train(staged_recipe(), shards, run).calls == whole[1]
    assert_same_run(run, whole[0])


def test_watching_settings_may_change_when_a_run_goes_on(
    whole: tuple[Path, int], shards: Path, tmp_path: Path
) -> None:
    with pytest.raises(InterruptedRunError):
        train(staged_recipe(), shards, tmp_path / "run", at=signalled(whole[1] // 2))
    train(staged_recipe(save_every=3, keep_snapshots=1), shards, tmp_path / "run")
    assert_same_run(tmp_path / "run", whole[0])


def test_what_the_guard_and_the_plateau_watch_know_survives(shards: Path, tmp_path: Path) -> None:
    """A median of norms and an entropy of labels are memory too; without them a resumed run would
    judge differently."""
    recipe = staged_recipe(spike_factor=1.05, plateau_steps=4, steps=30, max_skips=30)
    calls = train(recipe, shards, tmp_path / "whole").calls
    kinds = {event["event"] for event in events(tmp_path / "whole")}
    assert kinds == {"skip", "plateau", "positions"}
    with pytest.raises(InterruptedRunError):
        train(recipe, shards, tmp_path / "parts", at=signalled(int(calls * 0.8)))
    train(recipe, shards, tmp_path / "parts")
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.parametrize("name", get_args(OptimizerName))
def test_every_optimizer_goes_on_exactly(shards: Path, tmp_path: Path, name: str) -> None:
    recipe = tiny_recipe(name=name, steps=6, evaluate_every=0)
    calls = train(recipe, shards, tmp_path / "whole").calls
    with pytest.raises(InterruptedRunError):
        train(recipe, shards, tmp_path / "parts", at=signalled(calls * 2 // 3))
    train(recipe, shards, tmp_path / "parts")
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


def test_cutting_metrics_forgets_what_waits(tmp_path: Path) -> None:
    log = Log(tmp_path / "metrics.jsonl")
    log.write("step", 0, loss=1.0)
    kept = log.offset
    log.write("step", 1, loss=float("nan"))
    log.rewind(kept)
    log.write("step", 1, loss=2.0)
    log.close()
    assert [
        json.loads(line)["loss"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()
    ] == [1.0, 2.0]
