"""Arrays of int64 that travel to a device in one copy, and the shapes that compiled code and CUDA
graphs meet. Named arrays in; one piece of pinned memory, and the same arrays as views of it
wherever it lies, out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True, eq=False)
class Arrays:
    """What a microbatch is made of; a subclass says which batch of tensors it becomes."""

    arrays: Mapping[str, Int[np.ndarray, "..."]]
    """Of int64, by name."""
    longest: int
    """No row has more tokens."""

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """What a CUDA graph is recorded for."""
        return (*(array.shape for array in self.arrays.values()), (self.longest,))

    def flat(self) -> "torch.Tensor":
        """All arrays in one piece of pinned memory: one copy to the device, which need not be
        waited for."""
        import torch

        return torch.from_numpy(
            np.concatenate([array.reshape(-1) for array in self.arrays.values()])
        ).pin_memory()

    def views(self, flat: "torch.Tensor") -> "dict[str, torch.Tensor]":
        """The arrays that lie in `flat`, which `flat()` filled, by name."""
        parts = flat.split([array.size for array in self.arrays.values()])  # type: ignore[no-untyped-call]
        return {
            name: part.view(array.shape)
            for (name, array), part in zip(self.arrays.items(), parts, strict=True)
        }

    def on(self, device: "torch.device | str") -> "dict[str, torch.Tensor]":
        """The arrays on a device, by name."""
        import torch

        if torch.device(device).type == "cpu":
            return {name: torch.from_numpy(array) for name, array in self.arrays.items()}
        return self.views(self.flat().to(device, non_blocking=True))
