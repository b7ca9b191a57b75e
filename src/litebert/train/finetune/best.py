"""The checkpoint that was best on dev. A score and a checkpoint in; a folder out, and weights that
wait for a full disk."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.train.loop import BeforeSnapshot, Event
from litebert.train.run import Run


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
            )  # the run goes on and changes the weights
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


def _copy(model: Model) -> Model:
    with torch.device("meta"):
        copy = Model(model.config)
    copy.load_state_dict(
        {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()},
        assign=True,
    )
    return copy
