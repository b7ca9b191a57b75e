"""Heads whose logits are labels, numbers or options: classify, multilabel,
regress, choose, tag (ALBERT A.3)."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from litebert.model.batch import DeviceBatch
from litebert.model.layers import States
from litebert.model.model import Model
from litebert.packing import row_bounds
from litebert.tasks.encode.inputs import Inputs, within
from litebert.tasks.examples import TaskExample
from litebert.tasks.heads.head import Batches, TaskSums, without_padding
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    MultiLabelPrediction,
    NumberPrediction,
    Prediction,
    TagPrediction,
)
from litebert.tasks.task import TaskCard


class Classify:
    """One label for each unit: softmax and cross-entropy. Targets are class ids."""

    dtype = torch.int64

    def logits(
        self, model: Model, batch: DeviceBatch, states: States
    ) -> Float[Tensor, "targets outputs"]:
        return model.logits("classify", states).float()

    def loss(self, model: Model, batch: DeviceBatch, states: States, targets: Tensor) -> TaskSums:
        logits = self.logits(model, batch, states)
        loss = F.cross_entropy(logits, targets, reduction="sum")
        return TaskSums(loss=loss, correct=(logits.argmax(-1) == targets).sum().float())

    def probabilities(
        self, model: Model, batch: DeviceBatch, states: States
    ) -> Float[np.ndarray, "targets outputs"]:
        probabilities: np.ndarray = self.logits(model, batch, states).softmax(-1).cpu().numpy()
        return probabilities

    def predict(
        self,
        model: Model,
        card: TaskCard,
        inputs: Inputs,
        examples: Sequence[TaskExample],
        batches: Batches,
    ) -> list[Prediction]:
        labels = card.task.labels
        rows = np.zeros((len(inputs), len(labels)), np.float32)
        for units, batch, states in batches:
            rows[units] = self.probabilities(model, batch, states)
        best = rows.argmax(1).tolist()
        return [
            LabelPrediction(label=labels[number], probabilities=dict(zip(labels, row, strict=True)))
            for number, row in zip(best, rows.tolist(), strict=True)
        ]


class MultiLabel:
    """Any number of labels for each unit: sigmoid and binary cross-entropy, the mean over the
    labels. Targets are a row of 0 and 1 for each unit."""

    dtype = torch.float32

    def loss(self, model: Model, batch: DeviceBatch, states: States, targets: Tensor) -> TaskSums:
        logits = model.logits("multilabel", states).float()
        losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(-1)
        correct = ((logits >= 0) == targets.bool()).all(-1).float()
        return TaskSums(
            loss=without_padding(batch, losses).sum(),
            correct=without_padding(batch, correct).sum(),
        )

    def predict(
        self,
        model: Model,
        card: TaskCard,
        inputs: Inputs,
        examples: Sequence[TaskExample],
        batches: Batches,
    ) -> list[Prediction]:
        labels = card.task.labels
        rows = np.zeros((len(inputs), len(labels)), np.float32)
        for units, _, states in batches:
            rows[units] = model.logits("multilabel", states).float().sigmoid().cpu().numpy()
        return [
            MultiLabelPrediction(
                probabilities=dict(zip(labels, row, strict=True)), threshold=card.label_threshold
            )
            for row in rows.tolist()
        ]


class Regress:
    """One number for each unit: squared error on the raw numbers. Targets are numbers."""

    dtype = torch.float32

    def loss(self, model: Model, batch: DeviceBatch, states: States, targets: Tensor) -> TaskSums:
        values = self._values(model, states)
        errors = without_padding(batch, (values - targets).square())
        return TaskSums(loss=errors.sum(), correct=values.new_zeros(()))

    def predict(
        self,
        model: Model,
        card: TaskCard,
        inputs: Inputs,
        examples: Sequence[TaskExample],
        batches: Batches,
    ) -> list[Prediction]:
        values = np.zeros(len(inputs), np.float32)
        for units, _, states in batches:
            values[units] = self._values(model, states).cpu().numpy()
        return [NumberPrediction(value=value) for value in values.tolist()]

    def _values(self, model: Model, states: States) -> Float[Tensor, " units"]:
        return model.logits("regress", states).float()[:, 0]


class Choose(Classify):
    """One of a unit's options: cross-entropy over their logits. Targets are options' numbers."""

    def logits(
        self, model: Model, batch: DeviceBatch, states: States
    ) -> Float[Tensor, "targets outputs"]:
        """Options side by side; the lowest number where a unit has fewer."""
        logits = model.logits("choose", states).float()
        options, lowest = batch.head_inputs["options"], torch.finfo(logits.dtype).min
        return logits[options.clamp(min=0), 0].masked_fill(options < 0, lowest)

    def predict(
        self,
        model: Model,
        card: TaskCard,
        inputs: Inputs,
        examples: Sequence[TaskExample],
        batches: Batches,
    ) -> list[Prediction]:
        rows = np.zeros((len(inputs), int(inputs.num_rows.max(initial=1))), np.float32)
        for units, batch, states in batches:
            some = self.probabilities(model, batch, states)
            rows[units, : some.shape[1]] = some
        options = [
            tuple(row[:size])
            for row, size in zip(rows.tolist(), inputs.num_rows.tolist(), strict=True)
        ]
        return [ChoicePrediction(index=int(np.argmax(row)), probabilities=row) for row in options]


class Tag(Classify):
    """A label for each word, at its first token. Targets are class ids, one for each word."""

    def logits(
        self, model: Model, batch: DeviceBatch, states: States
    ) -> Float[Tensor, "targets outputs"]:
        logits: Tensor = model.head("tag")(states.flatten(0, 1)[batch.head_inputs["words"]])
        return logits.float()

    def predict(
        self,
        model: Model,
        card: TaskCard,
        inputs: Inputs,
        examples: Sequence[TaskExample],
        batches: Batches,
    ) -> list[Prediction]:
        assert inputs.sizes is not None
        bounds = row_bounds(inputs.sizes)
        best, highest = np.zeros(bounds[-1], np.int64), np.zeros(bounds[-1], np.float32)
        for units, batch, states in batches:
            rows = self.probabilities(model, batch, states)
            words = within(bounds, units)
            best[words], highest[words] = rows.argmax(1), rows.max(1)
        tags = [card.task.labels[number] for number in best.tolist()]
        probabilities = highest.tolist()
        # windows are in the order of their examples, and each word belongs to one of them
        first = np.searchsorted(inputs.examples, np.arange(len(examples)))
        return [
            TagPrediction(
                tags=tuple(tags[start:stop]), probabilities=tuple(probabilities[start:stop])
            )
            for start, stop in pairwise(np.append(bounds[first], bounds[-1]).tolist())
        ]
