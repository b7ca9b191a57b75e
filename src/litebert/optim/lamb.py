"""LAMB (You et al. 2020, arXiv 1904.00962) as Google's ALBERT has it. In: gradients. Out: changed
weights.

For each tensor w with gradient g, moments m and v:

    m ← β₁ m + (1 − β₁) g        v ← β₂ v + (1 − β₂) g²
    u = m / (√v + ε) + λ w       w ← w − rate · φ(‖w‖)/‖u‖ · u       (ratio 1 where a norm is 0)

ALBERT's release has no bias correction and φ is the identity; the paper's Algorithm 2 corrects
both moments and lets φ be a clamp: both are switches. Groups with `adapt=False` keep ratio 1, which
makes them AdamW: with no bias correction that is exactly the optimizer Google fine-tunes with. The
arithmetic runs over lists of tensors (`torch._foreach_*`), so a step is a few kernels, and nothing
in it waits for the device.

A step has two halves: scalars that the host computes, and tensor operations on them. With floats
that is an ordinary step. With scalars on the device the operations can be recorded once as a CUDA
graph and replayed without Python overhead (train/graphs.py).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from litebert.errors import ConfigError

Scalars = Sequence[float] | Sequence[Tensor]
"""Of one step and one step_group: the learning rate, and what depends on it or on the number of
steps."""


@dataclass(frozen=True, kw_only=True)
class StepGroup:
    """Parameters with gradients that a step updates alike: of one parameter group and one age."""

    group: dict[str, Any]
    parameters: list[Tensor]

    @property
    def gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]


class Lamb(Optimizer):
    """Layer-wise adapted Adam with decoupled decay.

    Moments are float32 even where parameters are bfloat16 or float16; those also get a float32 copy
    of themselves, which is what moves, since a step is mostly smaller than half a unit in the last
    place of a bfloat16.
    """

    def __init__(
        self,
        parameters: Iterable[Any],
        *,
        lr: float = 1.76e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        bias_correction: bool = False,
        clamp: tuple[float, float] | None = None,
        adapt: bool = True,
    ) -> None:
        """Any of the settings can differ in a parameter group, as in every torch optimizer.

        Args:
            parameters: Tensors, (name, tensor) pairs or groups of them.
            lr: Step size; torch's name, so that its tools find it.
            betas: Decay rates of the two moments, β₁ and β₂.
            eps: Added to √v.
            weight_decay: λ, decoupled: scaled by rate and ratio, never mixed into the gradient.
            bias_correction: Divide the moments by 1 − βᵗ, the LAMB paper's form.
            clamp: Bounds of the weight norm in the ratio, the paper's φ; None for none.
            adapt: Whether the ratio applies; False gives AdamW.
        """
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "bias_correction": bias_correction,
            "clamp": clamp,
            "adapt": adapt,
        }
        super().__init__(parameters, defaults)
        for group in self.param_groups:
            _check(group)

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for step_group in self.step_groups():
            self.apply(step_group, self.scalars(step_group))
            self.advance(step_group)
        return loss

    def step_groups(self) -> list[StepGroup]:
        """Parameters with gradients by group and age: a layer that joined later is younger."""
        groups = []
        for group in self.param_groups:
            ages: dict[int, list[Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    ages.setdefault(self._age_of(parameter, group), []).append(parameter)
            groups += [
                StepGroup(group=group, parameters=parameters) for parameters in ages.values()
            ]
        return groups

    def scalars(self, step_group: StepGroup) -> list[float]:
        """The learning rate, and with bias correction the divisors of √v and m."""
        group = step_group.group
        if not group["bias_correction"]:
            return [group["lr"]]
        (beta1, beta2), step = group["betas"], self._age_of(step_group.parameters[0], group) + 1
        return [group["lr"], (1 - beta2**step) ** 0.5, 1 - beta1**step]

    def advance(self, step_group: StepGroup) -> None:
        """Count the step on the host."""
        for parameter in step_group.parameters:
            self.state[parameter]["step"] += 1

    @torch.no_grad()
    def apply(self, step_group: StepGroup, scalars: Scalars) -> None:
        """Update weights and moments in place, by tensor operations alone."""
        group, parameters = step_group.group, step_group.parameters
        states = [self._state_of(parameter) for parameter in parameters]
        weights = [
            state.get("master", parameter)
            for state, parameter in zip(states, parameters, strict=True)
        ]
        first, second = [state["first"] for state in states], [state["second"] for state in states]
        gradients = [
            gradient.to(moment.dtype)
            for gradient, moment in zip(step_group.gradients, first, strict=True)
        ]
        beta1, beta2 = group["betas"]
        rate, *divisors = scalars

        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        # becomes √v + ε, then m / (√v + ε): one buffer of the model's size
        updates = torch._foreach_sqrt(second)
        if divisors:
            torch._foreach_div_(updates, divisors[0])
        torch._foreach_add_(updates, group["eps"])
        torch._foreach_reciprocal_(updates)
        torch._foreach_mul_(updates, first)
        if divisors:
            torch._foreach_div_(updates, divisors[1])
        if group["weight_decay"]:
            torch._foreach_add_(updates, weights, alpha=group["weight_decay"])
        ratios = _ratios(weights, updates, group["clamp"]) if group["adapt"] else None
        _descend(weights, updates, ratios, rate)
        for state, parameter in zip(states, parameters, strict=True):
            if "master" in state:
                parameter.copy_(state["master"])

    def _age_of(self, parameter: Tensor, group: dict[str, Any]) -> int:
        """Steps that a parameter has taken."""
        age: int = self._state_of(parameter)["step"]
        return age

    def _state_of(self, parameter: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            dtype = torch.promote_types(parameter.dtype, torch.float32)
            state["step"] = 0  # on the host, so that no step waits for the device
            state["first"] = torch.zeros_like(parameter, dtype=dtype)
            state["second"] = torch.zeros_like(parameter, dtype=dtype)
            if dtype != parameter.dtype:
                state["master"] = parameter.detach().to(dtype)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, but the state keeps its own dtype; torch would round it to the
        parameter's."""
        super().load_state_dict(state_dict)
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        for number, parameter in zip(numbers, parameters, strict=True):
            for key, value in state_dict["state"].get(number, {}).items():
                if isinstance(value, Tensor):
                    self.state[parameter][key] = value.detach().to(parameter.device, copy=True)


def _ratios(
    weights: list[Tensor], updates: tuple[Tensor, ...], clamp: tuple[float, float] | None
) -> Tensor:
    weight_norms = torch.stack(torch._foreach_norm(weights))
    update_norms = torch.stack(torch._foreach_norm(updates))
    usable = (weight_norms > 0) & (update_norms > 0)
    if clamp is not None:
        weight_norms = weight_norms.clamp(*clamp)
    return torch.where(usable, weight_norms / update_norms, 1.0)


def _descend(
    weights: list[Tensor], updates: tuple[Tensor, ...], ratios: Tensor | None, rate: float | Tensor
) -> None:
    """w ← w − rate · ratio · u. A learning rate on the device cannot be a kernel's argument, so it
    is multiplied in first."""
    if isinstance(rate, Tensor):
        if ratios is None:
            torch._foreach_mul_(updates, rate)
            torch._foreach_sub_(weights, updates)
        else:
            torch._foreach_addcmul_(weights, updates, (ratios * rate).unbind(), -1)
    elif ratios is None:
        torch._foreach_add_(weights, updates, alpha=-rate)
    else:
        torch._foreach_addcmul_(weights, updates, ratios.unbind(), -rate)


def _check(group: dict[str, Any]) -> None:
    if not all(0 <= beta < 1 for beta in group["betas"]):
        raise ConfigError(f"betas are two numbers from 0 to below 1; got {group['betas']}")
    for name in ("lr", "eps", "weight_decay"):
        if not group[name] >= 0:
            raise ConfigError(f"{name} is at least 0; got {group[name]}")
    clamp = group["clamp"]
    if clamp is not None and not 0 <= clamp[0] <= clamp[1]:
        raise ConfigError(
            f"clamp is a lower and an upper bound of the weight norm, or None; got {clamp}"
        )
