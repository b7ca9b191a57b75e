"""Scores on dev during fine-tuning: they choose the best checkpoint, end a run that no longer
improves, and tell whether it ever learned.

Small data and a high learning rate make runs that never beat the majority baseline (Mosbach et al.
2021); a lower rate often helps. A run counts as failed if it is above chance level neither on dev,
by more than the noise of so few examples, nor in training, where chance level is the entropy of the
labels. A run that learned train and not dev has overfit, and a lower rate is no cure for that.
"""

import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np

from litebert.errors import CheckpointError, DivergedError
from litebert.files import publish
from litebert.model.model import Model, bare_model
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.encode.inputs import Inputs, TaskBatch
from litebert.tasks.examples import AnswerExample
from litebert.tasks.heads.head import TaskSums
from litebert.tasks.heads.heads import predict_inputs
from litebert.tasks.predictions import Prediction, SpanPrediction
from litebert.tasks.scores.answers import at_threshold, best_threshold
from litebert.tasks.scores.baselines import majority
from litebert.tasks.scores.score import score
from litebert.tasks.task import TaskCard
from litebert.text.tokenizer import Tokenizer
from litebert.train.finetune.job import FinetuneJob
from litebert.train.finetune.prepare import EncodedSplit, Prepared
from litebert.train.loop import (
    BeforeSnapshot,
    BetweenSteps,
    Evaluated,
    Event,
    Incident,
    StepDone,
    stop_check,
)
from litebert.train.run import Run

_LEARNED = 0.97
"""Part of the chance loss that training must fall below."""


class ChanceWatch:
    """Averages losses over about the last tenth of a beginning, and remembers the best score of
    it."""

    def __init__(self, prepared: Prepared, *, steps: int) -> None:
        task, dev = prepared.card.task, prepared.dev.examples
        self.name = task.scores[0]
        self.chance = score(task, dev, majority(task, prepared.train.examples, dev))[self.name]
        # two standard errors of a share of about a half, or of a correlation of 0
        self.margin = 1 / math.sqrt(len(dev))
        self.chance_loss = _chance_loss(prepared.train.inputs, prepared.class_weights)
        self.decay = 1 - 1 / max(steps / 10, 1)
        self.begin()

    def begin(self) -> None:
        self.best: float | None = None
        self.average: float | None = None

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "average": self.average}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best, self.average = state["best"], state["average"]

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepDone) and math.isfinite(event.metrics["loss"]):
            self.see_loss(event.metrics["loss"])

    def see_loss(self, loss: float) -> None:
        self.average = (
            loss if self.average is None else self.decay * self.average + (1 - self.decay) * loss
        )

    def see_score(self, score: float) -> None:
        self.best = score if self.best is None else max(self.best, score)

    @property
    def failed(self) -> bool:
        """Above chance neither on dev nor in training."""
        if self.best is not None and self.best > self.chance + self.margin:
            return False
        learned = (
            self.chance_loss is not None
            and self.average is not None
            and self.average < _LEARNED * self.chance_loss
        )
        return not learned

    def describe(self) -> str:
        """The numbers, for a message."""
        best = "none" if self.best is None else f"{self.best:.3f}"
        loss = (
            ""
            if self.chance_loss is None or self.average is None
            else (f", a loss of {self.average:.3f} where guessing has {self.chance_loss:.3f}")
        )
        baseline = f"where the majority baseline has {self.chance:.3f}"
        return f"{self.name} on dev at best {best} {baseline}{loss}"


def _chance_loss(inputs: Inputs, weights: np.ndarray | None) -> float | None:
    """The loss of the best guess that looks at nothing; None for spans, where position and length
    already tell something."""
    targets = inputs.targets
    if targets is None or inputs.head in ("span", "joint_span"):
        return None
    if inputs.head == "regress":
        return float(np.var(targets))
    if inputs.head == "multilabel":
        shares = targets.mean(0, dtype=np.float64).clip(1e-9, 1 - 1e-9)
        positive = shares if weights is None else weights * shares
        guess = positive / (positive + 1 - shares)
        return float(-(positive * np.log(guess) + (1 - shares) * np.log(1 - guess)).mean())
    if inputs.head == "choose":
        return float(np.mean(np.log(inputs.num_rows)))
    counts = np.bincount(targets, minlength=0 if weights is None else len(weights))
    shares = counts / len(targets) if weights is None else weights * counts / len(targets)
    return float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())


@contextmanager
def writing_result() -> Iterator[None]:
    """Say of a full disk that nothing is lost by it."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"the run is at its end, but its result could not be written: {error}; free some space "
            "and give the same command again"
        ) from error


class BestCheckpoint:
    """A subscriber: keeps the best checkpoint so far on disk. One that cannot be written stays in
    memory and is tried again before each snapshot; what is not on the disk does not count for a
    process that resumes."""

    def __init__(self, run: Run[Any, Any]) -> None:
        self.run = run
        self.score: float | None = None
        self.step = -1
        self._waiting: Checkpoint | None = None
        self._written: dict[str, Any] = {"score": None, "step": -1}

    def __call__(self, event: Event) -> None:
        if isinstance(event, BeforeSnapshot):
            self.flush()

    def offer(self, score: float, step: int, tokenizer: Tokenizer, task: dict[str, Any]) -> None:
        """The weights of this moment are the best."""
        self.score, self.step = score, step
        model = self.run.learner.model
        checkpoint = Checkpoint(model=model, tokenizer=tokenizer, task=task)
        self._waiting = checkpoint if self.run.runtime.is_main else None
        wrong = self.flush()
        if wrong:
            # the run continues and changes the weights
            self._waiting = replace(checkpoint, model=_copy(model))
            self.run.emit(Incident(step=step, kind="snapshot", message=wrong))

    def is_better(self, score: float) -> bool:
        return self.score is None or score > self.score

    def flush(self) -> str | None:
        """Try to write what waits; what went wrong, if anything."""
        run, waiting = self.run, self._waiting
        wrong = None if waiting is None else run.write_checkpoint(waiting, run.folder.best)
        if wrong is None:
            self._waiting = None
            self._written = {"score": self.score, "step": self.step}
        return wrong

    @property
    def is_written(self) -> bool:
        return self._waiting is None

    @contextmanager
    def becoming_final(self) -> Iterator[None]:
        """At the end of a run: the best checkpoint is the final one, for which the result is
        written meanwhile; then snapshots are no longer needed."""
        folder, wrong = self.run.folder, self.flush()
        if wrong:
            raise CheckpointError(
                f"the run is at its end, but {wrong} and give the same command again"
            )
        with writing_result():
            if folder.best.is_dir():
                shutil.rmtree(folder.final, ignore_errors=True)
                publish(folder.best, folder.final)
            yield
        shutil.rmtree(folder.snapshots, ignore_errors=True)

    def state_dict(self) -> dict[str, Any]:
        return dict(self._written)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.score, self.step = state["score"], state["step"]
        self._waiting, self._written = None, dict(state)


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
        self.begin()

    def begin(self) -> None:
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
        # ranks must not decide differently
        first = run.runtime.broadcast(scores[card.task.scores[0]])
        threshold = {} if card.null_threshold is None else {"null_threshold": card.null_threshold}
        run.emit(Evaluated(state=state, scores={"score": first, **scores, **threshold}))
        self.evaluated = state.step
        self.since = 0 if self.chance.best is None or first > self.chance.best else self.since + 1
        self.chance.see_score(first)
        if self.best.is_better(first):
            self.best.offer(first, state.step, self.tokenizer, card.to_dict())
        if patience and self.since >= patience and not event.is_last:
            message = (
                f"no improvement on dev in {self.since} evaluations: the run stops here, "
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
        searched = self.prepared.threshold_split or dev
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
        threshold = self.run.runtime.broadcast(best_threshold(questions, spans))
        answered = at_threshold(cast(list[SpanPrediction], predictions), threshold)
        return replace(card, null_threshold=threshold), cast(list[Prediction], answered)

    def _predict_split(self, split: EncodedSplit, pause: Callable[[], None]) -> list[Prediction]:
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


def _copy(model: Model) -> Model:
    copy, weights = bare_model(model.config), model.state_dict().items()
    copy.load_state_dict(
        {name: tensor.detach().cpu().clone() for name, tensor in weights}, assign=True
    )
    return copy
