"""torch's fused AdamW, with its step in two halves (step.py). In: gradients. Out: weights."""

import torch
from torch import Tensor, optim
from torch.optim.adamw import adamw

from litebert.optim.step import Scalars, StepGroup


class AdamW(optim.AdamW):
    """torch's in every respect, its state too. Where it is fused, steps are counted on the
    device."""

    def step_groups(self) -> list[StepGroup]:
        groups = []
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            groups += [StepGroup(group=group, parameters=parameters)] if parameters else []
        return groups

    def scalars(self, step_group: StepGroup) -> list[float]:
        return [step_group.group["lr"]]

    @torch.no_grad()
    def apply(self, step_group: StepGroup, scalars: Scalars) -> None:
        states = [self.state[parameter] for parameter in step_group.parameters]
        columns: list[list[Tensor]] = [
            [state[key] for state in states] for key in ("exp_avg", "exp_avg_sq", "step")
        ]
        group, (first, second, steps) = step_group.group, columns
        (beta1, beta2), (rate,) = group["betas"], scalars
        adamw(
            step_group.parameters,
            step_group.gradients,
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

    def advance(self, step_group: StepGroup) -> None:
        """`apply` did."""
