"""THE loop: pretraining and fine-tuning both run here. A job (what is learned) in; a trained model
and a run folder out.
 Every step is a function of the weights, the moments and the step's own batch: randomness is seeded
by the step, so a run that was ended and goes on equals one that was not, bit for bit on a CPU.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from litebert.errors import DivergedError, InterruptedRunError, LitebertError
from litebert.optim.groups import set_rate
from litebert.train.guard import Guard
from litebert.train.log import Log
from litebert.train.runtime import Runtime
from litebert.train.stop import StopSignal
from litebert.train.working import WorkingCopy


class Sums(Protocol):
    """Losses of a microbatch as sums, so that they add up."""

    def __add__(self, other: Self) -> Self: ...
    def detach(self) -> Self: ...
    def numbers(self) -> dict[str, Tensor]: ...


class Rows(Protocol):
    """A batch that can be cut into microbatches of rows."""

    def __len__(self) -> int: ...
    def rows(self, start: int, stop: int) -> Self: ...


B = TypeVar("B", bound=Rows)
S = TypeVar("S", bound=Sums)
M = TypeVar("M", bound=nn.Module)
M_contra = TypeVar("M_contra", bound=nn.Module, contravariant=True)


class Job(Protocol[M_contra, B, S]):
    """What is learned, and from what."""

    steps: int
    """Optimizer updates in the run."""
    seed: int
    """Seed of what a step draws (dropout)."""

    def batch(self, step: int) -> B:
        """This rank's rows of the batch of `step`."""

    def counts(self, batch: B) -> dict[str, float]:
        """What losses are divided by, on this rank."""

    def microbatch_rows(self, step: int) -> int:
        """Rows that one forward and backward takes."""

    def losses(self, model: M_contra, microbatch: B, step: int) -> S:
        """Forward: the losses of some rows, as sums."""

    def mean(self, sums: S, counts: dict[str, float]) -> Tensor:
        """What is minimized, given the counts of all ranks."""

    def rate(self, step: int) -> float:
        """The learning rate of `step`."""

    def describe(
        self, step: int, sums: dict[str, float], counts: dict[str, float]
    ) -> dict[str, Any]:
        """What metrics.jsonl says of a step, `loss` and `tokens` among it."""

    def name(self, batch: B) -> str:
        """Which examples these are, for a message about a step that failed."""


class Update(Protocol):
    """How gradients become weights, and those are rounded, where it is not the optimizer's plain
    step."""

    def ready(self) -> None:
        """Do what does not depend on how the gradients turn out: the device is still making them. A
        call may not follow."""

    def __call__(self) -> None: ...


@dataclass
class State:
    """Where a run stands."""

    step: int = 0
    """Steps done."""
    tokens: int = 0
    """Tokens read in them."""
    seconds: float = 0.0
    """Time spent in them, over all sittings."""
    rate_scale: float = 1.0
    """Halved by every return to a snapshot."""


class Loop(Generic[M, B, S]):
    """Runs a job's steps; `save` (False where it could not), `restore` and `beside` (evaluation)
    are the caller's."""

    def __init__(
        self,
        job: Job[M, B, S],
        *,
        working: WorkingCopy[M],
        optimizer: Optimizer,
        runtime: Runtime,
        guard: Guard,
        log: Log,
        save: Callable[[State], bool | None],
        restore: Callable[[], State | None],
        beside: Callable[[State, StopSignal], None],
        max_grad_norm: float,
        passes: Callable[[B, int, dict[str, float]], S] | None = None,
        update: Update | None = None,
        ahead: Callable[[int], None] = lambda step: None,
    ) -> None:
        self.job = job
        self.parameters = [
            parameter for group in optimizer.param_groups for parameter in group["params"]
        ]
        self.working, self.optimizer = working, optimizer
        self.runtime, self.guard, self.log = runtime, guard, log
        self.save, self.restore, self.beside = (
            save,
            restore,
            beside,
        )  # beside: before each step and after the last
        self.max_grad_norm = max_grad_norm or float("inf")
        self.passes = passes or self.one_pass
        self.update = update
        self.ahead = ahead  # told the next step while the device is busy with this one
        self.most_rows: int | None = None  # what memory turned out to hold

    def run(self, state: State) -> State:
        """Train from `state` to the job's last step."""
        self.working.model.train()
        with StopSignal() as stop:
            while True:
                try:
                    self.beside(state, stop)
                    if state.step >= self.job.steps:
                        return state
                    state = self.step(state, stop)
                except Stopped:
                    saved = self.save(state) is not False
                    how = (
                        "saved, the same command goes on"
                        if saved
                        else "not saved, the same command goes on from before"
                    )
                    raise InterruptedRunError(
                        f"interrupted at step {state.step:,} of {self.job.steps:,}; {how}"
                    ) from None

    def step(self, state: State, stop: StopSignal) -> State:
        """One optimizer update, or a skipped one; raises Stopped, with nothing changed, where a
        signal came."""
        began = time.monotonic()
        batch = self.batch(state.step, stop)
        losses, counts = self.accumulate(batch, state.step, stop)
        self.ahead(state.step + 1)
        self.runtime.sum_gradients(self.parameters)
        gradient_norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.max_grad_norm)
        rate = self.job.rate(state.step) * state.rate_scale
        set_rate(self.optimizer, rate)
        if self.update is not None:
            self.update.ready()
        parts = losses.numbers()
        numbers = torch.stack(
            [gradient_norm, *parts.values()]
        ).tolist()  # the one place where the host waits for the device
        norm, sums = numbers[0], self.runtime.total(dict(zip(parts, numbers[1:], strict=True)))
        shown = self.job.describe(state.step, sums, counts)
        verdict = self.guard.judge(shown["loss"], norm)
        if verdict == "step":
            (self.update or self.one_update)()
        else:
            message = f"loss {shown['loss']:g} and gradient norm {norm:g} of {self.job.name(batch)}: not stepped on"
            if verdict == "rollback":
                return self.roll_back(state, message)
            self.log.write("event", state.step, event=verdict, message=message)
            if verdict == "stop":
                raise DivergedError(
                    f"diverged at step {state.step:,}: {message}; lower the rate or lengthen the "
                    "warm-up, and see metrics.jsonl"
                )
        seconds = state.seconds + time.monotonic() - began
        tokens = state.tokens + shown.pop("tokens")
        self.log.write(
            "step",
            state.step,
            **shown,
            norm=norm,
            rate=rate,
            tokens=tokens,
            seconds=round(seconds, 3),
        )
        return State(
            step=state.step + 1, tokens=tokens, seconds=seconds, rate_scale=state.rate_scale
        )

    def batch(self, step: int, stop: StopSignal) -> B:
        """This rank's batch. A signal to the whole process group may end a data worker that has
        just been started."""
        try:
            return self.job.batch(step)
        except LitebertError:
            if stop.wanted and self.runtime.world_size == 1:
                raise Stopped from None
            raise

    def accumulate(self, batch: B, step: int, stop: StopSignal) -> tuple[S, dict[str, float]]:
        """Forward and backward over the microbatches; where memory runs out, over smaller ones from
        the start."""
        counts = self.runtime.total(self.job.counts(batch) | {"stop": float(stop.wanted)})
        if counts.pop("stop"):  # agreed by all ranks
            raise Stopped
        while True:
            rows = min(self.job.microbatch_rows(step), self.most_rows or len(batch))
            try:
                return self.backward(batch, rows, step, counts, stop), counts
            except RuntimeError as error:
                if not out_of_memory(error) or rows == 1:
                    raise
                self.most_rows = (rows + 1) // 2
                self.log.write(
                    "event",
                    step,
                    event="memory",
                    message=f"out of memory; microbatches of {self.most_rows} rows now",
                )
            # outside of the handler, where the failed pass is no longer referred to
            self.optimizer.zero_grad(set_to_none=True)
            self.working.clear()
            if self.runtime.device.type == "cuda":
                torch.cuda.empty_cache()

    def backward(
        self, batch: B, rows: int, step: int, counts: dict[str, float], stop: StopSignal
    ) -> S:
        """Gradients of the whole batch, `rows` rows at a time."""
        self.optimizer.zero_grad(
            set_to_none=True
        )  # first, so that a skipped step leaves nothing behind
        self.runtime.seed(self.job.seed, step)
        total: S | None = None
        for start in range(0, len(batch), rows):
            if (
                stop.wanted and self.runtime.world_size == 1
            ):  # ranks agree between steps, one alone need not wait
                raise Stopped
            losses = self.passes(batch.rows(start, start + rows), step, counts)
            self.working.collect()
            total = losses if total is None else total + losses
        assert total is not None
        return total

    def one_pass(self, microbatch: B, step: int, counts: dict[str, float]) -> S:
        """Forward and backward of some rows."""
        losses = self.job.losses(self.working.model, microbatch, step)
        self.job.mean(losses, counts).backward()  # type: ignore[no-untyped-call]
        return losses.detach()

    def one_update(self) -> None:
        """Gradients become weights, and those are rounded."""
        self.optimizer.step()
        self.working.refresh()

    def roll_back(self, state: State, why: str) -> State:
        """Return to the last snapshot, and go on from there with half the rate."""
        before = self.restore()
        if before is None:
            raise DivergedError(
                f"diverged at step {state.step:,}: {why}; and no snapshot was saved to go back to"
            )
        scale = min(before.rate_scale, state.rate_scale) / 2
        message = f"step {state.step:,}: {why}; back at step {before.step:,} with rate × {scale:g}"
        self.log.write("event", before.step, event="rollback", message=message)
        state = replace(before, rate_scale=scale)
        self.save(state)  # a run that is killed soon must not forget the lower rate
        return state


class Stopped(Exception):  # noqa: N818 — no error
    """A signal asked the run to end, and nothing of the present step has been applied."""


def out_of_memory(error: RuntimeError) -> bool:
    """Whether torch ran out of memory, on a GPU or on the CPU."""
    return isinstance(
        error, torch.OutOfMemoryError
    ) or "DefaultCPUAllocator: can't allocate memory" in str(error)
