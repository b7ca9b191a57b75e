"""What every task head has: a dtype of targets, a loss, outputs to decode predictions from, and the
mean of predictions over models."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from litebert.model.batch import DeviceBatch
from litebert.model.layers import States
from litebert.model.model import Model
from litebert.objective.sums import Sums
from litebert.tasks.decode.decode import Outputs
from litebert.tasks.predictions import Prediction


@dataclass(frozen=True, kw_only=True)
class TaskSums(Sums):
    """Sums over a batch; `+` adds them up."""

    loss: Float[Tensor, ""]
    """To be divided by the number of targets."""
    correct: Float[Tensor, ""]
    """Targets predicted correctly; 0 in regress, which has no right or wrong."""


class Head:
    """One entry of HEADS: from logits in float32, whatever the dtype of the states, to sums."""

    kind: str
    dtype: torch.dtype
    """Of targets: int64 for class ids, options, columns and tags; float32 for numbers and for
    multilabel's rows of 0 and 1."""

    def loss(
        self,
        model: Model,
        batch: DeviceBatch,
        states: States,
        targets: Tensor,
        weights: Tensor | None,
    ) -> TaskSums:
        """`weights`, one for each label, are for heads of labels; with several labels they weigh
        the positive ones."""
        return self.sums(batch, self.logits(model, batch, states), targets, weights)

    def logits(self, model: Model, batch: DeviceBatch, states: States) -> Float[Tensor, "..."]:
        return model.logits(self.kind, states).float()

    def sums(
        self, batch: DeviceBatch, logits: Tensor, targets: Tensor, weights: Tensor | None
    ) -> TaskSums:
        """The loss of logits, of the last layer or of an exit."""
        raise NotImplementedError

    def divergence(
        self, logits: Tensor, teacher: Tensor, temperature: float
    ) -> Float[Tensor, " units"]:
        """The distance of an exit's logits from those of the last layer (EXIT_HEADS alone)."""
        raise NotImplementedError

    def outputs(self, model: Model, batch: DeviceBatch, states: States) -> Outputs:
        """What predictions are decoded from (tasks/decode)."""
        return Outputs(logits=to_numpy(model.logits(self.kind, states)))

    def average(self, predictions: Sequence[Prediction]) -> Prediction:
        """One prediction from those of several models for one example (ALBERT §4.9)."""
        raise NotImplementedError


def without_padding(batch: DeviceBatch, losses: Float[Tensor, " units"]) -> Float[Tensor, " units"]:
    """The losses of each unit, 0 for the padding units of a packed batch. Cross-entropy needs no
    such mask: it ignores their targets."""
    is_real = batch.head_inputs.get("is_real")
    return losses if is_real is None else losses * is_real


def to_numpy(logits: Float[Tensor, "..."]) -> Float[np.ndarray, "..."]:
    """In float32 on the CPU."""
    return np.asarray(logits.float().cpu().numpy())
