"""Heads whose logits are labels, numbers or options: classify, multilabel, regress, choose and tag
(ALBERT A.3)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from litebert.model.batch import DeviceBatch
from litebert.model.layers import States
from litebert.model.model import Model
from litebert.tasks.decode.decode import Outputs
from litebert.tasks.examples import only
from litebert.tasks.heads.head import Head, TaskSums, to_numpy, without_padding
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    MultiLabelPrediction,
    NumberPrediction,
    Prediction,
    TagPrediction,
)


class Classify(Head):
    """One label for each unit: softmax and cross-entropy. Targets are class ids."""

    kind, dtype = "classify", torch.int64

    def sums(
        self, batch: DeviceBatch, logits: Tensor, targets: Tensor, weights: Tensor | None
    ) -> TaskSums:
        loss = F.cross_entropy(logits, targets, weight=weights, reduction="sum")
        return TaskSums(loss=loss, correct=(logits.argmax(-1) == targets).sum().float())

    def divergence(
        self, logits: Tensor, teacher: Tensor, temperature: float
    ) -> Float[Tensor, " units"]:
        """T² KL(teacher ‖ logits) of the softmax at temperature T (Hinton et al. 2015)."""
        ours, theirs = ((each / temperature).log_softmax(-1) for each in (logits, teacher))
        return temperature**2 * (theirs.exp() * (theirs - ours)).sum(-1)

    def average(self, predictions: Sequence[Prediction]) -> Prediction:
        """The mean probability of each label."""
        models = only(predictions, LabelPrediction)
        return LabelPrediction.of(_mean([each.probabilities for each in models]))


class MultiLabel(Head):
    """Any number of labels for each unit: sigmoid and binary cross-entropy, the mean over the
    labels. Targets are a row of 0 and 1 for each unit."""

    kind, dtype = "multilabel", torch.float32

    def sums(
        self, batch: DeviceBatch, logits: Tensor, targets: Tensor, weights: Tensor | None
    ) -> TaskSums:
        losses = F.binary_cross_entropy_with_logits(
            logits, targets, reduction="none", pos_weight=weights
        ).mean(-1)
        correct = ((logits >= 0) == targets.bool()).all(-1).float()
        return TaskSums(
            loss=without_padding(batch, losses).sum(),
            correct=without_padding(batch, correct).sum(),
        )

    def divergence(
        self, logits: Tensor, teacher: Tensor, temperature: float
    ) -> Float[Tensor, " units"]:
        """T² KL(teacher ‖ logits) of each label's sigmoid at temperature T, the mean over the
        labels."""
        ours, theirs = (each / temperature for each in (logits, teacher))
        yes = theirs.sigmoid() * (F.logsigmoid(theirs) - F.logsigmoid(ours))
        no = (-theirs).sigmoid() * (F.logsigmoid(-theirs) - F.logsigmoid(-ours))
        return temperature**2 * (yes + no).mean(-1)

    def average(self, predictions: Sequence[Prediction]) -> Prediction:
        """The mean probability of each label, and the mean threshold."""
        models = only(predictions, MultiLabelPrediction)
        return MultiLabelPrediction(
            probabilities=_mean([each.probabilities for each in models]),
            threshold=sum(each.threshold for each in models) / len(models),
        )


class Regress(Head):
    """One number for each unit: squared error on the raw numbers. Targets are numbers."""

    kind, dtype = "regress", torch.float32

    def sums(
        self, batch: DeviceBatch, logits: Tensor, targets: Tensor, weights: Tensor | None
    ) -> TaskSums:
        values = logits[:, 0]
        errors = without_padding(batch, (values - targets).square())
        return TaskSums(loss=errors.sum(), correct=values.new_zeros(()))

    def divergence(
        self, logits: Tensor, teacher: Tensor, temperature: float
    ) -> Float[Tensor, " units"]:
        """The squared difference; a number has no temperature."""
        return (logits[:, 0] - teacher[:, 0]).square()

    def average(self, predictions: Sequence[Prediction]) -> Prediction:
        values = [each.value for each in only(predictions, NumberPrediction)]
        return NumberPrediction(value=float(np.mean(values)))


class Choose(Classify):
    """One of a unit's options: cross-entropy over their logits. Targets are options' numbers."""

    kind = "choose"

    def logits(
        self, model: Model, batch: DeviceBatch, states: States
    ) -> Float[Tensor, "targets outputs"]:
        """Options side by side; the lowest number where a unit has fewer."""
        logits = model.logits(self.kind, states).float()
        options, lowest = batch.head_inputs["options"], torch.finfo(logits.dtype).min
        return logits[options.clamp(min=0), 0].masked_fill(options < 0, lowest)

    def average(self, predictions: Sequence[Prediction]) -> Prediction:
        """The mean probability of each option."""
        mean = np.mean([each.probabilities for each in only(predictions, ChoicePrediction)], axis=0)
        return ChoicePrediction(index=int(mean.argmax()), probabilities=tuple(mean.tolist()))


class Tag(Classify):
    """A label for each word, at its first token. Targets are class ids, one for each word."""

    kind = "tag"

    def logits(
        self, model: Model, batch: DeviceBatch, states: States
    ) -> Float[Tensor, "targets outputs"]:
        logits: Tensor = model.head(self.kind)(states.flatten(0, 1)[batch.head_inputs["words"]])
        return logits.float()

    def outputs(self, model: Model, batch: DeviceBatch, states: States) -> Outputs:
        return Outputs(logits=to_numpy(self.logits(model, batch, states)))

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
