"""States of a text's tokens in; its vector out."""

from collections.abc import Callable

from jaxtyping import Bool, Float
from torch import Tensor

from litebert.config import Pooling


def mean(
    states: Float[Tensor, "batch seq hidden"], mask: Bool[Tensor, "batch seq"] | None
) -> Float[Tensor, "batch hidden"]:
    """Over every real token, [CLS] and [SEP] included, as sentence-transformers does."""
    if mask is None:
        return states.mean(1)
    weights = mask.to(states.dtype)[..., None]
    return (states * weights).sum(1) / weights.sum(1)


POOLINGS: dict[Pooling, Callable[[Tensor, Tensor | None], Tensor]] = {
    "mean": mean,
    "cls": lambda states, mask: states[:, 0],
}
