"""torch's AdamW as one kernel, with its step taken apart (moves.py). In: gradients. Out: changed
weights."""

import torch
from torch import Tensor, optim
from torch.optim.adamw import adamw

from litebert.optim.moves import Part, Scalars


class AdamW(optim.AdamW):
    """torch's in every respect, its state too. Where it is fused, the number of steps is on the
    device and counted there."""

    def parts(self) -> list[Part]:
        found = []
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            found += [Part(group=group, parameters=parameters)] if parameters else []
        return found

    def scalars(self, part: Part) -> list[float]:
        return [part.group["lr"]]

    @torch.no_grad()
    def move(self, part: Part, scalars: Scalars) -> None:
        states = [self.state[parameter] for parameter in part.parameters]
        columns: list[list[Tensor]] = [
            [state[key] for state in states] for key in ("exp_avg", "exp_avg_sq", "step")
        ]
        group, (first, second, steps) = part.group, columns
        (beta1, beta2), (rate,) = group["betas"], scalars
        adamw(
            part.parameters,
            part.gradients,
            first,
            second,
            [],
            steps,
            fused=group["fused"],
            capturable=True,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=rate,
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )

    def count(self, part: Part) -> None:
        """`move` did."""
