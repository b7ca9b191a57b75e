"""Linear models: rows and targets in; outputs for other rows out. LinearModel is a baseline over
sparse features, LinearProbe reads frozen vectors.

The loss is convex and L-BFGS finds its minimum: no seed, no learning rate, no stopping rule.
Regularization is that of scikit-learn's defaults, with which tests compare.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

_Row = Mapping[str, float]
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


class Objective(NamedTuple):
    """What a linear model learns."""

    loss: Callable[[Tensor], Tensor]
    """Of outputs, the sum over all rows."""
    num_outputs: int
    start: float = 0.0
    """Of the biases."""


def logistic(targets: Sequence[int] | Int[Tensor, " rows"], num_labels: int) -> Objective:
    """Multinomial logistic regression: its outputs are logits."""
    labels = torch.as_tensor(targets)
    return Objective(lambda outputs: F.cross_entropy(outputs, labels, reduction="sum"), num_labels)


def multilabel(targets: Sequence[Sequence[float]]) -> Objective:
    """A binary logistic regression for each label; targets are 0 or 1. Outputs are logits."""
    matrix = torch.tensor(targets, dtype=torch.float64)
    return Objective(
        lambda outputs: F.binary_cross_entropy_with_logits(outputs, matrix, reduction="sum"),
        matrix.shape[1],
    )


def ridge(targets: Sequence[float]) -> Objective:
    """Ridge regression: half the squared error."""
    numbers = torch.tensor(targets, dtype=torch.float64)
    return Objective(
        lambda outputs: ((outputs[:, 0] - numbers) ** 2).sum() / 2, 1, start=float(numbers.mean())
    )


@dataclass(frozen=True, kw_only=True)
class LinearModel:
    """Weights of each named feature for each output."""

    names: dict[str, int]
    """Number of each feature."""
    weight: Float[Tensor, "features outputs"]
    bias: Float[Tensor, " outputs"]

    @classmethod
    def fit(cls, rows: Iterable[_Row], objective: Objective) -> "LinearModel":
        names: dict[str, int] = {}
        sparse = _Sparse.of(rows, names, grow=True)
        by_feature = sparse.transposed(len(names))
        weight = torch.zeros((len(names), objective.num_outputs), dtype=torch.float64)
        bias = torch.full((objective.num_outputs,), objective.start, dtype=torch.float64)
        _minimize(objective.loss, weight, bias, sparse.times, by_feature.times)
        return cls(names=names, weight=weight, bias=bias)

    def outputs(self, rows: Iterable[_Row]) -> Float[Tensor, "rows outputs"]:
        """Outputs of rows; features that were not in training are ignored."""
        return _Sparse.of(rows, self.names).times(self.weight) + self.bias


@dataclass(frozen=True, kw_only=True)
class LinearProbe:
    """Weights of each column for each output. Columns are standardized by the training rows, so
    that one penalty serves vectors of every scale."""

    mean: Float[Tensor, " features"]
    scale: Float[Tensor, " features"]
    weight: Float[Tensor, "features outputs"]
    bias: Float[Tensor, " outputs"]

    @classmethod
    def fit(cls, rows: Float[Tensor, "rows features"], objective: Objective) -> "LinearProbe":
        mean, scale = rows.mean(0), rows.std(0, correction=0).clamp(min=1e-6)
        inputs = (rows - mean) / scale
        weight = torch.zeros((rows.shape[1], objective.num_outputs))
        bias = torch.full((objective.num_outputs,), objective.start)
        _minimize(objective.loss, weight, bias, inputs.matmul, inputs.T.matmul)
        return cls(mean=mean, scale=scale, weight=weight, bias=bias)

    def outputs(self, rows: Float[Tensor, "rows features"]) -> Float[Tensor, "rows outputs"]:
        return (rows - self.mean) / self.scale @ self.weight + self.bias


def _minimize(
    loss: Callable[[Tensor], Tensor],
    weight: Tensor,
    bias: Tensor,
    times: Callable[[Tensor], Tensor],
    transposed_times: Callable[[Tensor], Tensor],
) -> None:
    """Find the weights and biases, in place; `times` and `transposed_times` are matmuls with the
    rows."""
    optimizer = torch.optim.LBFGS(
        [weight, bias],
        max_iter=200,
        tolerance_grad=1e-5,
        tolerance_change=1e-10,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        outputs = (times(weight) + bias).requires_grad_()
        total = loss(outputs)
        (gradient,) = torch.autograd.grad(total, outputs)
        weight.grad, bias.grad = transposed_times(gradient) + _PENALTY * weight, gradient.sum(0)
        return total.detach() + _PENALTY / 2 * (weight**2).sum()

    optimizer.step(closure)  # type: ignore[no-untyped-call]
