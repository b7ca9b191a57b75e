"""A step taken apart: numbers that the host counts out, and arithmetic on tensors with them.
 As floats they make an ordinary step. As tensors on the device they can change while the arithmetic
stays as it was recorded, which is how train/graphs/update.py takes a step without a word from Python.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

Scalars = Sequence[float] | Sequence[Tensor]
"""Of one step and one part: the rate, and what depends on it or on the number of steps."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Parameters that a step moves alike: of one group, of one age, with gradients."""

    group: dict[str, Any]
    parameters: list[Tensor]

    @property
    def gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]


class Movable(Protocol):
    """An optimizer whose step can be taken apart: `step()` is `move` with `scalars` and `count` for
    each of its `parts`."""

    state: Any

    def parts(self) -> list[Part]:
        """What a step would move now."""

    def scalars(self, part: Part) -> list[float]:
        """The numbers of the next step; nothing is changed."""

    def move(self, part: Part, scalars: Scalars) -> None:
        """The arithmetic, all of it on tensors: weights and moments are changed in their place."""

    def count(self, part: Part) -> None:
        """Note on the host that the step is done."""

    def step(self) -> Any: ...
