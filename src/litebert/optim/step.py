"""An optimizer's step in two halves: scalars that the host computes, and tensor operations on them.

With floats that is an ordinary step. With scalars on the device the operations can be recorded once
as a CUDA graph and replayed without Python overhead (train/graphs.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

Scalars = Sequence[float] | Sequence[Tensor]
"""Of one step and one step_group: the learning rate, and what depends on it or on the number of
steps."""


@dataclass(frozen=True, kw_only=True)
class StepGroup:
    """Parameters with gradients that a step updates alike: of one parameter group and one age."""

    group: dict[str, Any]
    parameters: list[Tensor]

    @property
    def gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]


class SplitStep(Protocol):
    """An optimizer whose `step()` is `apply` with `scalars`, then `advance`, for each of its
    `step_groups`."""

    state: Any

    def step_groups(self) -> list[StepGroup]:
        """What a step would update now."""

    def scalars(self, step_group: StepGroup) -> list[float]:
        """The scalars of the next step; nothing is changed."""

    def apply(self, step_group: StepGroup, scalars: Scalars) -> None:
        """Update weights and moments in place, by tensor operations alone."""

    def advance(self, step_group: StepGroup) -> None:
        """Count the step on the host."""

    def step(self) -> Any: ...
