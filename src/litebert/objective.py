"""States and a batch in, losses out: masked tokens (BERT's, at masked positions only) and order
(ALBERT §3.1).

Losses are sums with their counts, not means, so that microbatches and ranks add up to the loss of
the whole batch. This is the only place where the two are added.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from litebert.kernels.gate import gate_of
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Sums over a batch, each a tensor without axes; `+` adds them up."""

    masked: Float[Tensor, ""]
    """Sum of the masked tokens' losses, in nats."""
    masked_correct: Float[Tensor, ""]
    """How many masked tokens were guessed."""
    order: Float[Tensor, ""]
    """Sum of the examples' order losses, in nats; 0 without an order head."""
    order_correct: Float[Tensor, ""]
    """How many orders were guessed."""

    def __add__(self, other: "Losses") -> "Losses":
        return Losses(
            **{name: number + getattr(other, name) for name, number in self.numbers().items()}
        )

    def detach(self) -> "Losses":
        return Losses(**{name: number.detach() for name, number in self.numbers().items()})

    def numbers(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def clone(self) -> "Losses":
        return Losses(**{name: number.clone() for name, number in self.numbers().items()})

    def mean(
        self, *, num_masked: float | Tensor, num_examples: float | Tensor
    ) -> Float[Tensor, ""]:
        """What is minimized: the mean loss of a masked token plus the mean loss of an order,
        weighted alike."""
        return self.masked / num_masked + self.order / num_examples


def pretrain_losses(
    model: Model, batch: DeviceBatch, *, depth: int | None = None, tail: "Tail | None" = None
) -> Losses:
    """The losses of a batch; `tail` may be a compiled `head_losses`."""
    states = needed_states(model, batch, depth=depth)
    return (tail or head_losses)(model, states, batch, gate_of(model).cross_entropy)


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
    masked, masked_correct = (_fused_sums if fused else _sums)(logits, inputs["masked_labels"])
    order = order_correct = masked.new_zeros(())
    if "order" in model.heads:
        order, order_correct = _sums(
            model.logits("order", states[inputs["first"]][:, None]), inputs["order_labels"]
        )
    return Losses(
        masked=masked, masked_correct=masked_correct, order=order, order_correct=order_correct
    )


Tail = Callable[[Model, Tensor, DeviceBatch, bool], Losses]


def needed_states(
    model: Model, batch: DeviceBatch, *, depth: int | None = None
) -> Float[Tensor, "needed hidden"]:
    """The last states of the tokens that the losses read, in the order of `batch.needed`."""
    return batch.states(model.encoder, depth=depth).flatten(0, 1)


def _fused_sums(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    from litebert.kernels.cross_entropy import cross_entropy

    return cross_entropy(logits, labels)


def _sums(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of losses, and how many labels have the highest logit."""
    loss = F.cross_entropy(logits.float(), labels, reduction="sum")
    with torch.no_grad():
        correct = (logits.argmax(-1) == labels).sum().float()
    return loss, correct
