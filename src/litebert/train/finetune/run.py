"""Fine-tuning: a pretrained encoder and a task's examples in; a run folder with metrics,
predictions for dev and the checkpoint that was best on dev out (ALBERT §4.1, A.3).

The loop is that of pretraining. A run that never beats the majority baseline starts over with a
lower learning rate, as often as the recipe allows.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from litebert.errors import CheckpointError, DivergedError
from litebert.files import parse_json, read_bytes, write_json
from litebert.kernels.gate import can_pack
from litebert.optim.groups import make_optimizer
from litebert.recipes import FinetuneRecipe
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.encode.inputs import TaskBatch
from litebert.tasks.heads.head import TaskSums
from litebert.tasks.heads.heads import depth_logits, label_logits, predict_inputs
from litebert.tasks.predictions import save_predictions
from litebert.tasks.scores.calibration import Calibration, fit_temperature
from litebert.tasks.scores.score import score
from litebert.tasks.task import TaskCard
from litebert.train.compile import compile_model
from litebert.train.finetune.evaluation import BestCheckpoint, ChanceWatch, DevEvaluation
from litebert.train.finetune.exits import calibrate_exits, describe_exits
from litebert.train.finetune.job import LONGER, LOWER, FinetuneJob
from litebert.train.finetune.prepare import (
    Prepared,
    fingerprint,
    head_config,
    starting_model,
    tokenizer_of,
)
from litebert.train.graphs import Graphs, RecordedUpdate
from litebert.train.learner import Learner, WorkingCopy
from litebert.train.loop import Incident, State
from litebert.train.run import Run, RunResult, Say, to_stderr
from litebert.train.runtime import Runtime

_PREDICTIONS, RESULT = "dev_predictions.jsonl", "result.json"


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
            "cut": "stratified" if prepared.card.stratified else None,
            "exit texts": prepared.exit_texts.fingerprint if prepared.exit_texts else None,
        }
        self.config = head_config(source, prepared.card, recipe)
        prepared.card.check_fits(self.config)
        model = starting_model(source, self.config, recipe, attempt=0)
        working = WorkingCopy.on(runtime, model, say)
        optimizer = make_optimizer(model.named_parameters(), recipe.optimizer)
        longest = int(prepared.train.inputs.lengths.max(initial=1))
        pack = can_pack(working.model, longest)
        self.job = FinetuneJob(
            recipe,
            prepared.train.inputs,
            runtime,
            pack=pack,
            class_weights=prepared.class_weights,
        )
        compile_model(working.model, self.job.compile_wish, runtime, say, dynamic=not pack)
        has_graphs = pack and recipe.compile != "off" and runtime.device.type == "cuda"
        self.graphs = Graphs(self.job, working.model, say) if has_graphs else None
        self.learner: Learner[TaskBatch, TaskSums] = Learner(
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
        self.run.subscribers = [self.chance, self.evaluation, self.best, self.run.save_if_due]
        self.run.stateful = {"own": self.evaluation, "best": self.best, "chance": self.chance}

    def train(
        self, out: Path | str, *, tensorboard: bool = False, progress: bool = True
    ) -> RunResult:
        """Run to the end in the folder `out`, resuming where an earlier process stopped."""
        return self.run.execute(
            out,
            lambda state: self._finish(self._attempts(state)),
            finished=lambda: read_result(self.run.folder.path),
            tensorboard=tensorboard,
            progress=progress,
        )

    def _attempts(self, state: State) -> State:
        """Train until an attempt beats the majority baseline or the recipe allows no more."""
        while True:
            try:
                state = self.run.steps(state)
                if not self.chance.failed:
                    return state
                why = f"it never beat the majority baseline: {self.chance.describe()}"
            except DivergedError as error:
                if self.job.attempt >= self.recipe.retries:
                    raise
                why, state = str(error), self.run.state
            if self.job.attempt >= self.recipe.retries:
                message = f"{why}; look at the data, or try another --learning-rate or --epochs"
                self.run.emit(Incident(step=state.step, kind="chance", message=message))
                return state
            state = self._restart(state, why)

    def _restart(self, state: State, why: str) -> State:
        """Start over from the pretrained weights, with a lower learning rate and a longer
        warm-up."""
        attempt = self.job.attempt + 1
        message = (
            f"{why}; restarts from the pretrained weights with the learning rate / {LOWER} "
            f"and the warm-up × {LONGER}, attempt {attempt + 1} of {self.recipe.retries + 1}"
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
        state = replace(state, learning_rate_scale=1.0)
        self.run.save(state)
        return state

    def _finish(self, state: State) -> RunResult:
        """The best checkpoint becomes the final one; its predictions and scores are written."""
        self.runtime.wait()
        if self.runtime.is_main:
            about: dict[str, Any] = {
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
            with self.best.becoming_final():
                self._write_result(about)
            self.run.write_status("finished", state, steps=state.step)
        self.runtime.wait()
        result = read_result(self.run.folder.path)
        assert result is not None
        return result

    def _write_result(self, about: dict[str, Any]) -> None:
        """Of the final checkpoint: its calibration, its predictions for dev, and the result, which
        includes `about`."""
        folder, dev, aside = self.run.folder, self.prepared.dev, self.prepared.aside
        final = Checkpoint.load(folder.final)
        assert final.task is not None
        card = TaskCard.from_dict(final.task)
        device, batch_tokens = self.runtime.device, self.recipe.evaluate_tokens
        place: dict[str, Any] = {"device": device, "batch_tokens": batch_tokens}
        model = final.model.to(device)
        if self.recipe.calibrate:
            assert aside is not None
            assert aside.inputs.targets is not None
            logits = label_logits(model, aside.inputs, **place)
            card = replace(card, temperature=fit_temperature(logits, aside.inputs.targets))
            final = replace(final, task=card.to_dict())
            final.save(folder.final, replace=True)
        predictions = predict_inputs(model, card, dev.inputs, dev.examples, **place)
        save_predictions(folder.path / _PREDICTIONS, card.task, dev.examples, predictions)
        scores = score(card.task, dev.examples, predictions)
        calibration = Calibration.of(dev.examples, predictions)
        if calibration is not None:
            about |= {"temperature": card.temperature, "calibration_error": calibration.error}
        if self.recipe.exits != "none":
            compute = partial(depth_logits, model, device=device, batch_tokens=batch_tokens)
            texts = self.prepared.exit_texts
            if texts is None and aside is not None:
                texts = aside.inputs
            if texts is not None:
                card = calibrate_exits(card, compute(texts))
                replace(final, task=card.to_dict()).save(folder.final, replace=True)
            about |= describe_exits(card, dev, compute(dev.inputs))
        best = {"task": card.task.name, "score": scores[card.task.scores[0]], "scores": scores}
        rest = {"null_threshold": card.null_threshold, "dev_examples": len(dev.examples)}
        write_json(folder.path / RESULT, best | about | rest)


def result_of(folder: Path, details: dict[str, Any]) -> RunResult:
    """From the content of result.json or summary.json."""
    runs = details.get("seeds", [details])
    scores = {
        name: value["median"] if isinstance(value, dict) else value
        for name, value in details["scores"].items()
    }
    return RunResult(
        folder=folder,
        scores=scores,
        steps=sum(run.get("steps", 0) for run in runs),
        tokens=sum(run.get("tokens", 0) for run in runs),
        seconds=sum(run.get("seconds", 0.0) for run in runs),
        details=details,
    )


def read_result(folder: Path) -> RunResult | None:
    """The result of a finished run; None where none has finished."""
    path = folder / RESULT
    try:
        return result_of(folder, parse_json(read_bytes(path)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}; remove the folder, and give the same command again"
        ) from error
