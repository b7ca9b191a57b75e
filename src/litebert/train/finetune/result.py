"""What a fine-tuning leaves behind: the best checkpoint on dev, which becomes the final one, its
predictions for dev, and the result.

Each part can be done again after a process that was ended in the middle; result.json comes last and
marks the end.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from litebert.errors import CheckpointError
from litebert.files import publish, write_json
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.heads.heads import predict_inputs
from litebert.tasks.predictions import save_predictions
from litebert.tasks.scores.score import score
from litebert.tasks.task import TaskCard
from litebert.train.finetune.prepare import EncodedSplit
from litebert.train.folder import RunFolder
from litebert.train.loop import BeforeSnapshot, Event
from litebert.train.run import Run, RunResult

PREDICTIONS = "dev_predictions.jsonl"
RESULT = "result.json"


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

    def offer(self, score: float, step: int, checkpoint: Checkpoint | None) -> str | None:
        """Take it where it is better; None for a rank that does not write. What went wrong with
        writing, if anything."""
        self.score, self.step = score, step
        self._waiting = checkpoint
        wrong = self.flush()
        if wrong and checkpoint is not None:
            self._waiting = replace(
                checkpoint, model=_copy(checkpoint.model)
            )  # the run continues and changes the weights
        return wrong

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

    def state_dict(self) -> dict[str, Any]:
        return dict(self._written)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.score, self.step = state["score"], state["step"]
        self._waiting, self._written = None, dict(state)


def conclude(
    folder: RunFolder,
    dev: EncodedSplit,
    about: dict[str, Any],
    *,
    device: torch.device,
    batch_tokens: int | None,
) -> dict[str, Any]:
    """Rename the best checkpoint to final, and write its predictions for dev and the result, which
    includes `about`."""
    try:
        if folder.best.is_dir():
            shutil.rmtree(folder.final, ignore_errors=True)
            publish(folder.best, folder.final)
        final = Checkpoint.load(folder.final)
        assert final.task is not None
        card = TaskCard.from_dict(final.task)
        model = final.model.to(device)
        predictions = predict_inputs(
            model, card, dev.inputs, dev.examples, device=device, batch_tokens=batch_tokens
        )
        save_predictions(folder.path / PREDICTIONS, card.task, dev.examples, predictions)
        scores = score(card.task, dev.examples, predictions)
        best = {"task": card.task.name, "score": scores[card.task.scores[0]], "scores": scores}
        result = (
            best
            | about
            | {"null_threshold": card.null_threshold, "dev_examples": len(dev.examples)}
        )
        write_json(folder.path / RESULT, result)
    except OSError as error:
        raise CheckpointError(
            f"the run is at its end, but its result could not be written: {error}; free some space "
            "and give the same "
            "command again"
        ) from error
    shutil.rmtree(folder.snapshots, ignore_errors=True)
    return result


def read_result(folder: RunFolder) -> RunResult | None:
    """The result of a finished run; None where none has finished."""
    path = folder.path / RESULT
    try:
        return result_of(folder.path, json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}; remove the folder, and give the same command again"
        ) from error


def _copy(model: Model) -> Model:
    with torch.device("meta"):
        copy = Model(model.config)
    copy.load_state_dict(
        {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()},
        assign=True,
    )
    return copy
