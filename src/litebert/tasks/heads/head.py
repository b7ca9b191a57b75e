"""What every task head has: a dtype of targets, a loss, predictions from states, and their mean
over models."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from litebert.model.batch import DeviceBatch
from litebert.model.layers import States
from litebert.model.model import Model
from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.examples import TaskExample
from litebert.tasks.predictions import Prediction
from litebert.tasks.task import TaskCard


@dataclass(frozen=True, kw_only=True)
class TaskSums:
    """Sums over a batch, each a tensor without axes; `+` adds them up."""

    loss: Float[Tensor, ""]
    """To be divided by the number of targets."""
    correct: Float[Tensor, ""]
    """Targets predicted correctly; 0 in regress, which has no right or wrong."""

    def __add__(self, other: "TaskSums") -> "TaskSums":
        return TaskSums(loss=self.loss + other.loss, correct=self.correct + other.correct)

    def detach(self) -> "TaskSums":
        return TaskSums(loss=self.loss.detach(), correct=self.correct.detach())

    def clone(self) -> "TaskSums":
        return TaskSums(loss=self.loss.clone(), correct=self.correct.clone())

    def numbers(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, kw_only=True)
class Query:
    """Encoded examples to predict, and their states."""

    model: Model
    card: TaskCard
    inputs: Inputs
    examples: Sequence[TaskExample]
    batches: Iterable[tuple[np.ndarray, DeviceBatch, Tensor]]
    """Numbers of the units, the units and their states; computed while they are read."""


class Head(Protocol):
    """One entry of HEADS."""

    dtype: torch.dtype
    """Of targets: int64 for class ids, options, columns and tags; float32 for numbers and for
    multilabel's rows of 0 and 1."""

    def loss(self, model: Model, batch: DeviceBatch, states: States, targets: Tensor) -> TaskSums:
        """Sums over the batch, in float32 whatever the dtype of the states."""

    def predict(self, query: Query) -> list[Prediction]:
        """One prediction for each example, in the order of the examples."""

    def average(self, predictions: Sequence[Prediction]) -> Prediction:
        """One prediction from those of several models for one example (ALBERT §4.9)."""


def without_padding(batch: DeviceBatch, losses: Float[Tensor, " units"]) -> Float[Tensor, " units"]:
    """The losses of each unit, 0 for the padding units of a packed batch. Cross-entropy needs no
    such mask: it ignores their targets."""
    is_real = batch.head_inputs.get("is_real")
    return losses if is_real is None else losses * is_real
