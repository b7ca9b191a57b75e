"""Pretraining: a recipe and a folder of shards in; a run folder with metrics, snapshots and a checkpoint out (ALBERT §4.1)."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from litebert.checkpoint import Checkpoint
from litebert.config import HeadConfig, ModelConfig
from litebert.data.shards import Shards
from litebert.data.spec import ExampleSpec
from litebert.data.stream import Position, Stream
from litebert.errors import CheckpointError, ConfigError, DivergedError, InterruptedRunError, LitebertError
from litebert.model.model import Model
from litebert.optim.groups import make_optimizer
from litebert.recipes import PretrainRecipe
from litebert.snapshot import SnapshotStore
from litebert.text.tokenizer import Tokenizer
from litebert.train.claim import Inputs, claim
from litebert.train.compile import compile_model
from litebert.train.evaluate import Evaluation
from litebert.train.feed import Feed
from litebert.train.folder import RunFolder
from litebert.train.graft import graft
from litebert.train.guard import Guard
from litebert.train.job import PretrainJob
from litebert.train.keep import Keeper
from litebert.train.log import Log, Record, Sink
from litebert.train.loop import Loop, State, Stopped
from litebert.train.plateau import PlateauWatch
from litebert.train.progress import ProgressSink
from litebert.train.runtime import Runtime
from litebert.train.samples import filled_masks
from litebert.train.stop import StopSignal
from litebert.train.working import WorkingCopy


class Pretraining:
    """One run, ready to go: `train()` runs or resumes it to its end."""

    def __init__(
        self,
        recipe: PretrainRecipe,
        data: Path | str,
        runtime: Runtime,
        *,
        init: Path | str | None = None,
        workers: int = 0,
        say: Callable[[str], None] = lambda message: print(message, file=sys.stderr),
    ) -> None:
        shards = Shards.open(data)
        self.tokenizer = Tokenizer.load(shards.tokenizer_folder)
        start = str(Path(init).resolve()) if init else None
        self.inputs = Inputs(tokenizer=self.tokenizer.fingerprint, corpus=shards.fingerprint, init=start)
        self.recipe, self.runtime = recipe, runtime
        check_ranks(recipe, runtime)
        self.say = say = say if runtime.is_main else _silent
        torch.manual_seed(recipe.seed)  # every rank starts from the same weights
        heads = (HeadConfig(kind="masked"), *([HeadConfig(kind="order")] if recipe.order != "none" else []))
        encoder = replace(recipe.encoder, vocab_size=self.tokenizer.vocab_size)
        self.model = Model(ModelConfig(encoder=encoder, heads=heads), checkpoint_every=recipe.checkpoint_every)
        if init is not None:
            said = graft(self.model, Checkpoint.load(init), self.tokenizer)
            say(f"weights start from {init}: {said}")
        self.model.to(runtime.device)
        self.working = WorkingCopy(self.model, runtime.dtype)
        compiled = compile_model(self.working.model, recipe.compile, runtime, say)
        self.optimizer = make_optimizer(self.model.named_parameters(), recipe.optimizer)
        stream = Stream.open(data, example_spec(recipe), seed=recipe.seed)
        self.feed = Feed(stream, recipe, runtime, workers=workers)
        self.job = PretrainJob(recipe, self.feed, runtime, static_shapes=compiled)
        self.evaluation = Evaluation(stream, runtime, tokens=recipe.evaluate_tokens) if recipe.heldout_fraction else None
        if self.evaluation:
            self.evaluation.check()
        self.evaluated = -1
        self.best: float | None = None
        self.scores: dict[str, Any] = {}

    def train(self, out: Path | str, *, sinks: tuple[Sink, ...] = (), progress: bool = True) -> dict[str, Any]:
        """Run to the end in the folder `out`, going on where an earlier process stopped; the last evaluation."""
        self.folder = RunFolder(out)
        if self.runtime.is_main:
            self.folder.hold()
        try:
            moved = claim(self.folder, self.recipe, self.inputs, self.runtime)
            if moved:
                self.say("the run goes on, but not bit for bit as where it began: " + "; ".join(moved))
            return self._train(sinks, progress=progress)
        finally:
            self.feed.close()
            self.folder.release()

    def _train(self, sinks: tuple[Sink, ...], *, progress: bool) -> dict[str, Any]:
        recipe, main = self.recipe, self.runtime.is_main
        self.guard = Guard(max_skips=recipe.max_skips, max_rollbacks=recipe.max_rollbacks, spike_factor=recipe.spike_factor)
        self.plateau = PlateauWatch(self.tokenizer.vocab_size, steps=recipe.plateau_steps, margin=recipe.plateau_margin)
        self.log = Log(self.folder.metrics if main else None)
        store = SnapshotStore(self.folder.snapshots, keep=recipe.keep_snapshots)
        self.keeper = Keeper(store, self.model, self.optimizer, log=self.log, runtime=self.runtime)
        try:
            with ProgressSink(self.job.steps, silent=not (main and progress)) as shown:
                self.log.sinks = (shown, *sinks, self._watch) if main else ()
                state = self.restore()
                if state is None:
                    self.log.rewind(0)
                    state = State()
                else:
                    self.log.announce("event", state.step, event="resumed", message=f"going on at step {state.step:,}")
                self._status("running", state)
                return self._finish(self._loop().run(state))
        except BaseException as error:
            if main:
                self.folder.write_status(_ended(error), reason=str(error) or type(error).__name__)
            raise
        finally:
            self.log.close()

    def _loop(self) -> Loop[Model, Any, Any]:
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
        )

    def beside(self, state: State, stop: StopSignal) -> None:
        """Before each step and after the last: evaluation and snapshots, where they are due; one to begin with."""
        last = state.step == self.job.steps
        if self.evaluation and state.step != self.evaluated and (last or _due(state.step, self.recipe.evaluate_every)):
            self.evaluate(state, stop)
        # not while steps are skipped: what a run may have to go back to should be from before the trouble
        due = state.step == 0 or (_due(state.step, self.recipe.save_every) and not self.guard.skips)
        if state.step != self.keeper.saved and (last or due):
            self.save(state)

    def evaluate(self, state: State, stop: StopSignal) -> None:
        """Score the held-out text, note it, and keep the best checkpoint."""
        assert self.evaluation is not None

        def pause() -> None:
            if self.runtime.total({"stop": float(stop.wanted)})["stop"]:  # agreed by all ranks
                raise Stopped

        done = max(state.step - 1, 0)
        length, depth = self.feed.at(done)[0], self.job.depth(done)
        scores = self.evaluation(self.working.model, length=length, depth=depth, pause=pause)
        self.evaluated = state.step
        self.scores = scores
        if state.step == self.job.steps and self.runtime.is_main:
            batch = self.evaluation.batches(self.recipe.order, length)[0]
            assert batch is not None, "the first rank has the first batch"
            examples = filled_masks(self.working.model, batch, self.tokenizer)
            self.log.write("examples", state.step, examples=examples)
        self.log.write("evaluation", state.step, **scores, tokens=state.tokens, seconds=round(state.seconds, 3))
        if self.best is None or scores["masked_loss"] < self.best:
            self.best = scores["masked_loss"]
            wrong = self.checkpoint(self.folder.best) if self.runtime.is_main else None
            if wrong:
                self._report(wrong, step=state.step)

    def save(self, state: State) -> bool:
        """A snapshot of this moment; whether it is on the disk."""
        own = {"evaluated": self.evaluated, "best": self.best, "scores": self.scores}
        extra = {"own": own, "guard": self.guard.state(), "plateau": self.plateau.state()}
        kept = self.keeper.save(state, self.feed.position(state.step), extra, recipe=self.recipe.fingerprint)
        self._status("running", state)
        return kept

    def restore(self) -> State | None:
        """The state of the newest valid snapshot; None where there is none."""
        snapshot = self.keeper.latest()
        if snapshot is None:
            return None
        self.working.refresh()
        self.feed.seek(snapshot.step, Position(snapshot.epoch, snapshot.index))
        own = snapshot.extra["own"]
        self.evaluated, self.best, self.scores = own["evaluated"], own["best"], own["scores"]
        if not self.guard.rollbacks:  # a run that goes back remembers how often it did
            self.guard.load(snapshot.extra["guard"])
        self.plateau.load(snapshot.extra["plateau"])
        return State(step=snapshot.step, **snapshot.extra["state"])

    def checkpoint(self, path: Path) -> str | None:
        """Weights to predict from; a full disk costs them and not the run. What went wrong, if anything."""
        try:
            Checkpoint(model=self.model, tokenizer=self.tokenizer).save(path, replace=True)
        except (OSError, SafetensorError, LitebertError) as error:
            return f"the checkpoint {path} could not be written: {error}; free some space"
        return None

    def _finish(self, state: State) -> dict[str, Any]:
        if self.runtime.is_main:
            wrong = self.checkpoint(self.folder.final)
            if wrong:
                raise CheckpointError(f"the run is at its end, but {wrong} and give the same command again")
            self._status("finished", state)
        self.runtime.wait()
        return {"steps": state.step, "tokens": state.tokens, "seconds": state.seconds, **self.scores}

    def _watch(self, record: Record) -> None:
        """Look at each step for the plateau."""
        if record["kind"] == "step" and isinstance(record["masked_loss"], float):
            said = self.plateau.see(record["step"], self.feed.last.masked_labels, record["masked_loss"])
            if said:
                self._report(said, event="plateau", step=record["step"])

    def _report(self, message: str, *, event: str = "snapshot", step: int) -> None:
        self.log.write("event", step, event=event, message=message)

    def _status(self, word: str, state: State) -> None:
        if self.runtime.is_main:
            self.folder.write_status(word, step=state.step, steps=self.job.steps, tokens=state.tokens, seconds=state.seconds)


def check_ranks(recipe: PretrainRecipe, runtime: Runtime) -> None:
    """Every stage's batch must divide among the ranks; said now, not when the stage comes."""
    uneven = [size for size in recipe.batch_size.values if size % runtime.world_size]
    if uneven:
        raise ConfigError(
            f"a batch is divided evenly among ranks, and {uneven[0]} sequences are not among {runtime.world_size}; "
            "change batch_size or the number of processes"
        )


def example_spec(recipe: PretrainRecipe) -> ExampleSpec:
    """How the recipe's examples are made; the length is that of its first stage."""
    return ExampleSpec(
        max_length=recipe.sequence_length.values[0],
        short_probability=recipe.short_probability,
        order=recipe.order,
        mask_fraction=recipe.mask_fraction,
        max_masked=recipe.max_masked,
        max_ngram=recipe.max_ngram,
        copies=recipe.copies,
        heldout_fraction=recipe.heldout_fraction,
    )


def _ended(error: BaseException) -> str:
    """How a run that did not finish ended, in one word for status.json."""
    if isinstance(error, InterruptedRunError | KeyboardInterrupt):
        return "interrupted"
    return "diverged" if isinstance(error, DivergedError) else "stopped"


def _silent(message: str) -> None:
    """Only the first rank speaks."""


def _due(step: int, every: int) -> bool:
    return every > 0 and step > 0 and step % every == 0
