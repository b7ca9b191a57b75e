"""A model and a batch in; logits, and losses as sums, out: one rule for each head (ALBERT A.3,
facts of SQuAD and RACE).
 classify: cross-entropy over labels. regress: squared error on the raw numbers. choose:
cross-entropy over a question's options. span: the mean of start's and end's cross-entropy.
joint_span: the same, the true start given to the end, and half the binary cross-entropy of there
being no answer. tag: cross-entropy at each word.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from litebert.config import POOLED_HEADS
from litebert.errors import DataError
from litebert.model.heads import JointSpanHead
from litebert.model.layers import States
from litebert.model.layout import Needed
from litebert.model.model import Model
from litebert.tasks.encode.batch import TaskBatch
from litebert.tasks.encode.layout import PackedBatch, packed_states

NULL_WEIGHT = 0.5
"""Of answerability beside start and end."""
Units = TaskBatch | PackedBatch
"""Side by side, or end to end: the encoder alone reads them differently."""


@dataclass(frozen=True, kw_only=True)
class TaskSums:
    """Sums over a batch, each a tensor without axes; `+` adds them up."""

    loss: Float[Tensor, ""]
    """To be divided by the number of targets."""
    correct: Float[Tensor, ""]
    """How many targets were guessed; 0 in regress, which has no right or wrong."""

    def __add__(self, other: "TaskSums") -> "TaskSums":
        return TaskSums(loss=self.loss + other.loss, correct=self.correct + other.correct)

    def detach(self) -> "TaskSums":
        return TaskSums(loss=self.loss.detach(), correct=self.correct.detach())

    def clone(self) -> "TaskSums":
        return TaskSums(loss=self.loss.clone(), correct=self.correct.clone())

    def numbers(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def task_losses(model: Model, batch: Units) -> TaskSums:
    """The losses of a batch, on the device where it lies; in float32 whatever the states are in."""
    if batch.targets is None:
        raise DataError(
            "these examples have no labels, so there is nothing to learn from; give a labelled "
            "split"
        )
    return LOSSES[batch.head](model, batch, task_states(model, batch), batch.targets)


def task_states(model: Model, batch: Units) -> States:
    """What the heads read: the first token's states alone where a head pools them, which saves most
    of the last layer."""
    if isinstance(batch, PackedBatch):
        return packed_states(model, batch)
    needed = None
    if batch.head in POOLED_HEADS:
        rows, seq = batch.token_ids.shape
        needed = Needed(places=(torch.arange(rows, device=batch.token_ids.device) * seq)[:, None])
    states: Tensor = model.encoder(
        token_ids=batch.token_ids, segment_ids=batch.segment_ids, mask=batch.mask, needed=needed
    )
    return states


def label_logits(model: Model, batch: Units, states: States) -> Float[Tensor, "units outputs"]:
    """Of classify; of choose, options side by side, the lowest number where there are fewer; of
    tag, at each word."""
    if batch.head == "tag":
        assert batch.positions is not None
        logits: Tensor = model.head("tag")(states.flatten(0, 1)[batch.positions])
        return logits.float()
    logits = model.logits(batch.head, states).float()
    if batch.head != "choose":
        return logits
    lowest = torch.finfo(logits.dtype).min
    if isinstance(batch, PackedBatch):
        assert batch.options is not None
        return logits[batch.options.clamp(min=0), 0].masked_fill(batch.options < 0, lowest)
    assert batch.sizes is not None
    there = torch.arange(int(batch.sizes.max()), device=logits.device) < batch.sizes[:, None]
    return logits.new_full(there.shape, lowest).masked_scatter(there, logits[:, 0])


def span_logits(model: Model, batch: Units, states: States) -> Float[Tensor, "2 rows seq"]:
    """Start's and end's, the lowest number where an answer cannot stand."""
    assert batch.allowed is not None
    logits = model.logits("span", states).float().permute(2, 0, 1)
    return logits.masked_fill(~batch.allowed, torch.finfo(logits.dtype).min)


def _label_losses(model: Model, batch: Units, states: States, targets: Tensor) -> TaskSums:
    logits = label_logits(model, batch, states)
    loss = F.cross_entropy(logits, targets, reduction="sum")
    return TaskSums(loss=loss, correct=_count(logits.argmax(-1) == targets))


def _number_losses(model: Model, batch: Units, states: States, targets: Tensor) -> TaskSums:
    values = model.logits("regress", states).float()[:, 0]
    errors = _of_units(batch, (values - targets).square())
    return TaskSums(loss=errors.sum(), correct=values.new_zeros(()))


def _span_losses(model: Model, batch: Units, states: States, targets: Tensor) -> TaskSums:
    start, end = span_logits(model, batch, states)
    return _start_and_end(start, end, targets)


def _joint_losses(model: Model, batch: Units, states: States, targets: Tensor) -> TaskSums:
    head = model.head("joint_span")
    assert isinstance(head, JointSpanHead)
    assert batch.allowed is not None
    logits = head(
        states, batch.allowed, targets[:, 0].clamp(min=0)
    )  # of filling, which has none, whichever
    sums = _start_and_end(logits.start.float(), logits.end.float(), targets)
    is_null = (targets[:, 0] == 0).float()
    null = F.binary_cross_entropy_with_logits(
        logits.unanswerable.float(), is_null, reduction="none"
    )
    return TaskSums(
        loss=sums.loss + NULL_WEIGHT * _of_units(batch, null).sum(), correct=sums.correct
    )


def _start_and_end(start: Tensor, end: Tensor, targets: Tensor) -> TaskSums:
    parts = zip((start, end), targets.unbind(1), strict=True)
    loss = (
        torch.stack(
            [F.cross_entropy(logits, where, reduction="sum") for logits, where in parts]
        ).sum()
        / 2
    )
    right = (start.argmax(-1) == targets[:, 0]) & (end.argmax(-1) == targets[:, 1])
    return TaskSums(loss=loss, correct=_count(right))


def _of_units(batch: Units, losses: Tensor) -> Tensor:
    """Without what filling has; cross-entropy passes over it by itself."""
    return (
        losses * batch.is_real
        if isinstance(batch, PackedBatch) and batch.is_real is not None
        else losses
    )


def _count(right: Tensor) -> Tensor:
    return right.sum().float()


LOSSES: dict[str, Callable[[Model, Units, States, Tensor], TaskSums]] = {
    "classify": _label_losses,
    "regress": _number_losses,
    "choose": _label_losses,
    "span": _span_losses,
    "joint_span": _joint_losses,
    "tag": _label_losses,
}
