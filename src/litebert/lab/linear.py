"""Linear models of frozen vectors: dense rows and targets in; outputs for other rows out.

The loss is convex and L-BFGS finds its minimum: no seed, no learning rate, no stopping rule.
Columns are standardized by the training rows, so that one penalty serves vectors of every scale.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

_STEPS = 200
_PENALTY = 1.0
"""Of half the squared weights, beside the sum of the losses of all rows."""
Rows = Float[Tensor, "rows features"]


@dataclass(frozen=True, kw_only=True)
class LinearProbe:
    """Weights of each standardized feature for each output."""

    mean: Float[Tensor, " features"]
    scale: Float[Tensor, " features"]
    weight: Float[Tensor, "features outputs"]
    bias: Float[Tensor, " outputs"]

    @classmethod
    def logistic(
        cls, rows: Rows, targets: Sequence[int] | Int[Tensor, " rows"], num_labels: int
    ) -> "LinearProbe":
        """Multinomial logistic regression: its outputs are logits."""
        labels = torch.as_tensor(targets)
        return cls._fit(
            rows, num_labels, lambda outputs: F.cross_entropy(outputs, labels, reduction="sum"), 0.0
        )

    @classmethod
    def ridge(cls, rows: Rows, targets: Sequence[float]) -> "LinearProbe":
        """Ridge regression: half the squared error."""
        numbers = torch.as_tensor(targets, dtype=torch.float32)
        return cls._fit(
            rows,
            1,
            lambda outputs: ((outputs[:, 0] - numbers) ** 2).sum() / 2,
            float(numbers.mean()),
        )

    @classmethod
    def _fit(
        cls, rows: Rows, num_outputs: int, loss: Callable[[Tensor], Tensor], start: float
    ) -> "LinearProbe":
        mean, scale = rows.mean(0), rows.std(0, correction=0).clamp(min=1e-6)
        inputs = (rows - mean) / scale
        weight = torch.zeros((rows.shape[1], num_outputs), requires_grad=True)
        bias = torch.full((num_outputs,), start, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [weight, bias], max_iter=_STEPS, history_size=20, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            optimizer.zero_grad()
            total = loss(inputs @ weight + bias) + _PENALTY / 2 * (weight**2).sum()
            total.backward()  # type: ignore[no-untyped-call]
            return total

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        return cls(mean=mean, scale=scale, weight=weight.detach(), bias=bias.detach())

    def outputs(self, rows: Rows) -> Float[Tensor, "rows outputs"]:
        return (rows - self.mean) / self.scale @ self.weight + self.bias
