"""The TensorBoard sink: what is read back equals the records; going back voids what stood; without
the extra, a clear error."""

import builtins
import math
from pathlib import Path
from typing import Any

import pytest

from litebert.errors import MissingExtraError
from litebert.train.log import Log
from litebert.train.progress import TensorBoardSink

STEP = {"loss": 1.5, "masked_accuracy": 0.25, "tokens": 4096}


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(each.step, each.value) for each in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def write(folder: Path, *records: tuple[str, int, dict[str, Any]]) -> None:
    pytest.importorskip("tensorboard")
    sink = TensorBoardSink(folder)
    log = Log(None, (sink,))
    for kind, step, values in records:
        log.write(kind, step, **values)
    sink.close()


def test_what_is_read_back_equals_the_records(tmp_path: Path) -> None:
    held = {"masked_loss": 2.5, "text": "no number", "flag": True}
    write(tmp_path, ("step", 0, STEP), ("step", 1, STEP | {"loss": 1.25}), ("evaluation", 2, held))
    actual = read(tmp_path)
    assert actual["training/loss"] == [(1, 1.5), (2, 1.25)]
    assert actual["training/masked_accuracy"] == [(1, 0.25), (2, 0.25)]
    assert actual["held_out/masked_loss"] == [(2, 2.5)], (
        "after 2 steps, where the second step's point lies too"
    )
    assert set(actual) == {
        "training/loss",
        "training/masked_accuracy",
        "training/tokens",
        "held_out/masked_loss",
    }


def test_a_loss_that_is_not_finite_and_an_event_pass_through(tmp_path: Path) -> None:
    write(
        tmp_path,
        ("step", 0, {"loss": math.nan}),
        ("event", 1, {"event": "skip", "message": "loss nan"}),
        ("step", 1, STEP),
    )
    (_, first), (_, second) = read(tmp_path)["training/loss"]
    assert math.isnan(first)
    assert second == 1.5


def test_going_back_voids_what_stood_from_there_on(tmp_path: Path) -> None:
    steps = [("step", step, {"loss": float(step)}) for step in range(4)]
    again = [("step", step, {"loss": 10.0 + step}) for step in range(2, 4)]
    write(tmp_path, *steps, *again)
    assert [value for _, value in read(tmp_path)["training/loss"]][-2:] == [12.0, 13.0]
    assert [step for step, _ in read(tmp_path)["training/loss"]] == [1, 2, 3, 4], "each step once"


def test_an_event_voids_no_point(tmp_path: Path) -> None:
    """It is told after its step's record, and belongs to the moment before it: no reason to go back
    there."""
    told = {"event": "positions", "message": "positions 16 to 31 start as copies"}
    held = {"masked_loss": 2.5}
    write(
        tmp_path,
        ("step", 0, STEP),
        ("evaluation", 1, held),
        ("step", 1, STEP),
        ("event", 1, told),
        ("step", 2, STEP),
    )
    assert [step for step, _ in read(tmp_path)["training/loss"]] == [1, 2, 3]
    assert [step for step, _ in read(tmp_path)["held_out/masked_loss"]] == [1]


def test_a_resumed_run_keeps_what_it_did_before(tmp_path: Path) -> None:
    """What stands at the step where it resumes was done before the snapshot: only what came later
    is redone."""
    write(
        tmp_path,
        ("step", 0, STEP),
        ("step", 1, STEP),
        ("evaluation", 2, {"masked_loss": 2.5}),
        ("step", 2, STEP),
    )
    write(
        tmp_path,
        ("event", 2, {"event": "resumed", "message": "resumed at step 2"}),
        ("step", 2, STEP | {"loss": 9.0}),
    )
    actual = read(tmp_path)
    assert actual["training/loss"] == [(1, 1.5), (2, 1.5), (3, 9.0)]
    assert actual["held_out/masked_loss"] == [(2, 2.5)]


def test_without_the_package_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "torch.utils.tensorboard":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        MissingExtraError,
        match=r"TensorBoard events needs the package 'tensorboard'.*litebert\[tensorboard\]",
    ):
        TensorBoardSink(tmp_path)
