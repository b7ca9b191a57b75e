"""Sums of losses and counts over a batch, as tensors on its device: what a forward returns.

They are sums, not means, so that microbatches and ranks add up to the loss of the whole batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

from jaxtyping import Float
from torch import Tensor

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

    def __add__(self, other: Self) -> Self:
        return type(self)(
            **{name: number + getattr(other, name) for name, number in self.numbers().items()}
        )

    def detach(self) -> Self:
        return type(self)(**{name: number.detach() for name, number in self.numbers().items()})

    def numbers(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def clone(self) -> Self:
        return type(self)(**{name: number.clone() for name, number in self.numbers().items()})

    def mean(
        self, *, num_masked: float | Tensor, num_examples: float | Tensor
    ) -> Float[Tensor, ""]:
        """The mean loss of a masked token plus the mean loss of an order, weighted alike."""
        return self.masked / num_masked + self.order / num_examples


@dataclass(frozen=True, kw_only=True)
class DetectionLosses(Losses):
    """Of replaced-token detection: `masked` is the generator's."""

    detection: Float[Tensor, ""]
    """Sum of the real tokens' detection losses, in nats."""
    detection_correct: Float[Tensor, ""]
    """How many real tokens were told right, replaced or original."""
    replaced: Float[Tensor, ""]
    """How many were replaced."""
    flagged: Float[Tensor, ""]
    """How many were taken for replaced."""
    flagged_replaced: Float[Tensor, ""]
    """How many of the replaced ones were."""


def losses_of(model: Model) -> type[Losses]:
    """What a forward of this model returns."""
    return Losses if model.generator is None else DetectionLosses


def detection_scores(sums: Mapping[str, float], *, num_tokens: float) -> dict[str, float]:
    """From sums over real tokens to scores. The base rate of accuracy is 1 - replaced_fraction."""
    return {
        "detection_loss": sums["detection"] / num_tokens,
        "detection_accuracy": sums["detection_correct"] / num_tokens,
        "detection_precision": sums["flagged_replaced"] / max(sums["flagged"], 1.0),
        "detection_recall": sums["flagged_replaced"] / max(sums["replaced"], 1.0),
        "replaced_fraction": sums["replaced"] / num_tokens,
    }
