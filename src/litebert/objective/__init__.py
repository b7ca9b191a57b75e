"""What pretraining learns: a model and a batch in, losses out. Masked tokens and order (masked.py),
or replaced tokens and order (replaced.py) where the model has a generator.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from litebert.kernels.gate import gate_of
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.objective import masked, replaced
from litebert.objective.masked import Losses
from litebert.objective.replaced import DetectionLosses, detection_scores


@dataclass(frozen=True, kw_only=True)
class Tail:
    """What follows the last states; each may be compiled."""

    masked: Callable[[Model, Tensor, DeviceBatch, bool], Losses] = masked.head_losses
    generator: Callable[[Model, Tensor, DeviceBatch, bool], tuple[Tensor, Tensor, Tensor]] = (
        replaced.generator_losses
    )
    detection: Callable[[Model, Tensor, Tensor, Tensor], dict[str, Tensor]] = (
        replaced.detection_losses
    )


def losses_of(model: Model) -> type[Losses]:
    """What a forward of this model returns."""
    return Losses if model.generator is None else DetectionLosses


def pretrain_losses(
    model: Model, batch: DeviceBatch, *, depth: int | None = None, tail: Tail | None = None
) -> Losses:
    """The losses of a batch; `depth` stops the encoder after that many layers."""
    tail = tail or Tail()
    if model.generator is not None:
        return _replaced_losses(model, model.generator, batch, depth, tail)
    states = masked.needed_states(model, batch, depth=depth)
    return tail.masked(model, states, batch, gate_of(model).cross_entropy)


def _replaced_losses(
    model: Model, generator: Model, batch: DeviceBatch, depth: int | None, tail: Tail
) -> DetectionLosses:
    states = masked.needed_states(generator, batch)
    fused = gate_of(generator).cross_entropy
    loss, correct, sampled = tail.generator(generator, states, batch, fused)
    filled, is_replaced = replaced.replace_tokens(batch, sampled)
    states = filled.states(model.encoder, depth=depth)
    order, order_correct = masked.order_sums(model, replaced.first_states(states, batch), batch)
    return DetectionLosses(
        masked=loss,
        masked_correct=correct,
        order=order,
        order_correct=order_correct,
        **tail.detection(model, states, is_replaced, replaced.is_real(batch)),
    )


__all__ = [
    "DetectionLosses",
    "Losses",
    "Tail",
    "detection_scores",
    "losses_of",
    "pretrain_losses",
]
