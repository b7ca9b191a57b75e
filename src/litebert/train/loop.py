"""The training loop, shared by pretraining and fine-tuning. A job (what is learned) in; a trained
model and events (what happened) out.

A step is a function of the weights, the optimizer's state and the step's own batch: randomness is
seeded by the step, so a run that was interrupted and resumed equals one that was not, bit for bit
on a CPU. Evaluation, saving and logging are no part of the loop: they subscribe to its events.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Generic, Literal, Protocol, cast

import torch

from litebert.errors import DivergedError, InterruptedRunError, LitebertError
from litebert.optim.groups import set_learning_rate
from litebert.train.learner import B, Learner, S
from litebert.train.runtime import Runtime, StopSignal

_Verdict = Literal["step", "skip", "rollback", "stop"]


class Guard:
    """Judges each step by its loss and gradient norm.

    A loss that is not finite, or a spike (a norm many times the median of the last hundred), is
    skipped; after too many in a row the run rolls back to the last snapshot with half the learning
    rate; after too many of those it stops.
    """

    def __init__(self, *, max_skips: int, max_rollbacks: int, spike_factor: float = 0.0) -> None:
        self.max_skips = max_skips
        self.max_rollbacks = max_rollbacks
        self.spike_factor = spike_factor
        self.skips = 0
        self.rollbacks = 0
        self.norms: deque[float] = deque(maxlen=100)

    def judge(self, loss: float, norm: float) -> _Verdict:
        """Whether this step may be taken, before it is."""
        if math.isfinite(loss) and math.isfinite(norm) and not self._is_spike(norm):
            self.skips = 0
            self.norms.append(norm)
            return "step"
        self.skips += 1
        if self.skips <= self.max_skips:
            return "skip"
        self.skips = 0
        self.rollbacks += 1
        return "rollback" if self.rollbacks <= self.max_rollbacks else "stop"

    def state_dict(self) -> dict[str, Any]:
        """What a snapshot keeps, so that a resumed run judges as this one would have."""
        return {"skips": self.skips, "rollbacks": self.rollbacks, "norms": list(self.norms)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.skips, self.rollbacks = state["skips"], state["rollbacks"]
        self.norms = deque(state["norms"], maxlen=self.norms.maxlen)

    def _is_spike(self, norm: float) -> bool:
        known = len(self.norms) >= 20
        return bool(self.spike_factor) and known and norm > self.spike_factor * median(self.norms)


@dataclass
class State:
    """Where a run stands."""

    step: int = 0
    """Steps done."""
    tokens: int = 0
    """Tokens read in them."""
    seconds: float = 0.0
    """Time spent in them, over all processes of the run."""
    learning_rate_scale: float = 1.0
    """Factor of the learning rate, halved by every rollback."""


@dataclass(kw_only=True)
class BetweenSteps:
    """Before each step and after the last: the model may be evaluated, saved or changed."""

    state: State
    stop: StopSignal
    is_last: bool
    """Whether the run ends here. A subscriber may set it, to end the run early."""


@dataclass(frozen=True, kw_only=True)
class StepDone:
    """A step was taken, or skipped."""

    step: int
    metrics: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Incident:
    """Something to tell: a skipped step, a rollback, less memory, a plateau, a full disk …"""

    step: int
    kind: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """The model was scored between two steps."""

    state: State
    scores: dict[str, Any]
    examples: list[dict[str, Any]] | None = None
    """Predictions to show to a person."""


@dataclass(frozen=True, kw_only=True)
class BeforeSnapshot:
    """A snapshot is about to be taken."""


Event = BetweenSteps | StepDone | Incident | Evaluated | BeforeSnapshot
Subscriber = Callable[[Event], None]


class _Snapshots(Protocol):
    """Where the loop saves on a stop request and returns to after a divergence."""

    def save(self, state: State) -> bool:
        """Whether the snapshot was written."""

    def restore(self) -> State | None:
        """Load the newest one; None where there is none."""


class Loop(Generic[B, S]):
    """Runs a learner's steps."""

    def __init__(
        self,
        learner: Learner[B, S],
        *,
        runtime: Runtime,
        guard: Guard,
        snapshots: _Snapshots | None = None,
        emit: Subscriber = lambda event: None,
        max_grad_norm: float,
    ) -> None:
        self.job, self.working, self.optimizer = learner.job, learner.working, learner.optimizer
        self.passes, self.update = learner.passes, learner.update
        self.parameters = [
            parameter for group in self.optimizer.param_groups for parameter in group["params"]
        ]
        self.runtime, self.guard = runtime, guard
        self.snapshots, self.emit = snapshots, emit
        self.max_grad_norm = max_grad_norm or float("inf")
        self.most_rows: int | None = None
        """Rows that fit into memory, once it has run out."""

    def run(self, state: State, stop: StopSignal) -> State:
        """Train from `state` to the job's last step, or to where a subscriber ends it."""
        self.working.model.train()
        while True:
            try:
                between = BetweenSteps(state=state, stop=stop, is_last=state.step >= self.job.steps)
                self.emit(between)
                if between.is_last:
                    return state
                state = self.step(state, stop)
            except Stopped:
                is_saved = self.snapshots is not None and self.snapshots.save(state)
                how = (
                    "saved, the same command resumes it"
                    if is_saved
                    else "not saved, the same command resumes from the last snapshot"
                )
                raise InterruptedRunError(
                    f"interrupted at step {state.step:,} of {self.job.steps:,}; {how}"
                ) from None

    def step(self, state: State, stop: StopSignal) -> State:
        """One optimizer update, or a skipped one; raises Stopped, with nothing changed, on a stop
        request."""
        began = time.monotonic()
        batch = self._batch(state.step, stop)
        losses, counts = self._accumulate(batch, state.step, stop)
        if self.passes is not None:
            self.passes.prefetch(state.step + 1)
        self.runtime.sum_gradients(self.parameters)
        gradient_norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.max_grad_norm)
        learning_rate = self.job.learning_rate(state.step) * state.learning_rate_scale
        set_learning_rate(self.optimizer, learning_rate)
        if self.update is not None:
            self.update.ready()
        by_name = losses.numbers()
        # the one place where the host waits for the device
        norm, *sums = torch.stack([gradient_norm, *by_name.values()]).tolist()
        totals = self.runtime.total(dict(zip(by_name, sums, strict=True)))
        metrics = self.job.describe(state.step, totals, counts)
        verdict = self.guard.judge(metrics["loss"], norm)
        if verdict == "step":
            (self.update or self._update)()
        else:
            message = (
                f"loss {metrics['loss']:g} and gradient norm {norm:g} of {self.job.name(batch)}: "
                "not stepped on"
            )
            if verdict == "rollback":
                return self._roll_back(state, message)
            self.emit(Incident(step=state.step, kind=verdict, message=message))
            if verdict == "stop":
                raise DivergedError(
                    f"diverged at step {state.step:,}: {message}; lower the learning rate or "
                    "lengthen the warm-up, and see metrics.jsonl"
                )
        seconds = state.seconds + time.monotonic() - began
        tokens = state.tokens + metrics.pop("tokens")
        metrics |= {"gradient_norm": norm, "learning_rate": learning_rate}
        metrics |= {"tokens": tokens, "seconds": round(seconds, 3)}
        self.emit(StepDone(step=state.step, metrics=metrics))
        return replace(state, step=state.step + 1, tokens=tokens, seconds=seconds)

    def forward_backward(self, microbatch: B, step: int, counts: dict[str, float]) -> S:
        """The losses of some rows; gradients are those of the working copy's parameters."""
        if self.passes is not None:
            return cast(S, self.passes(microbatch, step, counts))
        losses = self.job.losses(self.working.model, microbatch, step)
        self.job.mean(losses, counts).backward()  # type: ignore[no-untyped-call]
        return losses.detach()

    def _batch(self, step: int, stop: StopSignal) -> B:
        """This rank's batch. A signal to the whole process group may end a data worker that has
        just been started."""
        try:
            return self.job.batch(step)
        except LitebertError:
            if stop.wanted and self.runtime.world_size == 1:
                raise Stopped from None
            raise

    def _accumulate(self, batch: B, step: int, stop: StopSignal) -> tuple[S, dict[str, float]]:
        """Gradients of the batch; where memory runs out, again in smaller microbatches."""
        counts = self.runtime.total(self.job.counts(batch) | {"stop": float(stop.wanted)})
        if counts.pop("stop"):  # agreed by all ranks
            raise Stopped
        while True:
            rows = min(self.job.microbatch_rows(step), self.most_rows or len(batch))
            try:
                return self._backward(batch, rows, step, counts, stop), counts
            except RuntimeError as error:
                if not out_of_memory(error) or rows == 1:
                    raise
                self.most_rows = (rows + 1) // 2
                message = f"out of memory; microbatches of {self.most_rows} rows now"
                self.emit(Incident(step=step, kind="memory", message=message))
            # outside of the handler, where the failed pass is no longer referred to
            self.optimizer.zero_grad(set_to_none=True)
            self.working.clear()
            if self.runtime.device.type == "cuda":
                torch.cuda.empty_cache()

    def _backward(
        self, batch: B, rows: int, step: int, counts: dict[str, float], stop: StopSignal
    ) -> S:
        """Gradients of the batch, `rows` rows at a time."""
        # first, so that a skipped step leaves nothing behind
        self.optimizer.zero_grad(set_to_none=True)
        self.runtime.seed(self.job.seed, step)
        total: S | None = None
        for start in range(0, len(batch), rows):
            # several ranks agree between steps, one alone need not wait
            if stop.wanted and self.runtime.world_size == 1:
                raise Stopped
            losses = self.forward_backward(batch.rows(start, start + rows), step, counts)
            self.working.collect()
            total = losses if total is None else total + losses
        assert total is not None
        return total

    def _update(self) -> None:
        self.optimizer.step()
        self.working.refresh()

    def _roll_back(self, state: State, why: str) -> State:
        """Return to the last snapshot, and continue from there with half the learning rate."""
        before = self.snapshots.restore() if self.snapshots is not None else None
        if before is None:
            raise DivergedError(
                f"diverged at step {state.step:,}: {why}; and no snapshot was saved to go back to"
            )
        assert self.snapshots is not None
        scale = min(before.learning_rate_scale, state.learning_rate_scale) / 2
        back = f"back at step {before.step:,} with learning rate × {scale:g}"
        message = f"step {state.step:,}: {why}; {back}"
        self.emit(Incident(step=before.step, kind="rollback", message=message))
        state = replace(before, learning_rate_scale=scale)
        self.snapshots.save(state)  # a run that is killed soon must not forget the lower rate
        return state


class Stopped(Exception):  # noqa: N818 — no error
    """A stop request came, and nothing of the present step has been applied."""


def stop_check(runtime: Runtime, stop: StopSignal) -> Callable[[], None]:
    """What an evaluation calls between batches, equally often on every rank: raises Stopped on a
    stop request."""

    def check() -> None:
        if runtime.total({"stop": float(stop.wanted)})["stop"]:  # agreed by all ranks
            raise Stopped

    return check


def out_of_memory(error: RuntimeError) -> bool:
    """Whether torch ran out of memory, on a GPU or on the CPU."""
    return isinstance(
        error, torch.OutOfMemoryError
    ) or "DefaultCPUAllocator: can't allocate memory" in str(error)
