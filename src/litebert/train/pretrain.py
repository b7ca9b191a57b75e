"""Pretraining: a recipe and a folder of shards in; a run folder with metrics, snapshots and a checkpoint out (ALBERT §4.1)."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from litebert.checkpoint import Checkpoint
from litebert.config import HeadConfig, ModelConfig
from litebert.data.shards import Shards
from litebert.data.spec import ExampleSpec
from litebert.data.stream import Position, Stream
from litebert.errors import CheckpointError, ConfigError
from litebert.model.model import Model
from litebert.optim.groups import make_optimizer
from litebert.recipes import PretrainRecipe, difference
from litebert.snapshot import Snapshot, SnapshotStore
from litebert.text.tokenizer import Tokenizer
from litebert.train.compile import compile_model
from litebert.train.evaluate import Evaluation
from litebert.train.feed import Feed
from litebert.train.folder import RunFolder, environment, write_json
from litebert.train.graft import graft
from litebert.train.guard import Guard
from litebert.train.job import PretrainJob
from litebert.train.log import Log, Record, Sink
from litebert.train.loop import Loop, State, Stopped
from litebert.train.plateau import PlateauWatch
from litebert.train.progress import ProgressSink
from litebert.train.runtime import Runtime
from litebert.train.samples import filled_masks
from litebert.train.stop import StopSignal
from litebert.train.working import WorkingCopy


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a run is made from, beside its recipe; a run is only continued with the same."""

    tokenizer: str
    """Fingerprint of the vocabulary."""
    corpus: str
    """Fingerprint of the shards."""
    init: str | None = None
    """The checkpoint that weights start from."""


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
        self.inputs = Inputs(tokenizer=self.tokenizer.fingerprint, corpus=shards.fingerprint, init=str(init) if init else None)
        self.recipe, self.runtime, self.say = recipe, runtime, say
        runtime.seed(recipe.seed)
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
        self.evaluated = -1
        self.best = float("inf")

    def train(self, out: Path | str, *, sinks: tuple[Sink, ...] = (), progress: bool = True) -> dict[str, Any]:
        """Run to the end in the folder `out`, going on where an earlier process stopped; the last evaluation."""
        folder = RunFolder(out)
        main = self.runtime.is_main
        if main:
            folder.hold()
        try:
            self._claim(folder)
            self.folder = folder
            self.store = SnapshotStore(folder.snapshots, keep=self.recipe.keep_snapshots, report=self._report)
            self.log = Log(folder.metrics if main else None)
            self.plateau = PlateauWatch(
                self.tokenizer.vocab_size, steps=self.recipe.plateau_steps, margin=self.recipe.plateau_margin
            )
            state = self.restore()
            with ProgressSink(self.job.steps, start=state.step, silent=not (main and progress)) as shown:
                self.log.sinks = (shown, *sinks, self._watch) if main else ()
                if state.step:
                    self.log.announce("event", state.step, event="resumed", message=f"going on at step {state.step:,}")
                self._status("running", state)
                state = self._loop().run(state)
                return self._finish(state)
        except BaseException as error:
            if main and folder.path.is_dir():
                folder.write_status("stopped", reason=str(error) or type(error).__name__)
            raise
        finally:
            self.feed.close()
            folder.release()

    def _loop(self) -> Loop[Model, Any, Any]:
        recipe = self.recipe
        return Loop(
            self.job,
            working=self.working,
            optimizer=self.optimizer,
            runtime=self.runtime,
            guard=Guard(max_skips=recipe.max_skips, max_rollbacks=recipe.max_rollbacks, spike_factor=recipe.spike_factor),
            log=self.log,
            save=self.save,
            restore=self.restore,
            beside=self.beside,
            max_grad_norm=recipe.optimizer.max_grad_norm,
        )

    def beside(self, state: State, stop: StopSignal) -> None:
        """Before each step and after the last: evaluation and snapshots, where they are due."""
        last = state.step == self.job.steps
        if self.evaluation and state.step != self.evaluated and (last or _due(state.step, self.recipe.evaluate_every)):
            self.evaluate(state, stop)
        if last or _due(state.step, self.recipe.save_every):
            self.save(state)

    def evaluate(self, state: State, stop: StopSignal) -> None:
        """Score the held-out text, note it, and keep the best checkpoint."""
        assert self.evaluation is not None

        def pause() -> None:
            if stop.wanted and self.runtime.world_size == 1:
                raise Stopped

        done = max(state.step - 1, 0)
        length, depth = self.feed.at(done)[0], self.job.depth(done)
        scores = self.evaluation(self.working.model, length=length, depth=depth, pause=pause)
        self.evaluated = state.step
        self.scores = scores
        if state.step == self.job.steps and self.runtime.is_main:
            batch = self.evaluation.batches(self.recipe.order, length)[0]
            examples = filled_masks(self.working.model, batch, self.tokenizer)
            self.log.write("examples", state.step, examples=examples)
        self.log.write("evaluation", state.step, **scores, tokens=state.tokens, seconds=round(state.seconds, 3))
        if scores["masked_loss"] < self.best:
            self.best = scores["masked_loss"]
            if self.runtime.is_main:
                self.checkpoint(self.folder.best)

    def save(self, state: State) -> None:
        """A snapshot of this moment, written by one rank while the others wait."""
        if self.runtime.is_main:
            position = self.feed.position(state.step)
            extra = {"tokens": state.tokens, "seconds": state.seconds, "rate_scale": state.rate_scale}
            own = {"evaluated": self.evaluated, "best": self.best}
            snapshot = Snapshot.capture(
                self.model,
                self.optimizer,
                step=state.step,
                epoch=position.epoch,
                index=position.index,
                recipe=self.recipe.fingerprint,
                metrics_offset=self.log.offset,
                extra={"state": extra, "own": own},
            )
            self.store.save(snapshot)
            self._status("running", state)
        self.runtime.wait()

    def restore(self) -> State:
        """The state of the newest valid snapshot, or of the beginning."""
        snapshot = self.store.latest(set_aside=self.runtime.is_main)
        if snapshot is None:
            self.log.rewind(0)
            return State()
        snapshot.restore(self.model, self.optimizer)
        self.working.refresh()
        self.log.rewind(snapshot.metrics_offset)
        self.feed.seek(snapshot.step, Position(snapshot.epoch, snapshot.index))
        self.evaluated, self.best = snapshot.extra["own"]["evaluated"], snapshot.extra["own"]["best"]
        return State(step=snapshot.step, **snapshot.extra["state"])

    def checkpoint(self, path: Path) -> None:
        """Weights to predict from; a full disk costs them and not the run."""
        try:
            Checkpoint(model=self.model, tokenizer=self.tokenizer).save(path, replace=True)
        except (OSError, CheckpointError) as error:
            self._report(f"the checkpoint {path} could not be written: {error}")

    def _finish(self, state: State) -> dict[str, Any]:
        if self.runtime.is_main:
            Checkpoint(model=self.model, tokenizer=self.tokenizer).save(self.folder.final, replace=True)
            self._status("finished", state)
            self.log.close()
        self.runtime.wait()
        return {"steps": state.step, "tokens": state.tokens, "seconds": state.seconds, **getattr(self, "scores", {})}

    def _claim(self, folder: RunFolder) -> None:
        """Write down what the run is; refuse a folder that holds another."""
        now = {"recipe": self.recipe.to_dict(), "inputs": self.inputs.__dict__}
        if folder.recipe.exists():
            then = json.loads(folder.recipe.read_text(encoding="utf-8"))
            changed = difference(PretrainRecipe.from_dict(then["recipe"]), self.recipe)
            for name, value in then["inputs"].items():
                if value != now["inputs"][name]:
                    changed.append(f"{name}: {value} in the run, {now['inputs'][name]} now")
            if changed:
                raise ConfigError(
                    f"{folder.path} holds another run, so it cannot go on; choose another --out, or undo: " + "; ".join(changed)
                )
        elif self.runtime.is_main:
            write_json(folder.recipe, now)
            device = str(self.runtime.device)
            if self.runtime.device.type == "cuda":
                device = torch.cuda.get_device_name(self.runtime.device)
            more = {"device": device, "dtype": str(self.runtime.dtype), "world_size": self.runtime.world_size}
            write_json(folder.environment, environment(**more, threads=torch.get_num_threads()))
        self.runtime.wait()

    def _watch(self, record: Record) -> None:
        """Look at each step for the plateau."""
        if record["kind"] == "step" and isinstance(record["masked_loss"], float):
            said = self.plateau.see(record["step"], self.feed.last.masked_labels, record["masked_loss"])
            if said:
                self._report(said, event="plateau", step=record["step"])

    def _report(self, message: str, *, event: str = "snapshot", step: int = 0) -> None:
        self.log.write("event", step, event=event, message=message)

    def _status(self, word: str, state: State) -> None:
        if self.runtime.is_main:
            self.folder.write_status(word, step=state.step, steps=self.job.steps, tokens=state.tokens, seconds=state.seconds)


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


def _due(step: int, every: int) -> bool:
    return every > 0 and step > 0 and step % every == 0
