"""One run in its folder, whatever it learns. A learner and subscribers in; a finished run out.

Here are starting and resuming, snapshots, status, and how a run can end. Pretraining and
fine-tuning each assemble a Run: what is learned, how it is scored and what is written at the end
are theirs.
"""

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from safetensors import SafetensorError

from litebert.data.stream import Position
from litebert.errors import (
    CheckpointError,
    DataError,
    DivergedError,
    InterruptedRunError,
    LitebertError,
)
from litebert.files import DISK_FULL
from litebert.recipes import Recipe
from litebert.storage.checkpoint import Checkpoint
from litebert.storage.snapshot import Snapshot, SnapshotStore
from litebert.terminal import write_line
from litebert.train.folder import RunFolder, claim, differences
from litebert.train.learner import B, Learner, S
from litebert.train.log import Log, Sink
from litebert.train.loop import (
    BeforeSnapshot,
    BetweenSteps,
    Evaluated,
    Event,
    Guard,
    Incident,
    Loop,
    State,
    StepDone,
    Subscriber,
)
from litebert.train.progress import ExpectedTime, ProgressSink, TensorBoardSink
from litebert.train.runtime import Runtime, StopSignal

Say = Callable[[str], None]
Result = TypeVar("Result")


def to_stderr(message: str) -> None:
    write_line(message, file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """A finished run. Wherever a model's folder is expected, this will do."""

    folder: Path
    """The run folder: recipe, environment, metrics.jsonl, status and checkpoints; of several seeds,
    the folder of their run folders."""
    scores: dict[str, float]
    """Pretraining: losses and accuracies on held-out text. Fine-tuning: the task's scores on dev,
    their medians if there are several seeds."""
    steps: int
    """Optimizer updates, over all seeds."""
    tokens: int
    """Tokens read, padding included."""
    seconds: float
    """Time spent in steps, over all processes of the run."""
    details: dict[str, Any] = field(default_factory=dict, repr=False)
    """Everything that the run recorded about its result, as the command prints it with --json."""
    notes: tuple[str, ...] = ()
    """What to know about the data and the model: columns recognized, rows left out."""

    @property
    def checkpoint(self) -> Path:
        """The final checkpoint: of fine-tuning the best on dev."""
        return self.folder / "final"

    def __fspath__(self) -> str:
        return str(self.folder)


class _Stateful(Protocol):
    """What a snapshot stores in addition to weights, optimizer and counters."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any], /) -> None: ...


class Run(Generic[B, S]):
    """Owns the folder, the log, the snapshots, the guard and the loop of one run."""

    folder: RunFolder
    log: Log

    def __init__(
        self,
        recipe: Recipe,
        inputs: Mapping[str, str | None],
        learner: Learner[B, S],
        runtime: Runtime,
        *,
        say: Say,
    ) -> None:
        self.recipe, self.inputs, self.runtime, self.say = recipe, inputs, runtime, say
        self.learner, self.job = learner, learner.job
        self.subscribers: list[Subscriber] = []
        """Called with every event, in this order, after it was logged and before a snapshot."""
        self.stateful: dict[str, _Stateful] = {}
        """What a snapshot stores, by its name there."""
        self.guard = self.new_guard()
        self.saved = -1
        """The step of the newest snapshot."""
        self.state = State()
        """Between the last two steps."""

    def execute(
        self,
        out: Path | str,
        train: Callable[[State], Result],
        *,
        finished: Callable[[], Result | None] = lambda: None,
        tensorboard: bool = False,
        progress: bool = True,
    ) -> Result:
        """Hold the folder `out`, start or resume, and `train` from there; its result, or at once
        that of a run that an earlier process has `finished`. `tensorboard` writes its events there,
        too."""
        sinks: tuple[Sink, ...] = ()
        if tensorboard and self.runtime.is_main:
            sinks = (TensorBoardSink(Path(out) / "tensorboard"),)
        with self._held(RunFolder(out)) as changes:
            result = finished()
            if result is not None:
                if self.runtime.is_main:  # an earlier process may have been killed at this
                    shutil.rmtree(self.folder.snapshots, ignore_errors=True)
                return result
            if self.runtime.threads is not None and progress:
                self.say(f"computing with {self.runtime.threads}")
            if changes:
                self.say("the run resumes, but not bit for bit: " + "; ".join(changes))
            with self._logged(sinks, progress=progress):
                return train(self._start())

    def steps(self, state: State) -> State:
        """Run the loop from `state` to its end; SIGTERM, Ctrl-C and the runtime's deadline save and
        raise InterruptedRunError."""
        self.loop = Loop(
            self.learner,
            runtime=self.runtime,
            guard=self.guard,
            snapshots=self,
            emit=self.emit,
            max_grad_norm=self.recipe.optimizer.max_grad_norm,
        )
        with StopSignal(self.runtime.deadline) as stop:
            return self.loop.run(state, stop)

    def emit(self, event: Event) -> None:
        """Log an event, hand it to the subscribers, and save where a snapshot is due."""
        match event:
            case BetweenSteps(state=state):
                self.state = state
            case StepDone(step=step, metrics=metrics):
                self.log.write("step", step, **metrics)
                self.expected(step, metrics)
            case Incident(step=step, kind=kind, message=message):
                self.log.write("event", step, event=kind, message=message)
            case Evaluated(state=state, scores=scores, examples=examples):
                if examples is not None:
                    self.log.write("examples", state.step, examples=examples)
                counters = {"tokens": state.tokens, "seconds": round(state.seconds, 3)}
                self.log.write("evaluation", state.step, **scores, **counters)
        for subscriber in self.subscribers:
            subscriber(event)

    def save_if_due(self, event: Event) -> None:
        """A subscriber: a snapshot at the start, every `save_every` steps and at the end."""
        if not isinstance(event, BetweenSteps):
            return
        step = event.state.step
        # not while steps are skipped: a run should roll back to before the trouble
        is_due = step == 0 or (is_multiple(step, self.recipe.save_every) and not self.guard.skips)
        if step != self.saved and (event.is_last or is_due):
            self.save(event.state)

    def save(self, state: State) -> bool:
        """Write a snapshot while the other ranks wait; whether it was written."""
        self.emit(BeforeSnapshot())
        is_written = self.runtime.is_main and self._write_snapshot(state)
        is_written = bool(self.runtime.broadcast(is_written))
        self.saved = state.step if is_written else self.saved
        self.write_status("running", state, steps=self.job.steps)
        return is_written

    def restore(self, *, is_start: bool = False) -> State | None:
        """Load the newest valid snapshot that the first rank finds, on every rank, and cut metrics
        there; None where there is none, and at the start of a process metrics then begin anew."""
        snapshot = self._newest_snapshot(is_start=is_start)
        if snapshot is None:
            return None
        self.learner.working.refresh()
        for name, component in self.stateful.items():
            component.load_state_dict(snapshot.extra[name])
        self.job.seek(snapshot.step, Position(snapshot.epoch, snapshot.index))
        self.progress.lengthen(self.job.steps)
        if not self.guard.rollbacks:  # a run that rolls back must not forget how often it did
            self.guard.load_state_dict(snapshot.extra["guard"])
        counters = dict(snapshot.extra["state"])
        scale = counters.pop("rate_scale")
        return State(step=snapshot.step, learning_rate_scale=scale, **counters)

    def new_guard(self) -> Guard:
        recipe = self.recipe
        return Guard(
            max_skips=recipe.max_skips,
            max_rollbacks=recipe.max_rollbacks,
            spike_factor=recipe.spike_factor,
        )

    def write_checkpoint(self, checkpoint: Checkpoint, path: Path) -> str | None:
        """Weights to predict from; a full disk costs them and not the run. What went wrong, if
        anything."""
        try:
            checkpoint.save(path, replace=True)
        except (OSError, SafetensorError, LitebertError) as error:
            return f"the checkpoint {path} could not be written: {error}; free some space"
        return None

    def write_status(self, word: str, state: State, *, steps: int) -> None:
        if self.runtime.is_main:
            self.folder.write_status(
                word, step=state.step, steps=steps, tokens=state.tokens, seconds=state.seconds
            )

    @contextmanager
    def _held(self, folder: RunFolder) -> Iterator[list[str]]:
        """No other process runs in the folder meanwhile; what has changed since the run began."""
        self.folder = folder
        if self.runtime.is_main:
            folder.hold()
        try:
            yield claim(folder, self.recipe, self.inputs, self.runtime)
        finally:
            folder.release()

    @contextmanager
    def _logged(self, sinks: tuple[Sink, ...], *, progress: bool) -> Iterator[None]:
        """Metrics are written and progress is shown meanwhile; an error is written to the
        status."""
        is_main = self.runtime.is_main
        self.guard, self.saved = self.new_guard(), -1
        self.expected = ExpectedTime(self.job.work, self.job.work_left, self._tell_time)
        self.log = Log(self.folder.metrics if is_main else None)
        self.store = SnapshotStore(self.folder.snapshots, keep=self.recipe.keep_snapshots)
        try:
            with ProgressSink(self.job.steps, silent=not (is_main and progress)) as self.progress:
                self.log.sinks = (self.progress, *sinks) if is_main else ()
                yield
        except BaseException as error:
            if is_main:
                self.folder.write_status(_ended(error), reason=str(error) or type(error).__name__)
            raise
        finally:
            self.log.close()

    def _tell_time(self, step: int, message: str) -> None:
        if self.runtime.device.type == "cpu":  # a GPU's first steps compile and record
            self.log.announce(step, "expected", message)

    def _start(self) -> State:
        state = self.restore(is_start=True)
        if state is None:
            state = State()
        else:
            self.log.announce(state.step, "resumed", f"resumed at step {state.step:,}")
        if state.step < self.job.steps:
            self._check_space()
        self.write_status("running", state, steps=self.job.steps)
        return state

    def _check_space(self) -> None:
        """Refuse to train where the disk cannot hold one more snapshot and the checkpoints."""
        weights = sum(tensor.nbytes for tensor in self.learner.model.state_dict().values())
        snapshot, checkpoints = 3 * weights, 2 * weights  # with two moments; best and final
        free = self.runtime.broadcast(
            shutil.disk_usage(self.folder.path).free if self.runtime.is_main else 0
        )
        if free < (needed := snapshot + checkpoints):
            raise DataError(
                f"a snapshot and the checkpoints of this run need {needed / 1e6:,.1f} MB, "
                f"{self.folder.path} has {free / 1e6:,.1f} MB free; make room, or choose an --out "
                "on another disk"
            )

    def _newest_snapshot(self, *, is_start: bool) -> Snapshot | None:
        reports: list[str] = []
        self.store.report = reports.append
        snapshot = self.store.latest() if self.runtime.is_main else None
        first = round(self.runtime.broadcast(-1 if snapshot is None else snapshot.step))
        if not self.runtime.is_main and first >= 0:
            snapshot = self.store.latest(set_aside=False)
        step = -1 if snapshot is None else snapshot.step
        if step != first:
            raise CheckpointError(
                f"rank {self.runtime.rank} finds the snapshot of step {step} in "
                f"{self.store.folder}, rank 0 that of {first}; "
                "every machine must see the same run folder, so put it on a shared disk"
            )
        if snapshot is not None:
            self._check_run(snapshot)
            snapshot.restore(self.learner.model, self.learner.optimizer)
            self.log.rewind(snapshot.metrics_offset)
            self.saved = snapshot.step
        elif is_start:
            self.log.rewind(0)
            if reports:
                reports.append("no valid snapshot is left, so the run begins anew")
        for message in reports:
            self.emit(Incident(step=max(step, 0), kind="snapshot", message=message))
        return snapshot

    def _check_run(self, snapshot: Snapshot) -> None:
        """Refuse a snapshot of another run, even where its shapes fit."""
        if snapshot.run:
            differing = differences(snapshot.run, self.recipe, self.inputs)
            if snapshot.run.get("id") != self.folder.run_id:
                differing.append("it has another run's id")
        else:  # of the first release, which knew the recipe's fingerprint alone
            is_foreign = snapshot.recipe != self.recipe.fingerprint or self.folder.run_id
            differing = ["it is of another recipe"] if is_foreign else []
        if differing:
            raise CheckpointError(
                f"the snapshot of step {snapshot.step:,} in {self.store.folder} is of another run, "
                f"or {self.folder.recipe} was edited: {'; '.join(differing)}. Move that snapshot "
                "away, undo the edit, or choose another --out"
            )

    def _write_snapshot(self, state: State) -> bool:
        def report(message: str) -> None:
            self.emit(Incident(step=state.step, kind="snapshot", message=message))

        if not _is_finite(self.learner.model):  # a run that rolls back must not find such weights
            report("weights are not finite any more, so they are not saved")
            return False
        try:
            offset = self.log.offset
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            report(
                f"no snapshot of step {state.step}: the disk is too full even for metrics; free "
                "some space"
            )
            return False
        position = self.job.position(state.step)
        counters = {
            "tokens": state.tokens,
            "seconds": state.seconds,
            "rate_scale": state.learning_rate_scale,
        }
        snapshot = Snapshot.capture(
            self.learner.model,
            self.learner.optimizer,
            step=state.step,
            epoch=position.epoch,
            index=position.index,
            recipe=self.recipe.fingerprint,
            run={
                "id": self.folder.run_id,
                "recipe": self.recipe.to_dict(),
                "inputs": dict(self.inputs),
            },
            metrics_offset=offset,
            extra={
                **{name: component.state_dict() for name, component in self.stateful.items()},
                "guard": self.guard.state_dict(),
                "state": counters,
            },
        )
        self.store.report = report
        return self.store.save(snapshot) is not None


def is_multiple(step: int, every: int) -> bool:
    """Whether something done `every` so many steps, 0 for never, is due before `step`."""
    return every > 0 and step > 0 and step % every == 0


def _is_finite(model: torch.nn.Module) -> bool:
    norms = torch._foreach_norm(list(model.parameters()))
    return bool(torch.stack(norms).isfinite().all())


def _ended(error: BaseException) -> str:
    """How a run that did not finish ended, in one word for status.json."""
    if isinstance(error, InterruptedRunError | KeyboardInterrupt):
        return "interrupted"
    return "diverged" if isinstance(error, DivergedError) else "stopped"
