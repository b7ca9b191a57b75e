"""The checkpoint that was best on dev. A score and a checkpoint in; a folder out, and weights that
wait for a full disk."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint

Write = Callable[[Checkpoint, Path], str | None]


class BestKeeper:
    """Keeps the best so far at `path`. What cannot be written stays in memory and is tried again;
    what is not on the disk does not count for a process that resumes."""

    def __init__(self, path: Path, write: Write) -> None:
        self.path, self.write = path, write
        self.score: float | None = None
        self.step = -1
        self._waiting: Checkpoint | None = None
        self._written: dict[str, Any] = {"score": None, "step": -1}

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
        wrong = None if self._waiting is None else self.write(self._waiting, self.path)
        if wrong is None:
            self._waiting = None
            self._written = {"score": self.score, "step": self.step}
        return wrong

    @property
    def is_written(self) -> bool:
        return self._waiting is None

    def state(self) -> dict[str, Any]:
        return dict(self._written)

    def load(self, state: Mapping[str, Any]) -> None:
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
