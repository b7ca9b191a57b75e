"""A linear model over sparse features: rows of named numbers and targets in, a model that is the minimum of its loss out.

The loss is convex and L-BFGS goes to its minimum: no seed, no rate, no stopping rule to tune. Regularisation is as in
scikit-learn's defaults, with which tests compare.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

Row = Mapping[str, float]
STEPS = 200
PENALTY = 1.0
"""Of half the squared weights, beside the sum of the losses of all rows."""


class LinearModel:
    """Weights of each feature for each output."""

    def __init__(self, names: Mapping[str, int], weight: Float[Tensor, "features outputs"], bias: Float[Tensor, " outputs"]):
        self.names, self.weight, self.bias = names, weight, bias

    @classmethod
    def logistic(cls, rows: Sequence[Row], targets: Sequence[int], num_labels: int) -> "LinearModel":
        """Multinomial logistic regression: its outputs are logits."""
        labels = torch.tensor(targets)
        return cls._fit(rows, num_labels, lambda outputs: F.cross_entropy(outputs, labels, reduction="sum"))

    @classmethod
    def ridge(cls, rows: Sequence[Row], targets: Sequence[float]) -> "LinearModel":
        """Ridge regression: half the squared error."""
        numbers = torch.tensor(targets, dtype=torch.float64)
        return cls._fit(rows, 1, lambda outputs: ((outputs[:, 0] - numbers) ** 2).sum() / 2, start=float(numbers.mean()))

    @classmethod
    def _fit(
        cls, rows: Sequence[Row], num_outputs: int, loss: Callable[[Tensor], Tensor], *, start: float = 0.0
    ) -> "LinearModel":
        names = {name: place for place, name in enumerate(sorted(set(chain.from_iterable(rows))))}
        weight = torch.zeros((len(names), num_outputs), dtype=torch.float64, requires_grad=True)
        bias = torch.full((num_outputs,), start, dtype=torch.float64, requires_grad=True)
        model, sparse = cls(names, weight, bias), _sparse(rows, names)
        optimizer = torch.optim.LBFGS(
            [weight, bias], max_iter=STEPS, tolerance_grad=1e-5, tolerance_change=1e-10, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            optimizer.zero_grad()
            total = loss(model._apply(*sparse)) + PENALTY / 2 * (weight**2).sum()
            total.backward()  # type: ignore[no-untyped-call]
            return total

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        return cls(names, weight.detach(), bias.detach())

    def outputs(self, rows: Sequence[Row]) -> Float[Tensor, "rows outputs"]:
        """Of rows that may have features not seen before, which count for nothing."""
        return self._apply(*_sparse(rows, self.names))

    def _apply(self, places: Int[Tensor, " all"], values: Float[Tensor, " all"], starts: Int[Tensor, " rows"]) -> Tensor:
        return F.embedding_bag(places, self.weight, starts, mode="sum", per_sample_weights=values) + self.bias


def _sparse(rows: Sequence[Row], names: Mapping[str, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Places of the features of all rows, their numbers, and where each row starts."""
    known = [[(names[name], value) for name, value in row.items() if name in names] for row in rows]
    flat = list(chain.from_iterable(known))
    places = torch.tensor([place for place, _ in flat], dtype=torch.int64)
    values = torch.tensor([value for _, value in flat], dtype=torch.float64)
    sizes = torch.tensor([len(row) for row in known], dtype=torch.int64)
    return places, values, sizes.cumsum(0) - sizes
