"""Muon (Jordan et al. 2024) for the matrices inside the layers, AdamW for everything else. In:
gradients. Out: weights.

A matrix is updated by the orthogonal matrix nearest to its momentum, so that all its singular
directions move by the same amount:

    m ← μ m + (1 − μ) g        u = orthogonal((1 − μ) g + μ m)
    w ← (1 − rate · λ) w − rate · 0.2 √max(rows, columns) · u

The factor gives updates the size of AdamW's, so one learning rate serves both (Liu et al. 2025,
arXiv 2502.16982). Not in ALBERT's paper: its layer is applied a dozen times, so it matters that no
direction of a matrix grows away from the others.
"""

from typing import Any

import torch
from torch import Tensor

from litebert.optim.lamb import Lamb, Scalars, StepGroup

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic whose five-fold application takes singular values from (0, 1] to near 1 (Jordan et
al. 2024)."""
ROUNDS = 5
UPDATE_SIZE = 0.2
"""Root mean square of AdamW's updates, in units of the learning rate."""


class Muon(Lamb):
    """Groups with `momentum` are moved by Muon, the others by AdamW."""

    def scalars(self, step_group: StepGroup) -> list[float]:
        """Of matrices: the factor of weight decay, and the factor of each update."""
        if not _is_muon(step_group.group):
            return super().scalars(step_group)
        rate = step_group.group["lr"]
        sizes = [
            -rate * UPDATE_SIZE * max(parameter.shape) ** 0.5 for parameter in step_group.parameters
        ]
        return [1 - rate * step_group.group["weight_decay"], *sizes]

    def advance(self, step_group: StepGroup) -> None:
        if not _is_muon(step_group.group):  # matrices have no age: nothing of theirs is corrected
            super().advance(step_group)

    @torch.no_grad()
    def apply(self, step_group: StepGroup, scalars: Scalars) -> None:
        if not _is_muon(step_group.group):
            super().apply(step_group, scalars)
            return
        momentum, gradients = step_group.group["momentum"], step_group.gradients
        left, *sizes = scalars
        moments = [self._moment_of(parameter) for parameter in step_group.parameters]
        torch._foreach_lerp_(moments, gradients, 1 - momentum)
        updates = orthogonal_all(torch._foreach_lerp(gradients, moments, momentum))
        torch._foreach_mul_(step_group.parameters, left)
        torch._foreach_mul_(updates, sizes)
        torch._foreach_add_(step_group.parameters, updates)

    def _age_of(self, parameter: Tensor, group: dict[str, Any]) -> int:
        if not _is_muon(group):
            return super()._age_of(parameter, group)
        self._moment_of(parameter)
        return 0

    def _moment_of(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["first"] = torch.zeros_like(parameter)
        moment: Tensor = state["first"]
        return moment


def _is_muon(group: dict[str, Any]) -> bool:
    return group.get("momentum") is not None


def orthogonal_all(matrices: tuple[Tensor, ...] | list[Tensor]) -> list[Tensor]:
    """`orthogonal` of each; those of one shape together, a tall matrix with the wide ones."""
    results: dict[int, Tensor] = {}
    wide = [matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT for matrix in matrices]
    for shape in {matrix.shape for matrix in wide}:
        indices = [index for index, matrix in enumerate(wide) if matrix.shape == shape]
        together = orthogonal(torch.stack([wide[index] for index in indices]))
        results |= dict(zip(indices, together.unbind(), strict=True))
    is_tall = (matrix.shape != other.shape for matrix, other in zip(matrices, wide, strict=True))
    return [results[index].mT if tall else results[index] for index, tall in enumerate(is_tall)]


def orthogonal(matrices: Tensor) -> Tensor:
    """The nearest orthogonal matrices, roughly: singular values between about 0.7 and 1.2, the same
    singular vectors.

    Wide matrices or square ones; three matmuls a round and nothing between them.
    """
    a, b, c = _COEFFICIENTS
    # a GPU is fast in it, and roughness does not matter
    x = matrices.to(torch.bfloat16) if matrices.is_cuda else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(ROUNDS):
        square = x @ x.mT
        square = torch.baddbmm(square, square, square, beta=b, alpha=c)
        x = torch.baddbmm(x, square, x, beta=a)
    return x.to(matrices.dtype)
