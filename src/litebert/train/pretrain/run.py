"""Pretraining: a recipe and a folder of shards in; a run folder with metrics, snapshots and a
checkpoint out (ALBERT §4.1)."""

import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor

from litebert.config import HeadConfig, HeadKind, ModelConfig
from litebert.convert.huggingface_writer import describe_class
from litebert.data.batch import Batch
from litebert.data.shards import Shards
from litebert.data.spec import ExampleSpec
from litebert.data.stream import Stream
from litebert.errors import CheckpointError, ConfigError
from litebert.files import read_json, verify_folder, write_json
from litebert.kernels.fp8.linear import MULTIPLE
from litebert.model.count import count_encoder, count_generator
from litebert.model.model import Model
from litebert.objective import Losses
from litebert.optim.groups import make_optimizer
from litebert.recipes import PretrainRecipe
from litebert.storage.checkpoint import Checkpoint
from litebert.storage.snapshot import SnapshotStore
from litebert.train.compile import compile_model, compile_tail
from litebert.train.folder import stored_threads
from litebert.train.graphs import Graphs, RecordedUpdate
from litebert.train.learner import Learner, WorkingCopy
from litebert.train.log import read_records
from litebert.train.loop import (
    BetweenSteps,
    Event,
    Incident,
    State,
    StepDone,
)
from litebert.train.pretrain.evaluate import HeldoutEvaluation, HeldoutScorer, PlateauWatch
from litebert.train.pretrain.init import (
    describe_positions,
    extend_positions,
    load_initial_weights,
    new_positions,
    position_tables,
)
from litebert.train.pretrain.job import Feed, PretrainJob
from litebert.train.run import Run, RunResult, Say, to_stderr
from litebert.train.runtime import Place, Runtime

_VERIFIED = "verified.json"
"""In a run folder: the files of the shards that were verified, by size, times and inode."""
_COUNTERS = {"kind", "step", "tokens", "seconds"}
"""What a record of an evaluation has beside its scores."""


def run_pretraining(
    recipe: PretrainRecipe,
    data: Path | str,
    out: Path | str,
    *,
    init: Path | str | None = None,
    workers: int = 1,
    tensorboard: bool = False,
    unverified: bool = False,
    progress: bool = True,
    **place: Unpack[Place],
) -> RunResult:
    """`litebert.pretrain`, with a recipe that is complete and the folder of a checkpoint as `init`.
    `unverified` does not compare the files
    of `init` with its manifest."""
    if workers < 0:
        raise ConfigError(f"workers is a number of processes from 0; got {workers}")
    stored = stored_threads(out)
    with Runtime.joined(dtype=recipe.dtype, stored_threads=stored, **place) as runtime:
        training = Pretraining(
            recipe,
            data,
            runtime,
            init=init,
            workers=workers,
            out=out,
            unverified=unverified,
        )
        return training.train(out, tensorboard=tensorboard, progress=progress)


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
        out: Path | str | None = None,
        unverified: bool = False,
        say: Say = to_stderr,
    ) -> None:
        """out: the run folder, whose earlier verification of the shards is trusted for files that
        have not changed since."""
        _check_ranks(recipe, runtime)
        shards = Shards.open(data)
        self.tokenizer = shards.tokenizer()
        self._verified: dict[str, Any] = {}
        """The files of the shards, as they were when they were verified."""
        if runtime.is_main:
            self._verified = shards.verify(None if out is None else _read_verified(Path(out)))
        runtime.wait()
        start = str(Path(init).resolve()) if init else None
        inputs = {
            "tokenizer": self.tokenizer.fingerprint,
            "corpus": shards.fingerprint,
            "init": start,
        }
        self.recipe, self.runtime = recipe, runtime
        if runtime.fp8:
            _check_sizes(recipe)
        say = say if runtime.is_main else lambda message: None
        torch.manual_seed(recipe.seed)  # every rank starts from the same weights
        config = model_config(recipe, vocab_size=self.tokenizer.vocab_size)
        generator = config.generator
        model = Model(config, checkpoint_every=recipe.checkpoint_every)
        if generator is not None:
            say(_describe_generator(config))
        trained = 0
        if init is not None:
            old = Checkpoint.load(init, unverified=unverified)
            say(f"weights start from {init}: {load_initial_weights(model, old, self.tokenizer)}")
            trained = old.model.config.encoder.max_positions
        self.new_positions = new_positions(recipe, trained=trained)
        working = WorkingCopy.on(runtime, model, say)
        parts = [working.model]
        if working.model.generator is not None and generator is not None:
            parts.append(working.model.generator)
            # not in 8 bits: its matmuls are small
            replace(runtime.gate(generator.encoder), quantizes=False).apply(parts[-1])
        compiled = False
        for network in parts:
            compiled = compile_model(
                network, recipe.compile, runtime, say, recompute=recipe.recompute
            )
        optimizer = make_optimizer(model.named_parameters(), recipe.optimizer)
        stream = Stream.open(data, example_spec(recipe), seed=recipe.seed)
        self.feed = Feed(stream, recipe, runtime, workers=workers)
        tail = compile_tail(say) if compiled else None
        self.job = PretrainJob(recipe, self.feed, runtime, static_shapes=compiled, tail=tail)
        # gradients of float32 master weights would be the graph's own memory, and not add up
        has_graphs = compiled and runtime.device.type == "cuda" and not working.is_master
        self.graphs = Graphs(self.job, working.model, say) if has_graphs else None
        self.learner: Learner[Batch, Losses] = Learner(
            job=self.job,
            model=model,
            working=working,
            optimizer=optimizer,
            passes=self.graphs,
            update=RecordedUpdate(optimizer, working, say) if has_graphs else None,
        )
        self.evaluation = (
            HeldoutScorer(
                stream,
                runtime,
                tokens=recipe.evaluate_tokens,
                mask_fraction=recipe.evaluate_mask_fraction,
            )
            if recipe.heldout_fraction
            else None
        )
        if self.evaluation:
            self.evaluation.check()
        self.plateau = PlateauWatch(recipe, vocab_size=self.tokenizer.vocab_size)
        self.extend: Callable[[Tensor, range], None] = extend_positions
        """How new positions are filled; a study may try another."""
        self.run = Run(recipe, inputs, self.learner, runtime, say=say)
        self.evaluations = HeldoutEvaluation(self.run, self.job, self.evaluation, self.tokenizer)
        self.run.subscribers = [
            self.evaluations,
            self.run.save_if_due,
            self._extend_positions,
            self._watch,
        ]
        self.run.stateful = {"own": self.evaluations, "plateau": self.plateau}

    def train(
        self, out: Path | str, *, tensorboard: bool = False, progress: bool = True
    ) -> RunResult:
        """Run to the end in the folder `out`, resuming where an earlier process stopped."""
        try:
            return self.run.execute(
                out,
                self._train,
                finished=self._finished,
                tensorboard=tensorboard,
                progress=progress,
            )
        finally:
            self.feed.close()

    def _train(self, state: State) -> RunResult:
        if state.step == 0:
            described = describe_class(self.learner.model.config.converted())
            self.run.say(f"once converted, transformers loads the model {described}")
        if self.runtime.is_main:
            with contextlib.suppress(OSError):  # without it the next process verifies again
                write_json(self.run.folder.path / _VERIFIED, self._verified)
        return self._finish(self.run.steps(state))

    def _extend_positions(self, event: Event) -> None:
        """Before the first step of a longer stage, fill its new positions. A snapshot of that
        moment may be from before or after: a run resumed there fills them again, with the same."""
        if isinstance(event, BetweenSteps) and event.state.step in self.new_positions:
            for table in position_tables(self.learner.model):
                self.extend(table, self.new_positions[event.state.step])
            self.learner.working.refresh()

    def _watch(self, event: Event) -> None:
        """After each step, report the positions that it was the first to read, and a plateau."""
        if not isinstance(event, StepDone):
            return
        # not before the step: where that is interrupted it would be reported again
        if event.step in self.new_positions:
            message = describe_positions(self.new_positions[event.step])
            self.run.emit(Incident(step=event.step, kind="positions", message=message))
        loss = event.metrics["masked_loss"]
        if self.runtime.is_main and math.isfinite(loss):
            warning = self.plateau.see(event.step, self.feed.last.masked_labels, loss)
            if warning:
                self.run.emit(Incident(step=event.step, kind="plateau", message=warning))

    def _finish(self, state: State) -> RunResult:
        """Write the final checkpoint."""
        if self.runtime.is_main:
            checkpoint = Checkpoint(model=self.learner.model, tokenizer=self.tokenizer)
            failure = self.run.write_checkpoint(checkpoint, self.run.folder.final)
            if failure:
                raise CheckpointError(
                    f"the run is at its end, but {failure} and give the same command again"
                )
            self.run.write_status("finished", state, steps=state.step)
        self.runtime.wait()
        return self._result(state, self.evaluations.scores)

    def _finished(self) -> RunResult | None:
        """The result of a finished run whose snapshots are gone: somebody made room. With one it is
        resumed at its end."""
        folder = self.run.folder
        try:
            status = read_json(folder.status)
            if status["state"] != "finished":
                return None
            verify_folder(folder.final)
            state = State(status["step"], status["tokens"], status["seconds"])
        except (CheckpointError, KeyError):
            return None
        if SnapshotStore(folder.snapshots).latest(set_aside=False) is not None:
            return None
        scores: dict[str, Any] = {}
        for record in read_records(folder.metrics):
            if record["kind"] == "evaluation":
                scores = {name: record[name] for name in record if name not in _COUNTERS}
        return self._result(state, scores)

    def _result(self, state: State, scores: dict[str, Any]) -> RunResult:
        counts: dict[str, Any] = {
            "steps": state.step,
            "tokens": state.tokens,
            "seconds": state.seconds,
        }
        return RunResult(
            folder=self.run.folder.path, scores=scores, **counts, details=counts | scores
        )


def model_config(recipe: PretrainRecipe, *, vocab_size: int) -> ModelConfig:
    """The model that a recipe trains over a vocabulary of this size."""
    encoder = replace(recipe.encoder, vocab_size=vocab_size)
    kinds: tuple[HeadKind, ...] = ("detect" if recipe.objective == "rtd" else "masked",)
    if recipe.order != "none":
        kinds += ("order",)
    heads = tuple(HeadConfig(kind=kind) for kind in kinds)
    return ModelConfig(encoder=encoder, heads=heads, generator=recipe.generator(encoder))


def _describe_generator(config: ModelConfig) -> str:
    generator = config.generator
    assert generator is not None
    own, encoder = count_generator(generator), sum(count_encoder(config.encoder).values())
    shared = {
        "embeddings": "shares the encoder's embeddings",
        "all": "is the encoder's own first layers",
        "none": "shares nothing with the encoder",
    }
    return (
        f"the generator has {generator.encoder.num_layers} layers of "
        f"{generator.encoder.hidden_size} and {shared[generator.tie]}: {own:,} parameters beside "
        f"the encoder's {encoder:,}"
    )


def _check_ranks(recipe: PretrainRecipe, runtime: Runtime) -> None:
    """Every stage's batch must divide among the ranks; said now, not when the stage comes."""
    uneven = [size for size in recipe.batch_size.values if size % runtime.world_size]
    if uneven:
        raise ConfigError(
            f"a batch is divided evenly among ranks, and {uneven[0]} sequences are not among "
            f"{runtime.world_size}; "
            "change batch_size or the number of processes"
        )


def _read_verified(out: Path) -> dict[str, Any]:
    """What an earlier process of the run verified; empty where there was none."""
    with contextlib.suppress(CheckpointError):
        return read_json(out / _VERIFIED)
    return {}


def _check_sizes(recipe: PretrainRecipe) -> None:
    """8-bit matmuls are of sizes that are multiples of 16."""
    for name in ("hidden_size", "ffn_size"):
        size = getattr(recipe.encoder, name)
        if size % MULTIPLE:
            raise ConfigError(
                f"dtype fp8 needs sizes that are multiples of {MULTIPLE}, and {name} is {size}; "
                "use bfloat16"
            )


def example_spec(recipe: PretrainRecipe) -> ExampleSpec:
    """How the recipe's examples are made in its first stage."""
    return ExampleSpec(
        max_length=recipe.sequence_length.values[0],
        short_probability=recipe.short_probability,
        order=recipe.order,
        mask_fraction=recipe.mask_fraction.values[0],
        mask_share=recipe.mask_share,
        random_share=recipe.random_share,
        max_masked=recipe.max_masked,
        max_ngram=recipe.max_ngram,
        copies=recipe.copies,
        one_segment=recipe.one_segment,
        cutting=recipe.cutting,
        random_specials=recipe.random_specials,
        heldout_fraction=recipe.heldout_fraction,
    )
