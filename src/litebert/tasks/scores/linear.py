"""Linear models over sparse features, for baselines: rows of named numbers and targets in.

The loss is convex and L-BFGS finds its minimum: no seed, no learning rate, no stopping rule.
Regularization is that of scikit-learn's defaults, with which tests compare.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

_Row = Mapping[str, float]
_STEPS = 200
_PENALTY = 1.0  # of half the squared weights, beside the sum of the losses of all rows


@dataclass(frozen=True, kw_only=True)
class _Sparse:
    """Rows in one flat array: a large train split has millions of words."""

    columns: Int[Tensor, " all"]
    """Numbers of the nonzero features, row after row."""
    values: Float[Tensor, " all"]
    starts: Int[Tensor, " rows"]

    @classmethod
    def of(cls, rows: Iterable[_Row], names: dict[str, int], *, grow: bool = False) -> "_Sparse":
        """Rows by the numbers of their features. An unknown feature gets the next number if `grow`,
        else it is ignored."""
        columns, values, starts = array("q"), array("d"), array("q")
        for row in rows:
            starts.append(len(columns))
            for name, value in row.items():
                column = names.setdefault(name, len(names)) if grow else names.get(name)
                if column is not None:
                    columns.append(column)
                    values.append(value)
        return cls(
            columns=torch.tensor(columns, dtype=torch.int64),
            values=torch.tensor(values, dtype=torch.float64),
            starts=torch.tensor(starts, dtype=torch.int64),
        )

    def transposed(self, num_features: int) -> "_Sparse":
        """The transpose: gradients of the weights are a matmul with it, far faster than
        autograd's."""
        sizes = torch.diff(self.starts, append=torch.tensor([len(self.columns)]))
        rows = torch.repeat_interleave(torch.arange(len(self.starts)), sizes)
        order = torch.argsort(self.columns, stable=True)
        counts = torch.bincount(self.columns, minlength=num_features)
        return _Sparse(
            columns=rows[order], values=self.values[order], starts=counts.cumsum(0) - counts
        )

    def times(self, weight: Float[Tensor, "features outputs"]) -> Float[Tensor, "rows outputs"]:
        return F.embedding_bag(
            self.columns, weight, self.starts, mode="sum", per_sample_weights=self.values
        )


@dataclass(frozen=True, kw_only=True)
class LinearModel:
    """Weights of each feature for each output."""

    names: dict[str, int]
    """Number of each feature."""
    weight: Float[Tensor, "features outputs"]
    bias: Float[Tensor, " outputs"]

    @classmethod
    def logistic(
        cls, rows: Iterable[_Row], targets: Sequence[int], num_labels: int
    ) -> "LinearModel":
        """Multinomial logistic regression: its outputs are logits."""
        labels = torch.tensor(targets)
        return cls._fit(
            rows, num_labels, lambda outputs: F.cross_entropy(outputs, labels, reduction="sum")
        )

    @classmethod
    def multilabel(cls, rows: Iterable[_Row], targets: Sequence[Sequence[float]]) -> "LinearModel":
        """A binary logistic regression for each label; targets are 0 or 1. Outputs are logits."""
        matrix = torch.tensor(targets, dtype=torch.float64)
        return cls._fit(
            rows,
            matrix.shape[1],
            lambda outputs: F.binary_cross_entropy_with_logits(outputs, matrix, reduction="sum"),
        )

    @classmethod
    def ridge(cls, rows: Iterable[_Row], targets: Sequence[float]) -> "LinearModel":
        """Ridge regression: half the squared error."""
        numbers = torch.tensor(targets, dtype=torch.float64)
        return cls._fit(
            rows,
            1,
            lambda outputs: ((outputs[:, 0] - numbers) ** 2).sum() / 2,
            start=float(numbers.mean()),
        )

    @classmethod
    def _fit(
        cls,
        rows: Iterable[_Row],
        num_outputs: int,
        loss: Callable[[Tensor], Tensor],
        *,
        start: float = 0.0,
    ) -> "LinearModel":
        names: dict[str, int] = {}
        sparse = _Sparse.of(rows, names, grow=True)
        by_feature = sparse.transposed(len(names))
        weight = torch.zeros((len(names), num_outputs), dtype=torch.float64)
        bias = torch.full((num_outputs,), start, dtype=torch.float64)
        optimizer = torch.optim.LBFGS(
            [weight, bias],
            max_iter=_STEPS,
            tolerance_grad=1e-5,
            tolerance_change=1e-10,
            history_size=20,
            line_search_fn="strong_wolfe",
        )

        def closure() -> Tensor:
            outputs = (sparse.times(weight) + bias).requires_grad_()
            total = loss(outputs)
            (gradient,) = torch.autograd.grad(total, outputs)
            weight.grad, bias.grad = by_feature.times(gradient) + _PENALTY * weight, gradient.sum(0)
            return total.detach() + _PENALTY / 2 * (weight**2).sum()

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        return cls(names=names, weight=weight, bias=bias)

    def outputs(self, rows: Iterable[_Row]) -> Float[Tensor, "rows outputs"]:
        """Outputs of rows; features that were not in training are ignored."""
        return _Sparse.of(rows, self.names).times(self.weight) + self.bias
