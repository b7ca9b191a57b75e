"""Laws of a recorded update, its graph pretended: it is the plain one, whatever changes from step
to step."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from litebert.optim.groups import set_learning_rate
from litebert.optim.lamb import StepGroup
from litebert.train.graphs import WARM, RecordedStep, RecordedUpdate
from tests.helpers.toy_job import ToyJob, ToyRun
from tests.helpers.updating import SPECS, Rig


@dataclass
class Pretended:
    """In place of a CUDA graph: what was recorded runs again over the very tensors that it was
    recorded with."""

    update: "PretendedUpdate"
    parts: list[StepGroup]
    scalars: torch.Tensor

    def replay(self) -> None:
        for part, gradients in zip(self.parts, self.gradients, strict=True):
            for parameter, gradient in zip(part.parameters, gradients, strict=True):
                parameter.grad = gradient
        self.update.move(self.parts, self.scalars)
        self.update.replays += 1

    def __post_init__(self) -> None:
        self.gradients = [part.gradients for part in self.parts]


class PretendedUpdate(RecordedUpdate):
    records = replays = 0

    def record(self, parts: list[StepGroup]) -> RecordedStep:
        self.records += 1
        scalars = torch.zeros(sum(len(self.optimizer.scalars(part)) for part in parts))
        return RecordedStep(graph=Pretended(self, parts, scalars), scalars=scalars)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SPECS)
def test_replayed_steps_are_plain_steps(name: str) -> None:
    plain, replayed = Rig(SPECS[name]).run(range(12)), Rig(SPECS[name])
    update = replayed.recorded(PretendedUpdate)
    replayed.run(range(12))
    assert update.records == 1
    assert update.replays >= 12 - WARM - 1
    replayed.assert_like(plain, close=1e-5)


@pytest.mark.parametrize("name", SPECS)
def test_the_rate_is_that_of_the_step(name: str) -> None:
    rig = Rig(SPECS[name])
    update = rig.recorded(PretendedUpdate)
    before = rig.run(range(6)).weights()
    rig.run(range(6, 9), rate=lambda step: 0.0)
    assert update.replays >= 3
    assert torch.equal(rig.weights(), before)
    rig.run(range(9, 10))
    assert not torch.equal(rig.weights(), before)


@pytest.mark.parametrize("name", SPECS)
def test_a_restored_snapshot_is_gone_on_from(name: str) -> None:
    """Its moments are other tensors, so the step is recorded again."""
    plain, rig = Rig(SPECS[name]).run(range(12)), Rig(SPECS[name])
    update = rig.recorded(PretendedUpdate)
    snapshot = rig.run(range(6)).snapshot(6)
    rig.run(range(20, 24))
    assert update.records == 1
    rig.restore(snapshot)
    rig.run(range(6, 12))
    assert update.records == 2
    assert plain.distance(rig) < 1e-5


def test_a_new_beginning_forgets_the_moments() -> None:
    plain, rig = Rig(SPECS["muon"]), Rig(SPECS["muon"])
    rig.recorded(PretendedUpdate)
    for each in (plain, rig):
        each.run(range(6))
        each.optimizer.state.clear()
        each.run(range(6, 12))
    assert plain.distance(rig) < 1e-5


@pytest.mark.parametrize("name", SPECS)
def test_layers_that_join_are_moved(name: str) -> None:
    late = {"layers.1": 5, "layers.2": 9}
    plain, rig = Rig(SPECS[name], late=late).run(range(14)), Rig(SPECS[name], late=late)
    update = rig.recorded(PretendedUpdate)
    rig.run(range(14))
    assert update.records == 3
    assert plain.distance(rig) < 1e-5
    assert rig.ages() == plain.ages()


def test_gradients_of_a_held_copy_are_in_the_same_memory_and_begin_anew() -> None:
    plain, held = Rig(SPECS["adamw"]).run(range(1)), Rig(SPECS["adamw"])
    held.working.hold_gradients()
    held.run(range(1))
    before = [parameter.grad for parameter in held.model.parameters()]
    for rig in (plain, held):
        rig.run(range(1, 2))
    for one, mine, theirs in zip(
        before, held.model.parameters(), plain.model.parameters(), strict=True
    ):
        assert mine.grad is one
        assert theirs.grad is not None
        assert mine.grad is not None
        assert torch.equal(mine.grad, theirs.grad)


def test_a_run_that_skips_and_goes_back_is_the_same(tmp_path: Path) -> None:
    """In the loop: what a skipped step left in the held gradients is gone, and the lower rate of a
    return is heard."""

    def run(folder: Path) -> ToyRun:
        job = ToyJob(steps=24, bad_steps=frozenset({8, 17, 18, 19}), times=4)
        return ToyRun(folder, job, torch.bfloat16)

    plain, recorded = run(tmp_path / "plain"), run(tmp_path / "recorded")
    update = PretendedUpdate(recorded.optimizer, recorded.working, pytest.fail)
    recorded.loop.update = update
    one, other = plain.run(), recorded.run()
    assert (
        (one.step, one.learning_rate_scale) == (other.step, other.learning_rate_scale) == (24, 0.5)
    )
    assert update.records == 2
    assert recorded.weights() == pytest.approx(plain.weights(), rel=1e-3, abs=1e-4)


class Failing(RecordedUpdate):
    def record(self, parts: list[StepGroup]) -> RecordedStep:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")


@pytest.mark.parametrize("name", SPECS)
def test_where_recording_fails_all_goes_on_as_before_and_it_is_said_once(name: str) -> None:
    plain, rig = Rig(SPECS[name]).run(range(8)), Rig(SPECS[name])
    update = rig.recorded(Failing)
    rig.run(range(8))
    assert not update.is_on
    assert rig.said == [
        "the optimizer could not be recorded, so its steps run without a CUDA graph: "
        "operation not permitted when stream is capturing"
    ]
    assert torch.equal(rig.weights(), plain.weights())
    assert rig.ages() == plain.ages()


def test_a_step_without_gradients_moves_nothing() -> None:
    rig = Rig(SPECS["muon"], late=dict.fromkeys(("embedding", "layers", "norm"), 9))
    rig.recorded(PretendedUpdate)
    rig.run(range(5))
    assert torch.equal(rig.weights(), rig.start)


@pytest.mark.parametrize("name", SPECS)
def test_a_step_that_was_made_ready_and_not_taken_changes_nothing(name: str) -> None:
    plain, rig = Rig(SPECS[name]).run(range(12)), Rig(SPECS[name])
    update = rig.recorded(PretendedUpdate)

    def after_a_skipped_one() -> None:
        rate = rig.optimizer.param_groups[0]["lr"]
        for each in (0.1, rate):
            set_learning_rate(rig.optimizer, each)
            update.ready()
        update()

    rig.update = after_a_skipped_one
    rig.run(range(12))
    assert update.records == 1
    assert update.replays >= 12 - WARM - 1
    assert plain.distance(rig) < 1e-5
    assert rig.ages() == plain.ages()


def test_a_step_is_made_ready_before_its_loss_is_judged(tmp_path: Path) -> None:
    run, said = (
        ToyRun(tmp_path, ToyJob(steps=3, bad_steps=frozenset({1}), times=1), torch.bfloat16),
        [],
    )
    judge = run.loop.guard.judge

    class Telling(PretendedUpdate):
        def ready(self) -> None:
            said.append(f"ready at {self.optimizer.param_groups[0]['lr']:g}")
            super().ready()

        def __call__(self) -> None:
            said.append("step")
            super().__call__()

    def telling(loss: float, norm: float) -> str:
        said.append("judge")
        return judge(loss, norm)

    run.loop.update = Telling(run.optimizer, run.working, pytest.fail)
    run.loop.guard.judge = telling  # type: ignore[method-assign, assignment]
    run.run()
    rates = [run.job.learning_rate(step) for step in range(3)]
    assert said == [
        *(f"ready at {rates[0]:g}", "judge", "step"),
        *(f"ready at {rates[1]:g}", "judge"),
        *(f"ready at {rates[2]:g}", "judge", "step"),
    ]
