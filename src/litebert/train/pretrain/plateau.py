"""The oldest complaint about pretraining ALBERT, said aloud: losses in, a warning out where the
plateau was not left.

A model that predicts token frequencies and ignores the context has the unigram entropy as its
loss, near 7 for 30,000 tokens. The entropy is that of the masked tokens of the run itself.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

ADVICE = (
    "try muon (--optimizer muon --learning-rate 1e-3), a smaller batch (256), the pre-norm model "
    "(--encoder norm=pre), a lower learning rate, or a longer warm-up; see docs/pretrain.md"
)


class PlateauWatch:
    """Counts labels and averages losses; speaks once each `steps` steps while the loss is still up
    there."""

    def __init__(self, vocab_size: int, *, steps: int, margin: float) -> None:
        self.counts = np.zeros(vocab_size, np.int64)
        self.steps, self.margin = steps, margin
        self.average: float | None = None
        self.left = steps == 0

    @property
    def entropy(self) -> float:
        """Of the labels seen so far, in nats; with the Miller–Madow correction for the tokens seen
        too seldom."""
        seen = self.counts[self.counts > 0]
        total = int(seen.sum())
        shares = seen / total
        return float(-(shares * np.log(shares)).sum() + (len(seen) - 1) / (2 * total))

    def state_dict(self) -> dict[str, Any]:
        """What a snapshot keeps; the counts only as long as they are needed."""
        return {
            "left": self.left,
            "average": self.average,
            "counts": None if self.left else self.counts.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.left, self.average = state["left"] or self.steps == 0, state["average"]
        if not self.left:
            self.counts = np.array(state["counts"], np.int64)

    def see(self, step: int, labels: np.ndarray, loss: float) -> str | None:
        """After `step`; a sentence where something must be said."""
        if self.left:
            return None
        self.counts += np.bincount(labels, minlength=len(self.counts))
        self.average = loss if self.average is None else 0.98 * self.average + 0.02 * loss
        if (step + 1) % self.steps:
            return None
        entropy = self.entropy
        self.left = self.average < entropy - self.margin
        if self.left:
            return None
        return (
            f"the masked-token loss is {self.average:.2f}, the entropy of single tokens "
            f"{entropy:.2f}: after {step + 1:,} "
            f"steps the model still predicts frequencies and looks at nothing; {ADVICE}"
        )
