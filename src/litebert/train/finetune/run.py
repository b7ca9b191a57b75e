"""Fine-tuning: a pretrained encoder and a task's examples in; a run folder with metrics,
predictions for dev and the checkpoint that was best on dev out (ALBERT §4.1, A.3).
 A job of the same loop as pretraining. A run that never left chance begins again, gentler, as often
as the recipe allows.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from litebert.errors import CheckpointError, DivergedError
from litebert.model.batch import can_pack
from litebert.model.model import Model
from litebert.optim.groups import make_optimizer
from litebert.recipes import FinetuneRecipe
from litebert.recipes.pretrain import Compile
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.encode.batch import TaskBatch
from litebert.tasks.examples import AnswerExample
from litebert.tasks.heads.head import TaskSums
from litebert.tasks.heads.heads import predict_inputs
from litebert.tasks.predictions import Prediction, SpanPrediction
from litebert.tasks.scores.answers import at_threshold, best_threshold
from litebert.tasks.scores.score import score
from litebert.tasks.task import TaskCard
from litebert.text.tokenizer import Tokenizer
from litebert.train.compile import compile_model
from litebert.train.finetune.best import BestCheckpoint
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
from litebert.train.job import Learner
from litebert.train.log import Sink
from litebert.train.loop import BetweenSteps, Evaluated, Event, Incident, State, stop_check
from litebert.train.run import Run, Say, to_stderr
from litebert.train.runtime import Runtime
from litebert.train.working import WorkingCopy

COMPILE_TOKENS = 40_000_000
"""Real tokens of a run from which compiling is tried by itself: half a minute is what it takes, and
what it saves there."""


class Finetuning:
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
        self.recipe, self.prepared = recipe, prepared
        self.source, self.runtime = source, runtime
        tokenizer = tokenizer_of(source, "this checkpoint")
        say = say if runtime.is_main else lambda message: None
        inputs = {
            "tokenizer": tokenizer.fingerprint,
            "model": fingerprint(source.model),
            "train": prepared.train.inputs.fingerprint,
            "dev": prepared.dev.inputs.fingerprint,
            "labels": ", ".join(prepared.card.task.labels) or None,
        }
        self.config = head_config(source, prepared.card, recipe)
        prepared.card.check_fits(self.config)
        model = starting_model(source, self.config, recipe, attempt=0).to(runtime.device)
        working = WorkingCopy(model, runtime.dtype)
        optimizer = make_optimizer(model.named_parameters(), recipe.optimizer)
        longest = int(prepared.train.inputs.lengths.max(initial=1))
        pack = can_pack(working.model, runtime.device, longest)
        self.job = FinetuneJob(recipe, prepared.train.inputs, runtime, pack=pack)
        wish = compile_wish(recipe.compile, self.job)
        compile_model(working.model, wish, runtime, say, dynamic=not pack)
        has_graphs = pack and recipe.compile != "off" and runtime.device.type == "cuda"
        self.graphs = Graphs(self.job, working.model, say) if has_graphs else None
        self.learner: Learner[Model, TaskBatch, TaskSums] = Learner(
            job=self.job,
            model=model,
            working=working,
            optimizer=optimizer,
            passes=self.graphs,
            update=RecordedUpdate(optimizer, working, say) if has_graphs else None,
        )
        self.run = Run(recipe, inputs, self.learner, runtime, say=say)
        self.best = BestCheckpoint(self.run)
        self.chance = ChanceWatch(prepared, steps=self.job.length)
        self.evaluation = DevEvaluation(
            self.run, self.job, prepared, tokenizer, chance=self.chance, best=self.best
        )
        self.run.subscribers = [
            self.chance,
            self.evaluation,
            self.best,
            self.run.save_if_due,
        ]
        self.run.stateful = {"own": self.evaluation, "best": self.best, "chance": self.chance}

    def train(
        self, out: Path | str, *, sinks: tuple[Sink, ...] = (), progress: bool = True
    ) -> dict[str, Any]:
        """Run to the end in the folder `out`, resuming where an earlier process stopped; the
        result."""
        return self.run.execute(
            out,
            lambda state: self._finish(self._attempts(state)),
            finished=lambda: read_result(self.run.folder),
            sinks=sinks,
            progress=progress,
        )

    def _attempts(self, state: State) -> State:
        """Train until an attempt rises above chance or the recipe allows no more."""
        while True:
            try:
                state = self.run.steps(state)
                if not self.chance.failed:
                    return state
                why = f"it never left chance: {self.chance.said()}"
            except DivergedError as error:
                if self.job.attempt >= self.recipe.retries:
                    raise
                why, state = str(error), self.run.state
            if self.job.attempt >= self.recipe.retries:
                message = f"{why}; look at the data, or try another --learning-rate or --epochs"
                self.run.emit(Incident(step=state.step, kind="chance", message=message))
                return state
            state = self._begin_again(state, why)

    def _begin_again(self, state: State, why: str) -> State:
        """Start over from the pretrained weights, with a lower rate and a longer warm-up."""
        attempt = self.job.attempt + 1
        message = (
            f"{why}; begins again from the pretrained weights with the rate / {LOWER} and the "
            f"warm-up × {LONGER}, attempt {attempt + 1} of {self.recipe.retries + 1}"
        )
        self.run.emit(Incident(step=state.step, kind="retry", message=message))
        self.job.begin(attempt, state.step)
        self.learner.model.load_state_dict(
            starting_model(self.source, self.config, self.recipe, attempt=attempt).state_dict()
        )
        self.learner.optimizer.state.clear()
        self.learner.working.refresh()
        self.run.guard = self.run.new_guard()
        self.chance.begin()
        self.evaluation.begin()
        self.run.progress.lengthen(self.job.steps)
        state = replace(state, rate_scale=1.0)
        self.run.save(state)
        return state

    def _finish(self, state: State) -> dict[str, Any]:
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
                "ended_early": self.evaluation.ended_at is not None,
                "seed": self.recipe.seed,
                "train_examples": len(self.prepared.train.examples),
            }
            conclude(
                self.run.folder,
                self.prepared.dev,
                about,
                device=self.runtime.device,
                batch_tokens=self.recipe.evaluate_tokens,
            )
            self.run.write_status("finished", state, steps=state.step)
        self.runtime.wait()
        result = read_result(self.run.folder)
        assert result is not None
        return result


class DevEvaluation:
    """A subscriber: scores dev where that is due, keeps the best checkpoint, and ends the run early
    where the score has not improved for `patience` evaluations."""

    def __init__(
        self,
        run: Run[TaskBatch, TaskSums],
        job: FinetuneJob,
        prepared: Prepared,
        tokenizer: Tokenizer,
        *,
        chance: ChanceWatch,
        best: BestCheckpoint,
    ) -> None:
        self.run, self.job, self.prepared, self.tokenizer = run, job, prepared, tokenizer
        self.chance, self.best = chance, best
        self.every = -(-job.length // job.recipe.evaluations)
        self.evaluated = -1
        """The step of the last evaluation."""
        self.begin()

    def begin(self) -> None:
        """An attempt begins."""
        self.since = 0
        """Evaluations since the best one of this attempt."""
        self.ended_at: int | None = None
        """The step at which this attempt ended early."""

    def __call__(self, event: Event) -> None:
        if not isinstance(event, BetweenSteps):
            return
        step = event.state.step
        if step == self.ended_at:  # resumed after its last step
            event.is_last = True
        done = step - self.job.began
        is_due = event.is_last or done % self.every == 0
        if done > 0 and is_due and step != self.evaluated:
            self._evaluate(event)

    def _evaluate(self, event: BetweenSteps) -> None:
        run, state, patience = self.run, event.state, self.job.recipe.patience
        card, predictions = self.predict(stop_check(run.runtime, event.stop))
        scores = score(card.task, self.prepared.dev.examples, predictions)
        first = run.runtime.told(scores[card.task.scores[0]])  # ranks must not decide differently
        threshold = {} if card.null_threshold is None else {"null_threshold": card.null_threshold}
        run.emit(Evaluated(state=state, scores={"score": first, **scores, **threshold}))
        self.evaluated = state.step
        self.since = 0 if self.chance.best is None or first > self.chance.best else self.since + 1
        self.chance.see_score(first)
        if self.best.is_better(first):
            model = run.learner.model
            checkpoint = Checkpoint(model=model, tokenizer=self.tokenizer, task=card.to_dict())
            wrong = self.best.offer(first, state.step, checkpoint if run.runtime.is_main else None)
            if wrong:
                run.emit(Incident(step=state.step, kind="snapshot", message=wrong))
        if patience and self.since >= patience and not event.is_last:
            message = (
                f"no better on dev for {self.since} evaluations: the run ends here, "
                f"{self.job.steps - state.step:,} steps early"
            )
            run.emit(Incident(step=state.step, kind="early", message=message))
            self.ended_at, event.is_last = state.step, True

    def predict(self, pause: Callable[[], None]) -> tuple[TaskCard, list[Prediction]]:
        """The predictions for dev, and the card with the threshold that they were made with."""
        card, dev = self.prepared.card, self.prepared.dev
        predictions = self._predict_split(dev, pause)
        if not card.task.has_null:
            return card, predictions
        searched = self.prepared.aside or dev
        spans = cast(
            list[SpanPrediction],
            predictions if searched is dev else self._predict_split(searched, pause),
        )
        if not all(math.isfinite(each.null_score) for each in spans):
            raise DivergedError(
                f"diverged at step {self.run.state.step:,}: what the model says of answers is not "
                "a number"
            )
        questions = cast(list[AnswerExample], searched.examples)
        threshold = self.run.runtime.told(best_threshold(questions, spans))
        answered = at_threshold(cast(list[SpanPrediction], predictions), threshold)
        return replace(card, null_threshold=threshold), cast(list[Prediction], answered)

    def _predict_split(self, split: Part, pause: Callable[[], None]) -> list[Prediction]:
        return predict_inputs(
            self.run.learner.working.model,
            self.prepared.card,
            split.inputs,
            split.examples,
            device=self.run.runtime.device,
            batch_tokens=self.job.recipe.evaluate_tokens,
            pause=pause,
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            "attempt": self.job.attempt,
            "began": self.job.began,
            "steps": self.job.steps if self.ended_at is None else self.ended_at,
            # a best checkpoint that is not on the disk is lost with this process, so its step is
            # evaluated again
            "evaluated": self.evaluated if self.best.is_written else -1,
            "since": self.since,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.job.begin(state["attempt"], state["began"])
        self.evaluated, self.since = state["evaluated"], state["since"]
        self.ended_at = state["steps"] if state["steps"] < self.job.steps else None


def compile_wish(wish: Compile, job: FinetuneJob) -> Compile:
    """auto compiles a long run over packed rows: fewer tokens do not pay for it, and padded batches
    are of many shapes.

    CUDA graphs, which take a second, are recorded either way.
    """
    return "off" if wish == "auto" and not (job.pack and job.tokens >= COMPILE_TOKENS) else wish
