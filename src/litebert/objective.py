"""States and a batch in, losses out: masked tokens (BERT's, at masked positions only) and order (ALBERT §3.1).

Losses are sums with their counts, not means, so that microbatches and ranks add up to the loss of the whole batch.
This is the only place where the two are added.
"""

from dataclasses import dataclass, fields
from typing import Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from litebert.model.model import Model


class PretrainBatch(Protocol):
    """What the objective reads of a batch, as tensors."""

    @property
    def token_ids(self) -> Int[Tensor, "batch seq"]: ...
    @property
    def segment_ids(self) -> Int[Tensor, "batch seq"]: ...
    @property
    def mask(self) -> Bool[Tensor, "batch seq"] | None: ...
    @property
    def masked_positions(self) -> Int[Tensor, " masked"]: ...
    @property
    def masked_labels(self) -> Int[Tensor, " masked"]: ...
    @property
    def order_labels(self) -> Int[Tensor, " batch"]: ...


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
        return Losses(**{name: number + getattr(other, name) for name, number in self.numbers().items()})

    def detach(self) -> "Losses":
        return Losses(**{name: number.detach() for name, number in self.numbers().items()})

    def numbers(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def mean(self, *, num_masked: float, num_examples: float) -> Float[Tensor, ""]:
        """What is minimized: the mean loss of a masked token plus the mean loss of an order, weighted alike."""
        return self.masked / max(num_masked, 1) + self.order / max(num_examples, 1)


def pretrain_losses(model: Model, batch: PretrainBatch, *, depth: int | None = None) -> Losses:
    """The losses of a batch; logits and their loss are in float32 whatever the states are in."""
    states = model.encoder(batch.token_ids, batch.segment_ids, batch.mask, depth=depth)
    masked, masked_correct = _sums(model.masked_logits(states, batch.masked_positions), batch.masked_labels)
    order = order_correct = masked.new_zeros(())
    if "order" in model.heads:
        order, order_correct = _sums(model.logits("order", states), batch.order_labels)
    return Losses(masked=masked, masked_correct=masked_correct, order=order, order_correct=order_correct)


def _sums(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    loss = F.cross_entropy(logits.float(), labels, reduction="sum")
    with torch.no_grad():
        correct = (logits.argmax(-1) == labels).sum().float()
    return loss, correct
