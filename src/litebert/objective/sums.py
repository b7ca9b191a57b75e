"""Losses of a batch as sums, not means, so that microbatches and ranks add up to the loss of the
whole batch."""

import operator
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Self

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Sums:
    """Base of what a job's loss returns: each field a tensor without axes."""

    def __add__(self, other: Self) -> Self:
        return self._each(operator.add, other)

    def detach(self) -> Self:
        return self._each(Tensor.detach)

    def clone(self) -> Self:
        return self._each(Tensor.clone)

    def numbers(self) -> dict[str, Tensor]:
        """By name, what a step reports."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _each(self, function: Callable[..., Tensor], *others: Self) -> Self:
        all_sums = (self, *others)
        names = [field.name for field in fields(self)]
        return type(self)(
            **{name: function(*(getattr(sums, name) for sums in all_sums)) for name in names}
        )
