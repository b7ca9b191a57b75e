"""Masked tokens (BERT's, at masked positions only) and order (ALBERT §3.1): states and a batch in,
losses out."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.objective.sums import Sums


@dataclass(frozen=True, kw_only=True)
class Losses(Sums):
    """Sums over a batch; `+` adds them up."""

    masked: Float[Tensor, ""]
    """Sum of the masked tokens' losses, in nats."""
    masked_correct: Float[Tensor, ""]
    """How many masked tokens were guessed."""
    order: Float[Tensor, ""]
    """Sum of the examples' order losses, in nats; 0 without an order head."""
    order_correct: Float[Tensor, ""]
    """How many orders were guessed."""

    def mean(
        self, *, num_masked: float | Tensor, num_examples: float | Tensor
    ) -> Float[Tensor, ""]:
        """The mean loss of a masked token plus the mean loss of an order, weighted alike."""
        return self.masked / num_masked + self.order / num_examples


def head_losses(
    model: Model,
    states: Float[Tensor, "needed hidden"],
    batch: DeviceBatch,
    fused: bool = False,
) -> Losses:
    """From the last states of the needed tokens to losses, in float32 whatever the states are in;
    `fused`: the masked tokens' by our own kernel."""
    inputs = batch.head_inputs
    logits = model.masked_logits(states[:, None], inputs["masked"])
    masked, masked_correct = label_sums(logits, inputs["masked_labels"], fused)
    order, order_correct = order_sums(model, states[inputs["first"]], batch)
    return Losses(
        masked=masked, masked_correct=masked_correct, order=order, order_correct=order_correct
    )


def needed_states(
    model: Model, batch: DeviceBatch, *, depth: int | None = None
) -> Float[Tensor, "needed hidden"]:
    """The last states of the tokens that the losses read, in the order of `batch.needed`."""
    return batch.states(model.encoder, depth=depth).flatten(0, 1)


def order_sums(
    model: Model, first: Float[Tensor, "rows hidden"], batch: DeviceBatch
) -> tuple[Tensor, Tensor]:
    """The order losses of rows, by the states of their first tokens; 0 without an order head."""
    if "order" not in model.heads:
        zero = first.new_zeros((), dtype=torch.float32)
        return zero, zero
    return _sums(model.logits("order", first[:, None]), batch.head_inputs["order_labels"])


def label_sums(logits: Tensor, labels: Tensor, fused: bool) -> tuple[Tensor, Tensor]:
    """The sum of losses, and how many labels have the highest logit."""
    return (_fused_sums if fused else _sums)(logits, labels)


def _fused_sums(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    from litebert.kernels.cross_entropy import cross_entropy

    return cross_entropy(logits, labels)


def _sums(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    loss = F.cross_entropy(logits.float(), labels, reduction="sum")
    with torch.no_grad():
        correct = (logits.argmax(-1) == labels).sum().float()
    return loss, correct
