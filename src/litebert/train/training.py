"""One run in its folder, whatever it learns: what pretraining and fine-tuning have in common. A job
in; a finished run out.
 Starting, going on where an earlier process stopped, snapshots, status and the ways a run can end
are here; what is learned, how it is scored and what is kept at the end are the subclass's.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from safetensors import SafetensorError
from torch.optim import Optimizer

from litebert.data.stream import Position
from litebert.errors import DivergedError, InterruptedRunError, LitebertError
from litebert.model.model import Model
from litebert.recipes import Recipe
from litebert.storage.checkpoint import Checkpoint
from litebert.storage.snapshot import SnapshotStore
from litebert.train.claim import claim
from litebert.train.folder import RunFolder
from litebert.train.guard import Guard
from litebert.train.keep import Keeper
from litebert.train.log import Log, Sink
from litebert.train.loop import Job, Loop, Rows, State, Stopped, Sums, Update
from litebert.train.progress import ProgressSink
from litebert.train.runtime import Runtime
from litebert.train.stop import StopSignal
from litebert.train.working import WorkingCopy

B = TypeVar("B", bound=Rows)
S = TypeVar("S", bound=Sums)
Say = Callable[[str], None]


def to_stderr(message: str) -> None:
    print(message, file=sys.stderr)


def silent(message: str) -> None:
    """Only the first rank speaks."""


class Training(ABC, Generic[B, S]):
    """A run, ready to go: `train()` runs or resumes it to its end."""

    recipe: Recipe
    inputs: Mapping[str, str | None]
    """What the run is made from, beside its recipe."""
    runtime: Runtime
    model: Model
    working: WorkingCopy[Model]
    optimizer: Optimizer
    job: Job[Model, B, S]
    say: Say
    passes: Callable[[B, int, dict[str, float]], S] | None = None
    """Forward and backward of a microbatch, where it is not as the loop does it: CUDA graphs."""
    update: Update | None = None
    """The optimizer's step, likewise."""

    @abstractmethod
    def wants_evaluation(self, step: int) -> bool:
        """Whether the model is to be scored before `step`."""

    @abstractmethod
    def evaluate(self, state: State, stop: StopSignal) -> None:
        """Score the model and note it."""

    @abstractmethod
    def position(self, step: int) -> Position:
        """Where `step` begins in the data."""

    @abstractmethod
    def memory(self) -> dict[str, Any]:
        """What a snapshot keeps of this class."""

    @abstractmethod
    def recall(self, memory: Mapping[str, Any], step: int, position: Position) -> None:
        """The inverse, and the data at that place."""

    @abstractmethod
    def finish(self, state: State) -> dict[str, Any]:
        """After the last step: write what is kept; the run's result."""

    def finished(self) -> dict[str, Any] | None:
        """The result of a run that an earlier process brought to its end, where that need not be
        found out again."""
        return None

    def run_steps(self, state: State) -> State:
        return self._loop().run(state)

    def sinks(self) -> tuple[Sink, ...]:
        """What else looks at each record."""
        return ()

    def open(self) -> None:
        """Whatever needs the run's folder, which is known now."""

    def close(self) -> None:
        """Whatever the run had open."""

    def train(
        self, out: Path | str, *, sinks: tuple[Sink, ...] = (), progress: bool = True
    ) -> dict[str, Any]:
        """Run to the end in the folder `out`, going on where an earlier process stopped; the
        result."""
        self.folder = RunFolder(out)
        if self.runtime.is_main:
            self.folder.hold()
        try:
            moved = claim(self.folder, self.recipe, self.inputs, self.runtime)
            done = self.finished()
            if done is not None:
                return done
            if moved:
                self.say(
                    "the run goes on, but not bit for bit as where it began: " + "; ".join(moved)
                )
            self.open()
            return self._train(sinks, progress=progress)
        finally:
            self.close()
            self.folder.release()

    def _train(self, sinks: tuple[Sink, ...], *, progress: bool) -> dict[str, Any]:
        recipe, main = self.recipe, self.runtime.is_main
        self.guard = self.make_guard()
        self.log = Log(self.folder.metrics if main else None)
        store = SnapshotStore(self.folder.snapshots, keep=recipe.keep_snapshots)
        self.keeper = Keeper(store, self.model, self.optimizer, log=self.log, runtime=self.runtime)
        try:
            with ProgressSink(self.job.steps, silent=not (main and progress)) as self.progress:
                self.log.sinks = (self.progress, *sinks, *self.sinks()) if main else ()
                state = self.restore()
                if state is None:
                    self.log.rewind(0)
                    state = State()
                else:
                    self.log.announce(
                        "event",
                        state.step,
                        event="resumed",
                        message=f"going on at step {state.step:,}",
                    )
                self.write_status("running", state)
                return self.finish(self.run_steps(state))
        except BaseException as error:
            if main:
                self.folder.write_status(_ended(error), reason=str(error) or type(error).__name__)
            raise
        finally:
            self.log.close()

    def make_guard(self) -> Guard:
        recipe = self.recipe
        return Guard(
            max_skips=recipe.max_skips,
            max_rollbacks=recipe.max_rollbacks,
            spike_factor=recipe.spike_factor,
        )

    def _loop(self) -> Loop[Model, B, S]:
        return Loop(
            self.job,
            working=self.working,
            optimizer=self.optimizer,
            runtime=self.runtime,
            guard=self.guard,
            log=self.log,
            save=self.save,
            restore=self.restore,
            beside=self.beside,
            max_grad_norm=self.recipe.optimizer.max_grad_norm,
            passes=self.passes,
            update=self.update,
            ahead=self.ahead,
        )

    def ahead(self, step: int) -> None:
        """What may be made ready for the next step while the device is busy with this one."""

    def beside(self, state: State, stop: StopSignal) -> None:
        """Before each step and after the last: evaluation and snapshots, where they are due; one to
        begin with."""
        if self.wants_evaluation(state.step):
            self.evaluate(state, stop)
        # not while steps are skipped: what a run may have to go back to should be from before the
        # trouble
        due = state.step == 0 or (
            is_due(state.step, self.recipe.save_every) and not self.guard.skips
        )
        if state.step != self.keeper.saved and (state.step == self.job.steps or due):
            self.save(state)

    def pause(self, stop: StopSignal) -> Callable[[], None]:
        """What an evaluation calls between batches, equally often on every rank: raises where a
        signal came."""

        def look() -> None:
            if self.runtime.total({"stop": float(stop.wanted)})["stop"]:  # agreed by all ranks
                raise Stopped

        return look

    def save(self, state: State) -> bool:
        """A snapshot of this moment; whether it is on the disk."""
        extra = self.memory() | {"guard": self.guard.state()}
        kept = self.keeper.save(
            state, self.position(state.step), extra, recipe=self.recipe.fingerprint
        )
        self.write_status("running", state)
        return kept

    def restore(self) -> State | None:
        """The state of the newest valid snapshot; None where there is none."""
        snapshot = self.keeper.latest()
        if snapshot is None:
            return None
        if (
            snapshot.recipe != self.recipe.fingerprint
        ):  # told, not refused: another release may know more settings
            self.say(
                f"the snapshot of step {snapshot.step:,} is of another recipe than "
                f"{self.folder.recipe} says: that was edited, "
                "or written by another release; the run goes on, and no longer is what one recipe "
                "gives"
            )
        self.working.refresh()
        self.recall(snapshot.extra, snapshot.step, Position(snapshot.epoch, snapshot.index))
        if not self.guard.rollbacks:  # a run that goes back remembers how often it did
            self.guard.load(snapshot.extra["guard"])
        return State(step=snapshot.step, **snapshot.extra["state"])

    def write_checkpoint(self, checkpoint: Checkpoint, path: Path) -> str | None:
        """Weights to predict from; a full disk costs them and not the run. What went wrong, if
        anything."""
        try:
            checkpoint.save(path, replace=True)
        except (OSError, SafetensorError, LitebertError) as error:
            return f"the checkpoint {path} could not be written: {error}; free some space"
        return None

    def report(self, message: str, *, event: str = "snapshot", step: int) -> None:
        self.log.write("event", step, event=event, message=message)

    def write_status(self, word: str, state: State) -> None:
        if self.runtime.is_main:
            self.folder.write_status(
                word,
                step=state.step,
                steps=self.job.steps,
                tokens=state.tokens,
                seconds=state.seconds,
            )


def is_due(step: int, every: int) -> bool:
    return every > 0 and step > 0 and step % every == 0


def _ended(error: BaseException) -> str:
    """How a run that did not finish ended, in one word for status.json."""
    if isinstance(error, InterruptedRunError | KeyboardInterrupt):
        return "interrupted"
    return "diverged" if isinstance(error, DivergedError) else "stopped"
