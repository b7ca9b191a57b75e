"""Several linear maps as one product are the same maps, forward and backward."""

import torch
from torch import nn

from litebert.model.fused import FusedProjection


def test_a_fused_projection_equals_its_parts() -> None:
    torch.manual_seed(0)
    states = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    parts = [nn.Linear(8, width, dtype=torch.float64) for width in (8, 8, 4)]
    inputs = [states, *(parameter for part in parts for parameter in (part.weight, part.bias))]

    def outcome(outputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        total = sum((number + 1) * output.square().sum() for number, output in enumerate(outputs))
        return torch.autograd.grad(total, inputs)  # type: ignore[arg-type]

    fused, apart = list(FusedProjection.apply(*inputs)), [part(states) for part in parts]  # type: ignore[no-untyped-call]
    for mine, theirs in zip([*fused, *outcome(fused)], [*apart, *outcome(apart)], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)
