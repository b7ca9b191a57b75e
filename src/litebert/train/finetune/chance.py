"""Whether a run ever left chance: losses and scores in, a verdict out. Small data and a high rate
make runs that never do (Mosbach et al. 2021); a user should hear of it, and a lower rate often
mends it.
 Chance on dev is what always saying the same is worth; a score within the noise of so few examples
is not above it. Chance in training is the entropy of the labels. A run has failed that is above
neither: one that learned train and not dev has overfit, and a lower rate is no cure for that.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.scores.baselines import majority
from litebert.tasks.scores.score import score
from litebert.train.finetune.prepared import Prepared
from litebert.train.loop import Event, StepDone

LEARNED = 0.97
"""Part of the chance loss that training must fall below."""


class ChanceWatch:
    """Averages losses over about the last tenth of a beginning, and remembers the best score of
    it."""

    def __init__(self, prepared: Prepared, *, steps: int) -> None:
        task, dev = prepared.card.task, prepared.dev.examples
        self.name = task.scores[0]
        self.chance = score(task, dev, majority(task, prepared.train.examples, dev))[self.name]
        self.margin = 1 / math.sqrt(
            len(dev)
        )  # two standard errors of a share of about a half, or of a correlation of 0
        self.chance_loss = chance_loss(prepared.train.inputs)
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

    def see_score(self, found: float) -> None:
        self.best = found if self.best is None else max(self.best, found)

    @property
    def failed(self) -> bool:
        """Above chance neither on dev nor in training."""
        if self.best is not None and self.best > self.chance + self.margin:
            return False
        learned = (
            self.chance_loss is not None
            and self.average is not None
            and self.average < LEARNED * self.chance_loss
        )
        return not learned

    def said(self) -> str:
        """The numbers, for a message."""
        best = "none" if self.best is None else f"{self.best:.3f}"
        loss = (
            ""
            if self.chance_loss is None or self.average is None
            else (f", a loss of {self.average:.3f} where guessing has {self.chance_loss:.3f}")
        )
        return f"{self.name} on dev at best {best} where always saying the same has {self.chance:.3f}{loss}"


def chance_loss(inputs: Inputs) -> float | None:
    """The loss of the best guess that looks at nothing; None for spans, where position and length
    already tell something."""
    targets = inputs.targets
    if targets is None or inputs.head in ("span", "joint_span"):
        return None
    if inputs.head == "regress":
        return float(np.var(targets))
    if inputs.head == "multilabel":
        shares = targets.mean(0, dtype=np.float64).clip(1e-9, 1 - 1e-9)
        return float(-(shares * np.log(shares) + (1 - shares) * np.log(1 - shares)).mean())
    if inputs.head == "choose":
        return float(np.mean(np.log(inputs.num_rows)))
    shares = np.bincount(targets) / len(targets)
    return float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())
