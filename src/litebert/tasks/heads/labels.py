"""Heads whose logits are labels, numbers or options: classify, multilabel, regress, choose and tag
(ALBERT A.3)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
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
from litebert.tasks.encode.inputs import within
from litebert.tasks.examples import only
from litebert.tasks.heads.head import Query, TaskSums, without_padding
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    MultiLabelPrediction,
    NumberPrediction,
    Prediction,
    TagPrediction,
)


class Classify:
    """One label for each unit: softmax and cross-entropy. Targets are class ids."""

    dtype = torch.int64

    def _logits(
        self, model: Model, batch: DeviceBatch, states: States
    ) -> Float[Tensor, "targets outputs"]:
        return model.logits("classify", states).float()

    def loss(self, model: Model, batch: DeviceBatch, states: States, targets: Tensor) -> TaskSums:
        logits = self._logits(model, batch, states)
        loss = F.cross_entropy(logits, targets, reduction="sum")
        return TaskSums(loss=loss, correct=(logits.argmax(-1) == targets).sum().float())

    def _probabilities(
        self, model: Model, batch: DeviceBatch, states: States
    ) -> Float[np.ndarray, "targets outputs"]:
        probabilities: np.ndarray = self._logits(model, batch, states).softmax(-1).cpu().numpy()
        return probabilities

    def predict(self, query: Query) -> list[Prediction]:
        labels = query.card.task.labels
        rows = np.zeros((len(query.inputs), len(labels)), np.float32)
        for units, batch, states in query.batches:
            rows[units] = self._probabilities(query.model, batch, states)
        best = rows.argmax(1).tolist()
        return [
            LabelPrediction(label=labels[number], probabilities=dict(zip(labels, row, strict=True)))
            for number, row in zip(best, rows.tolist(), strict=True)
        ]

    def average(self, predictions: Sequence[Prediction]) -> Prediction:
        """The mean probability of each label."""
        mean = _mean([each.probabilities for each in only(predictions, LabelPrediction)])
        return LabelPrediction(label=max(mean, key=mean.__getitem__), probabilities=mean)


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

    def predict(self, query: Query) -> list[Prediction]:
        labels, threshold = query.card.task.labels, query.card.label_threshold
        rows = np.zeros((len(query.inputs), len(labels)), np.float32)
        for units, _, states in query.batches:
            logits = query.model.logits("multilabel", states).float()
            rows[units] = logits.sigmoid().cpu().numpy()
        return [
            MultiLabelPrediction(
                probabilities=dict(zip(labels, row, strict=True)), threshold=threshold
            )
            for row in rows.tolist()
        ]

    def average(self, predictions: Sequence[Prediction]) -> Prediction:
        """The mean probability of each label, and the mean threshold."""
        models = only(predictions, MultiLabelPrediction)
        return MultiLabelPrediction(
            probabilities=_mean([each.probabilities for each in models]),
            threshold=sum(each.threshold for each in models) / len(models),
        )


class Regress:
    """One number for each unit: squared error on the raw numbers. Targets are numbers."""

    dtype = torch.float32

    def loss(self, model: Model, batch: DeviceBatch, states: States, targets: Tensor) -> TaskSums:
        values = self._values(model, states)
        errors = without_padding(batch, (values - targets).square())
        return TaskSums(loss=errors.sum(), correct=values.new_zeros(()))

    def predict(self, query: Query) -> list[Prediction]:
        values = np.zeros(len(query.inputs), np.float32)
        for units, _, states in query.batches:
            values[units] = self._values(query.model, states).cpu().numpy()
        return [NumberPrediction(value=value) for value in values.tolist()]

    def average(self, predictions: Sequence[Prediction]) -> Prediction:
        """The mean."""
        values = [each.value for each in only(predictions, NumberPrediction)]
        return NumberPrediction(value=float(np.mean(values)))

    def _values(self, model: Model, states: States) -> Float[Tensor, " units"]:
        return model.logits("regress", states).float()[:, 0]


class Choose(Classify):
    """One of a unit's options: cross-entropy over their logits. Targets are options' numbers."""

    def _logits(
        self, model: Model, batch: DeviceBatch, states: States
    ) -> Float[Tensor, "targets outputs"]:
        """Options side by side; the lowest number where a unit has fewer."""
        logits = model.logits("choose", states).float()
        options, lowest = batch.head_inputs["options"], torch.finfo(logits.dtype).min
        return logits[options.clamp(min=0), 0].masked_fill(options < 0, lowest)

    def predict(self, query: Query) -> list[Prediction]:
        sizes = query.inputs.num_rows
        rows = np.zeros((len(sizes), int(sizes.max(initial=1))), np.float32)
        for units, batch, states in query.batches:
            some = self._probabilities(query.model, batch, states)
            rows[units, : some.shape[1]] = some
        options = [
            tuple(row[:size]) for row, size in zip(rows.tolist(), sizes.tolist(), strict=True)
        ]
        return [ChoicePrediction(index=int(np.argmax(row)), probabilities=row) for row in options]

    def average(self, predictions: Sequence[Prediction]) -> Prediction:
        """The mean probability of each option."""
        mean = np.mean([each.probabilities for each in only(predictions, ChoicePrediction)], axis=0)
        return ChoicePrediction(index=int(mean.argmax()), probabilities=tuple(mean.tolist()))


class Tag(Classify):
    """A label for each word, at its first token. Targets are class ids, one for each word."""

    def _logits(
        self, model: Model, batch: DeviceBatch, states: States
    ) -> Float[Tensor, "targets outputs"]:
        logits: Tensor = model.head("tag")(states.flatten(0, 1)[batch.head_inputs["words"]])
        return logits.float()

    def predict(self, query: Query) -> list[Prediction]:
        inputs, labels = query.inputs, query.card.task.labels
        assert inputs.sizes is not None
        bounds = row_bounds(inputs.sizes)
        best, highest = np.zeros(bounds[-1], np.int64), np.zeros(bounds[-1], np.float32)
        for units, batch, states in query.batches:
            rows = self._probabilities(query.model, batch, states)
            words = within(bounds, units)
            best[words], highest[words] = rows.argmax(1), rows.max(1)
        tags, probabilities = [labels[number] for number in best.tolist()], highest.tolist()
        # windows are in the order of their examples, and each word belongs to one of them
        first = np.searchsorted(inputs.examples, np.arange(len(query.examples)))
        return [
            TagPrediction(
                tags=tuple(tags[start:stop]), probabilities=tuple(probabilities[start:stop])
            )
            for start, stop in pairwise(np.append(bounds[first], bounds[-1]).tolist())
        ]

    def average(self, predictions: Sequence[Prediction]) -> Prediction:
        """Each model votes for its tag with its probability."""
        models = only(predictions, TagPrediction)
        best = []
        for word in range(len(models[0].tags)):
            votes: defaultdict[str, float] = defaultdict(float)
            for each in models:
                votes[each.tags[word]] += each.probabilities[word] / len(models)
            best.append(max(sorted(votes.items()), key=lambda vote: vote[1]))
        return TagPrediction(
            tags=tuple(tag for tag, _ in best), probabilities=tuple(p for _, p in best)
        )


def _mean(probabilities: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {
        label: sum(each[label] for each in probabilities) / len(probabilities)
        for label in probabilities[0]
    }
