"""Fine-tuning: a pretrained encoder and a task's examples in; a run folder with metrics,
predictions for dev and the checkpoint that was best on dev out (ALBERT §4.1, A.3).
 A job of the same loop as pretraining. A run that never left chance begins again, gentler, as often
as the recipe allows.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from litebert.data.stream import Position
from litebert.errors import CheckpointError, DivergedError
from litebert.model.model import Model
from litebert.optim.groups import make_optimizer
from litebert.recipes import FinetuneRecipe
from litebert.recipes.pretrain import Compile
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.encode.batch import TaskBatch
from litebert.tasks.encode.layout import can_pack
from litebert.tasks.examples import AnswerExample
from litebert.tasks.heads.head import TaskSums
from litebert.tasks.heads.heads import predict_inputs
from litebert.tasks.predictions import Prediction, SpanPrediction
from litebert.tasks.scores.answers import at_threshold, best_threshold
from litebert.tasks.scores.score import score
from litebert.tasks.task import TaskCard
from litebert.train.compile import compile_model
from litebert.train.finetune.best import BestKeeper
from litebert.train.finetune.chance import ChanceWatch
from litebert.train.finetune.conclusion import conclude, read_result
from litebert.train.finetune.head_start import (
    fingerprint,
    head_config,
    starting_model,
    tokenizer_of,
)
from litebert.train.finetune.job import LONGER, LOWER, FinetuneJob
from litebert.train.finetune.prepared import Part, Prepared
from litebert.train.graphs.passes import Graphs
from litebert.train.graphs.update import RecordedUpdate
from litebert.train.log import Record, Sink
from litebert.train.loop import State
from litebert.train.runtime import Runtime
from litebert.train.stop import StopSignal
from litebert.train.training import Say, Training, silent, to_stderr
from litebert.train.working import WorkingCopy

COMPILE_TOKENS = 40_000_000
"""Real tokens of a run from which compiling is tried by itself: half a minute is what it takes, and
what it saves there."""


class Finetuning(Training[TaskBatch, TaskSums]):
    """One run, ready to go: `train()` runs or resumes it to its end."""

    def __init__(
        self,
        recipe: FinetuneRecipe,
        prepared: Prepared,
        source: Checkpoint,
        runtime: Runtime,
        *,
        say: Say = to_stderr,
    ) -> None:
        self.recipe: FinetuneRecipe = recipe
        self.prepared, self.source, self.runtime = prepared, source, runtime
        self.tokenizer = tokenizer_of(source, "this checkpoint")
        self.say = say if runtime.is_main else silent
        self.inputs = {
            "tokenizer": self.tokenizer.fingerprint,
            "model": fingerprint(source.model),
            "train": prepared.train.inputs.fingerprint,
            "dev": prepared.dev.inputs.fingerprint,
            "labels": ", ".join(prepared.card.task.labels) or None,
        }
        self.card = prepared.card
        self.config = head_config(source, self.card, recipe)
        self.card.check_fits(self.config)
        self.model = starting_model(source, self.config, recipe, attempt=0).to(runtime.device)
        self.working = WorkingCopy(self.model, runtime.dtype)
        self.optimizer = make_optimizer(self.model.named_parameters(), recipe.optimizer)
        pack = can_pack(
            self.working.model, runtime.device, int(prepared.train.inputs.lengths.max(initial=1))
        )
        self.job: FinetuneJob = FinetuneJob(recipe, prepared.train.inputs, runtime, pack=pack)
        wish = compile_wish(recipe.compile, self.job)
        compile_model(self.working.model, wish, runtime, self.say, dynamic=not pack)
        self.passes: Graphs | None = None
        if pack and recipe.compile != "off" and runtime.device.type == "cuda":
            self.passes = Graphs(self.job, self.working.model, self.say)
            self.update = RecordedUpdate(self.optimizer, self.working, self.say)
        self.every = -(-self.job.length // recipe.evaluations)
        self.chance = ChanceWatch(prepared, steps=self.job.length)
        self.evaluated = -1
        self.since = 0  # evaluations since the best one of this attempt
        self.state = State()

    def ahead(self, step: int) -> None:
        if self.passes is not None:
            self.passes.ahead(step)

    def wants_evaluation(self, step: int) -> bool:
        done = step - self.job.began
        return (
            step != self.evaluated
            and done > 0
            and (step == self.job.steps or done % self.every == 0)
        )

    def evaluate(self, state: State, stop: StopSignal) -> None:
        """Score dev, note it, keep the best checkpoint, and end the run where it has not become
        better for long."""
        card, predictions = self.ask(self.working.model, self.pause(stop))
        scores = score(card.task, self.prepared.dev.examples, predictions)
        found = self.runtime.told(scores[card.task.scores[0]])  # ranks must not decide differently
        threshold = {} if card.null_threshold is None else {"null_threshold": card.null_threshold}
        counters = {"tokens": state.tokens, "seconds": round(state.seconds, 3)}
        self.log.write("evaluation", state.step, score=found, **scores, **threshold, **counters)
        self.evaluated = state.step
        self.since = 0 if self.chance.best is None or found > self.chance.best else self.since + 1
        self.chance.see_score(found)
        if self.best.is_better(found):
            wrong = self.best.offer(
                found, state.step, self.checkpoint(card) if self.runtime.is_main else None
            )
            if wrong:
                self.report(wrong, step=state.step)
        if (
            self.recipe.patience
            and self.since >= self.recipe.patience
            and state.step < self.job.steps
        ):
            message = f"no better on dev for {self.since} evaluations: the run ends here, {self.job.steps - state.step:,} steps early"
            self.report(message, event="early", step=state.step)
            self.job.steps = state.step

    def ask(
        self, model: Model, pause: Callable[[], None] = lambda: None
    ) -> tuple[TaskCard, list[Prediction]]:
        """What a model says of dev, and the card with the threshold that it was said by."""

        def said(part: Part) -> list[Prediction]:
            tokens, device = self.recipe.evaluate_tokens, self.runtime.device
            return predict_inputs(
                model,
                self.card,
                part.inputs,
                part.examples,
                device=device,
                batch_tokens=tokens,
                pause=pause,
            )

        predictions = said(self.prepared.dev)
        if not self.card.task.has_null:
            return self.card, predictions
        searched = self.prepared.aside or self.prepared.dev
        spans = cast(
            list[SpanPrediction], predictions if searched is self.prepared.dev else said(searched)
        )
        if not all(math.isfinite(each.null_score) for each in spans):
            raise DivergedError(
                f"diverged at step {self.state.step:,}: what the model says of answers is not a "
                "number"
            )
        threshold = self.runtime.told(
            best_threshold(cast(list[AnswerExample], searched.examples), spans)
        )
        answered = at_threshold(cast(list[SpanPrediction], predictions), threshold)
        return replace(self.card, null_threshold=threshold), cast(list[Prediction], answered)

    def run_steps(self, state: State) -> State:
        """Attempts, until one leaves chance or the recipe allows no more."""
        while True:
            try:
                state = super().run_steps(state)
                if not self.chance.failed:
                    return state
                why = f"it never left chance: {self.chance.said()}"
            except DivergedError as error:
                if self.job.attempt >= self.recipe.retries:
                    raise
                why, state = str(error), self.state
            if self.job.attempt >= self.recipe.retries:
                self.report(
                    f"{why}; look at the data, or try another --rate or --epochs",
                    event="chance",
                    step=state.step,
                )
                return state
            state = self.begin_again(state, why)

    def begin_again(self, state: State, why: str) -> State:
        """From the pretrained weights, with a lower rate and a longer warm-up."""
        attempt = self.job.attempt + 1
        self.report(
            f"{why}; begins again from the pretrained weights with the rate / {LOWER} and the "
            f"warm-up × {LONGER}, "
            f"attempt {attempt + 1} of {self.recipe.retries + 1}",
            event="retry",
            step=state.step,
        )
        self.job.begin(attempt, state.step)
        self.model.load_state_dict(
            starting_model(self.source, self.config, self.recipe, attempt=attempt).state_dict()
        )
        self.optimizer.state.clear()
        self.working.refresh()
        self.guard = self.make_guard()
        self.chance.begin()
        self.since = 0
        self.progress.lengthen(self.job.steps)
        state = replace(state, rate_scale=1.0)
        self.save(state)
        return state

    def beside(self, state: State, stop: StopSignal) -> None:
        self.state = state  # where a run that diverges has come to
        super().beside(state, stop)

    def position(self, step: int) -> Position:
        return self.job.position(step)

    def save(self, state: State) -> bool:
        if not self.best.is_written:
            self.best.flush()
        return super().save(state)

    def memory(self) -> dict[str, Any]:
        own = {
            "attempt": self.job.attempt,
            "began": self.job.began,
            "steps": self.job.steps,
            # what is best and not on the disk is lost with this process, so the step is scored
            # again
            "evaluated": self.evaluated if self.best.is_written else -1,
            "since": self.since,
        }
        return {"own": own, "best": self.best.state(), "chance": self.chance.state()}

    def recall(self, memory: Mapping[str, Any], step: int, position: Position) -> None:
        own = memory["own"]
        self.job.begin(own["attempt"], own["began"])
        self.job.steps, self.evaluated, self.since = own["steps"], own["evaluated"], own["since"]
        assert self.job.position(step) == position
        self.best.load(memory["best"])
        self.chance.load(memory["chance"])
        self.progress.lengthen(self.job.steps)

    def open(self) -> None:
        self.best = BestKeeper(self.folder.best, self.write_checkpoint)

    def sinks(self) -> tuple[Sink, ...]:
        return (self._watch,)

    def _watch(self, record: Record) -> None:
        if record["kind"] == "step" and isinstance(record["loss"], float):
            self.chance.see_loss(record["loss"])

    def checkpoint(self, card: TaskCard) -> Checkpoint:
        return Checkpoint(model=self.model, tokenizer=self.tokenizer, task=card.to_dict())

    def finish(self, state: State) -> dict[str, Any]:
        """The best checkpoint becomes the final one; its predictions and scores are written."""
        wrong = self.best.flush()
        if wrong:
            raise CheckpointError(
                f"the run is at its end, but {wrong} and give the same command again"
            )
        self.runtime.wait()
        if self.runtime.is_main:
            about = {
                "best_step": self.best.step,
                "steps": state.step,
                "tokens": state.tokens,
                "seconds": round(state.seconds, 3),
                "attempts": self.job.attempt + 1,
                "left_chance": not self.chance.failed,
                "chance": self.chance.chance,
                "ended_early": self.job.steps < self.job.began + self.job.length,
                "seed": self.recipe.seed,
                "train_examples": len(self.prepared.train.examples),
            }
            tokens = self.recipe.evaluate_tokens
            conclude(
                self.folder,
                self.prepared.dev,
                about,
                device=self.runtime.device,
                batch_tokens=tokens,
            )
            self.write_status("finished", state)
        self.runtime.wait()
        result = self.finished()
        assert result is not None
        return result

    def finished(self) -> dict[str, Any] | None:
        return read_result(self.folder)


def compile_wish(wish: Compile, job: FinetuneJob) -> Compile:
    """auto compiles a long run over packed rows: fewer tokens do not pay for it, and padded batches
    are of many shapes.

    CUDA graphs, which take a second, are recorded either way.
    """
    return "off" if wish == "auto" and not (job.pack and job.tokens >= COMPILE_TOKENS) else wish
