"""Laws of the loop: resuming changes no bit, a NaN is never stepped on, memory and signals cost
nothing but time."""

import os
import re
import signal
from pathlib import Path

import pytest
import torch

from litebert.errors import DivergedError, InterruptedRunError
from litebert.train.runtime import StopSignal
from tests.helpers.toy_job import ToyBatch, ToyJob, ToyRun


def events(run: ToyRun) -> list[str]:
    return [record["event"] for record in run.records if record["kind"] == "event"]


def losses(run: ToyRun) -> list[float]:
    return [record["loss"] for record in run.records if record["kind"] == "step"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_learns(tmp_path: Path, dtype: torch.dtype) -> None:
    run = ToyRun(tmp_path, ToyJob(steps=300), dtype)
    run.every = 100
    assert run.run().step == 300
    assert sum(losses(run)[-20:]) < sum(losses(run)[:20]) / 2
    assert [record["step"] for record in run.records] == list(range(300))
    assert run.records[-1]["tokens"] == 300 * 8


class SignalledJob(ToyJob):
    """Sends this process a SIGTERM before microbatch number `at`."""

    def __init__(self, at: int, number: signal.Signals = signal.SIGTERM) -> None:
        super().__init__(micro=3)
        self.at, self.number, self.calls = at, number, 0

    def losses(self, model: torch.nn.Module, microbatch: ToyBatch, step: int):  # type: ignore[no-untyped-def]
        self.calls += 1
        if self.calls == self.at:
            os.kill(os.getpid(), self.number)
        return super().losses(model, microbatch, step)


@pytest.mark.parametrize("at", range(1, 60, 3))  # three microbatches in each of twenty steps
def test_a_run_interrupted_anywhere_equals_one_that_was_not(tmp_path: Path, at: int) -> None:
    full = ToyRun(tmp_path / "whole", ToyJob(micro=3))
    full.run()
    first = ToyRun(tmp_path / "parts", SignalledJob(at))
    with pytest.raises(
        InterruptedRunError,
        match=r"interrupted at step \d+ of 20; saved, the same command resumes it",
    ):
        first.run()
    second = ToyRun(tmp_path / "parts", ToyJob(micro=3))
    second.run()
    assert second.weights() == full.weights()
    assert losses(first) + losses(second) == losses(full)


def test_ctrl_c_twice_ends_at_once() -> None:
    with StopSignal() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wanted
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_signals_are_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignal():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_nan_is_skipped_and_never_stepped_on(tmp_path: Path) -> None:
    run = ToyRun(tmp_path, ToyJob(bad_steps=frozenset({4, 11, 12})))
    assert run.run().step == 20
    assert events(run) == ["skip"] * 3
    assert all(torch.isfinite(parameter).all() for parameter in run.model.parameters())
    without = ToyRun(tmp_path / "without", ToyJob(bad_steps=frozenset({4})))
    without.run()
    assert losses(run)[5] == losses(without)[5]  # a skipped step leaves nothing behind


def test_after_too_many_skips_the_run_goes_back_with_half_the_rate(tmp_path: Path) -> None:
    run = ToyRun(tmp_path, ToyJob(bad_steps=frozenset({11, 12, 13}), times=3))
    state = run.run()
    assert events(run) == ["skip", "skip", "rollback"]
    assert re.search(
        r"step 13: loss nan .* not stepped on; back at step 10 with learning rate × 0.5",
        run.records[-11]["message"],
    )
    assert run.job.seen == [*range(14), *range(10, 20)]
    assert state.learning_rate_scale == 0.5
    rates = [record["learning_rate"] for record in run.records if record["kind"] == "step"]
    assert rates[-1] == 0.005


def test_a_run_that_stays_bad_stops_with_the_examples_named(tmp_path: Path) -> None:
    run = ToyRun(tmp_path, ToyJob(bad_steps=frozenset(range(7, 20))))
    with pytest.raises(
        DivergedError,
        match=(
            r"diverged at step 9: loss nan .* of examples 1, 2, 3: not stepped on; lower the "
            r"learning rate"
        ),
    ):
        run.run()
    assert all(torch.isfinite(parameter).all() for parameter in run.model.parameters())
    assert DivergedError.exit_code == 4


def test_a_spike_counts_as_bad_where_asked(tmp_path: Path) -> None:
    class Spike(ToyJob):
        def losses(self, model: torch.nn.Module, microbatch: ToyBatch, step: int):  # type: ignore[no-untyped-def]
            sums = super().losses(model, microbatch, step)
            return type(sums)(sums.error * 1000) if step == 30 else sums

    run = ToyRun(tmp_path / "a", Spike(steps=40), spike_factor=20.0)
    run.run()
    assert events(run) == ["skip"]
    run = ToyRun(tmp_path / "b", Spike(steps=40))
    run.run()
    assert events(run) == []


@pytest.mark.parametrize("fits", [1, 2, 3, 5])
def test_out_of_memory_halves_the_microbatch_and_keeps_the_batch(tmp_path: Path, fits: int) -> None:
    """Without dropout the losses are those of the undisturbed run; the step that failed is tried
    again."""
    undisturbed = ToyRun(tmp_path / "a", ToyJob(dropout=0.0))
    short = ToyRun(tmp_path / "b", ToyJob(dropout=0.0, oom_above=fits))
    undisturbed.run()
    short.run()
    assert set(events(short)) == {"memory"}
    assert short.loop.most_rows is not None
    assert short.loop.most_rows <= fits
    assert losses(short) == pytest.approx(losses(undisturbed), rel=1e-6)
    assert short.weights() == pytest.approx(undisturbed.weights(), rel=1e-6, abs=1e-6)


def test_out_of_memory_with_one_row_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(torch.OutOfMemoryError, match="faked"):
        ToyRun(tmp_path, ToyJob(oom_above=0)).run()


def test_other_errors_pass_through(tmp_path: Path) -> None:
    class Broken(ToyJob):
        def losses(self, model: torch.nn.Module, microbatch: ToyBatch, step: int):  # type: ignore[no-untyped-def]
            raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        ToyRun(tmp_path, Broken()).run()


def test_microbatches_add_up_in_bfloat16_too(tmp_path: Path) -> None:
    """Gradients of the copy are collected in float32: eight microbatches err no more than one."""
    for micro in (1, 8):
        run = ToyRun(tmp_path / str(micro), ToyJob(steps=50, micro=micro), torch.bfloat16)
        run.run()
        assert all(parameter.dtype == torch.float32 for parameter in run.model.parameters())
        assert all(
            parameter.dtype == torch.bfloat16 for parameter in run.working.model.parameters()
        )
        assert losses(run)[-1] < losses(run)[0]
