"""Pretraining: a recipe and a folder of shards in; a run folder with metrics, snapshots and a
checkpoint out (ALBERT §4.1)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from litebert.config import HeadConfig, ModelConfig
from litebert.data.batch import Batch
from litebert.data.shards import Shards
from litebert.data.spec import ExampleSpec
from litebert.data.stream import Position, Stream
from litebert.errors import CheckpointError, ConfigError
from litebert.kernels.fp8.linear import MULTIPLE
from litebert.model.model import Model
from litebert.objective import Losses
from litebert.optim.groups import make_optimizer
from litebert.recipes import PretrainRecipe
from litebert.storage.checkpoint import Checkpoint
from litebert.train.compile import compile_model, compile_tail
from litebert.train.graphs.passes import Graphs
from litebert.train.graphs.update import RecordedUpdate
from litebert.train.log import Record, Sink
from litebert.train.loop import State
from litebert.train.pretrain.evaluate import Evaluation
from litebert.train.pretrain.feed import Feed
from litebert.train.pretrain.graft import graft
from litebert.train.pretrain.job import PretrainJob
from litebert.train.pretrain.plateau import PlateauWatch
from litebert.train.pretrain.positions import extend_positions, new_positions, said
from litebert.train.pretrain.samples import filled_masks
from litebert.train.runtime import Runtime
from litebert.train.stop import StopSignal
from litebert.train.training import Say, Training, is_due, silent, to_stderr
from litebert.train.working import WorkingCopy


class Pretraining(Training[Batch, Losses]):
    """One run, ready to go: `train()` runs or resumes it to its end."""

    extend: Callable[[Tensor, range], None] = staticmethod(extend_positions)
    """What new positions start as; a study may try others."""

    def __init__(
        self,
        recipe: PretrainRecipe,
        data: Path | str,
        runtime: Runtime,
        *,
        init: Path | str | None = None,
        workers: int = 0,
        say: Say = to_stderr,
    ) -> None:
        shards = Shards.open(data)
        self.tokenizer = shards.tokenizer()
        start = str(Path(init).resolve()) if init else None
        self.inputs = {
            "tokenizer": self.tokenizer.fingerprint,
            "corpus": shards.fingerprint,
            "init": start,
        }
        self.recipe: PretrainRecipe = recipe
        self.runtime = runtime
        check_ranks(recipe, runtime)
        if runtime.fp8:
            check_sizes(recipe)
        self.say = say = say if runtime.is_main else silent
        torch.manual_seed(recipe.seed)  # every rank starts from the same weights
        heads = (
            HeadConfig(kind="masked"),
            *([HeadConfig(kind="order")] if recipe.order != "none" else []),
        )
        encoder = replace(recipe.encoder, vocab_size=self.tokenizer.vocab_size)
        self.model = Model(
            ModelConfig(encoder=encoder, heads=heads), checkpoint_every=recipe.checkpoint_every
        )
        trained = 0
        if init is not None:
            old = Checkpoint.load(init)
            say(f"weights start from {init}: {graft(self.model, old, self.tokenizer)}")
            trained = old.model.config.encoder.max_positions
        self.new_positions = new_positions(recipe, trained=trained)
        self.model.to(runtime.device)
        self.working = WorkingCopy(self.model, runtime.dtype, fp8=runtime.fp8)
        compiled = compile_model(
            self.working.model, recipe.compile, runtime, say, recompute=recipe.recompute
        )
        self.optimizer = make_optimizer(self.model.named_parameters(), recipe.optimizer)
        stream = Stream.open(data, example_spec(recipe), seed=recipe.seed)
        self.feed = Feed(stream, recipe, runtime, workers=workers)
        tail = compile_tail(say) if compiled else None
        self.job: PretrainJob = PretrainJob(
            recipe, self.feed, runtime, static_shapes=compiled, tail=tail
        )
        # gradients of a float32 master would be the graph's own memory, and could not be added up
        graphs = compiled and runtime.device.type == "cuda" and not self.working.is_master
        self.passes: Graphs | None = Graphs(self.job, self.working.model, say) if graphs else None
        self.update = RecordedUpdate(self.optimizer, self.working, say) if graphs else None
        self.evaluation = (
            Evaluation(stream, runtime, tokens=recipe.evaluate_tokens)
            if recipe.heldout_fraction
            else None
        )
        if self.evaluation:
            self.evaluation.check()
        self.plateau = PlateauWatch(
            self.tokenizer.vocab_size, steps=recipe.plateau_steps, margin=recipe.plateau_margin
        )
        self.evaluated = -1
        self.best: float | None = None
        self.best_length = 0
        self.scores: dict[str, Any] = {}

    def ahead(self, step: int) -> None:
        if self.passes is not None:
            self.passes.ahead(step)

    def beside(self, state: State, stop: StopSignal) -> None:
        """Also: fill a longer stage's new positions. A snapshot of that moment may be from before
        or after it, for where a run goes on there they are filled again, with the same."""
        super().beside(state, stop)
        if state.step in self.new_positions:
            self.extend(
                self.model.encoder.embedding.position.weight, self.new_positions[state.step]
            )
            self.working.refresh()

    def wants_evaluation(self, step: int) -> bool:
        due = step == self.job.steps or is_due(step, self.recipe.evaluate_every)
        return due and self.evaluation is not None and step != self.evaluated

    def evaluate(self, state: State, stop: StopSignal) -> None:
        """Score the held-out text, note it, and keep the best checkpoint."""
        assert self.evaluation is not None
        done = max(state.step - 1, 0)
        length, depth = self.feed.at(done)[0], self.job.depth(done)
        scores = self.evaluation(
            self.working.model, length=length, depth=depth, pause=self.pause(stop)
        )
        self.evaluated = state.step
        self.scores = scores
        if state.step == self.job.steps and self.runtime.is_main:
            batch = self.evaluation.batches(self.recipe.order, length)[0]
            assert batch is not None, "the first rank has the first batch"
            examples = filled_masks(self.working.model, batch, self.tokenizer)
            self.log.write("examples", state.step, examples=examples)
        self.log.write(
            "evaluation", state.step, **scores, tokens=state.tokens, seconds=round(state.seconds, 3)
        )
        if self.best is None or length != self.best_length or scores["masked_loss"] < self.best:
            self.best, self.best_length = (
                scores["masked_loss"],
                length,
            )  # another length is another question
            wrong = (
                self.write_checkpoint(self.checkpoint(), self.folder.best)
                if self.runtime.is_main
                else None
            )
            if wrong:
                self.report(wrong, step=state.step)

    def position(self, step: int) -> Position:
        return self.feed.position(step)

    def memory(self) -> dict[str, Any]:
        own = {
            "evaluated": self.evaluated,
            "best": self.best,
            "best_length": self.best_length,
            "scores": self.scores,
        }
        return {"own": own, "plateau": self.plateau.state()}

    def recall(self, memory: Mapping[str, Any], step: int, position: Position) -> None:
        self.feed.seek(step, position)
        own = memory["own"]
        self.evaluated, self.best, self.best_length = (
            own["evaluated"],
            own["best"],
            own.get("best_length", 0),
        )
        self.scores = own["scores"]
        self.plateau.load(memory["plateau"])

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(model=self.model, tokenizer=self.tokenizer)

    def finish(self, state: State) -> dict[str, Any]:
        if self.runtime.is_main:
            wrong = self.write_checkpoint(self.checkpoint(), self.folder.final)
            if wrong:
                raise CheckpointError(
                    f"the run is at its end, but {wrong} and give the same command again"
                )
            self.write_status("finished", state)
        self.runtime.wait()
        return {
            "steps": state.step,
            "tokens": state.tokens,
            "seconds": state.seconds,
            **self.scores,
        }

    def close(self) -> None:
        self.feed.close()

    def sinks(self) -> tuple[Sink, ...]:
        return (self._watch,)

    def _watch(self, record: Record) -> None:
        """After each step: say with which positions it began, and look for the plateau."""
        if record["kind"] != "step":
            return
        if (
            record["step"] in self.new_positions
        ):  # said before the step, it would be said again where that is interrupted
            self.report(
                said(self.new_positions[record["step"]]), event="positions", step=record["step"]
            )
        if isinstance(record["masked_loss"], float):
            warning = self.plateau.see(
                record["step"], self.feed.last.masked_labels, record["masked_loss"]
            )
            if warning:
                self.report(warning, event="plateau", step=record["step"])


def check_ranks(recipe: PretrainRecipe, runtime: Runtime) -> None:
    """Every stage's batch must divide among the ranks; said now, not when the stage comes."""
    uneven = [size for size in recipe.batch_size.values if size % runtime.world_size]
    if uneven:
        raise ConfigError(
            f"a batch is divided evenly among ranks, and {uneven[0]} sequences are not among "
            f"{runtime.world_size}; "
            "change batch_size or the number of processes"
        )


def check_sizes(recipe: PretrainRecipe) -> None:
    """8-bit products are of sizes that are multiples of 16."""
    for name in ("hidden_size", "ffn_size"):
        size = getattr(recipe.encoder, name)
        if size % MULTIPLE:
            raise ConfigError(
                f"dtype fp8 needs sizes that are multiples of {MULTIPLE}, and {name} is {size}; "
                "use bfloat16"
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
