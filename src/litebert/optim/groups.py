"""Which parameters are decayed and adapted, and the optimizer of a recipe. In: named parameters.
Out: an optimizer.

Norms and biases are neither decayed nor adapted (Google's optimization.py); embeddings are both.
The low-rank updates of each depth are decayed alone: one factor starts at zero, where LAMB's ratio
would keep it, and Muon is for matrices of full rank.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, optim
from torch.optim import Optimizer
from torch.optim.adamw import adamw

from litebert.errors import ConfigError
from litebert.optim.lamb import Lamb, Scalars, StepGroup
from litebert.optim.muon import Muon
from litebert.recipes import OptimizerSpec


class AdamW(optim.AdamW):
    """torch's in every respect, its state too, with its step in two halves (lamb.py). Where it is
    fused, steps are counted on the device."""

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


_FUSED = ("cpu", "cuda")
"""Devices for which torch has AdamW as one kernel, on every version we support."""


def _is_exempt(name: str) -> bool:
    """Whether a parameter of this name is a bias or belongs to a norm:
    `encoder.embedding.norm.weight` does."""
    *owners, last = name.split(".")
    return last == "bias" or any(owner == "norm" or owner.endswith("_norm") for owner in owners)


def _is_adapter(name: str) -> bool:
    """Whether a parameter of this name is a factor of a low-rank update."""
    return ".adapters." in name


_DENSE_HEADS = ("heads.masked.dense.", "heads.detect.dense.")
"""Linear layers of heads that another follows."""


def _is_inner(name: str, parameter: Tensor) -> bool:
    """Whether this is a matrix between two hidden widths: no embedding table, and no head's last
    linear layer."""
    if _is_adapter(name):
        return False
    table = any(f"embedding.{kind}." in name for kind in ("token", "position", "segment"))
    name = name.removeprefix("generator.")
    last = name.startswith("heads.") and not name.startswith(_DENSE_HEADS)
    return parameter.ndim == 2 and not table and not last


def _parameter_groups(
    named_parameters: Iterable[tuple[str, Tensor]], spec: OptimizerSpec
) -> list[dict[str, Any]]:
    """Groups, without empty ones: decayed, exempt, and adapters; with muon the matrices inside the
    layers come first.

    Names travel along, so that a snapshot can tell them apart.
    """
    trained = [(name, parameter) for name, parameter in named_parameters if parameter.requires_grad]
    if not trained:
        raise ConfigError(
            "no parameter asks for a gradient, so there is nothing to train; unfreeze some"
        )
    decayed = [(name, parameter) for name, parameter in trained if not _is_exempt(name)]
    exempt = [(name, parameter) for name, parameter in trained if _is_exempt(name)]
    matrices = [
        (name, parameter)
        for name, parameter in decayed
        if spec.name == "muon" and _is_inner(name, parameter)
    ]
    adapters = [(name, parameter) for name, parameter in decayed if _is_adapter(name)]
    names = {name for name, _ in matrices + adapters}
    decayed = [(name, parameter) for name, parameter in decayed if name not in names]
    groups: list[dict[str, Any]] = [
        {
            "params": matrices,
            "weight_decay": spec.weight_decay,
            "adapt": False,
            "momentum": spec.momentum,
        },
        {"params": decayed, "weight_decay": spec.weight_decay, "adapt": spec.name == "lamb"},
        {"params": exempt, "weight_decay": 0.0, "adapt": False},
        {"params": adapters, "weight_decay": spec.weight_decay, "adapt": False},
    ]
    return [group for group in groups if group["params"]]


def make_optimizer(
    named_parameters: Iterable[tuple[str, Tensor]], spec: OptimizerSpec
) -> Lamb | AdamW:
    """The optimizer that `spec` describes, its learning rate still at the peak: the loop calls
    `set_learning_rate` before each step."""
    groups = _parameter_groups(named_parameters, spec)
    if spec.name == "muon":
        return Muon(
            groups,
            lr=spec.learning_rate,
            betas=spec.betas,
            eps=spec.epsilon,
            bias_correction=spec.bias_correction,
        )
    if spec.name == "lamb" or not spec.bias_correction:
        # LAMB without its ratio and its corrections is the AdamW of Google's fine-tuning, which
        # torch does not have.
        return Lamb(
            groups,
            lr=spec.learning_rate,
            betas=spec.betas,
            eps=spec.epsilon,
            bias_correction=spec.bias_correction,
            clamp=spec.norm_clamp,
        )
    for group in groups:
        del group["adapt"]
    # One kernel on a GPU, and on a CPU one pass over memory where foreach takes a dozen.
    fused = all(
        parameter.device.type in _FUSED for group in groups for _, parameter in group["params"]
    )
    kernel = {"fused": True} if fused else {"foreach": True}
    return AdamW(groups, lr=spec.learning_rate, betas=spec.betas, eps=spec.epsilon, **kernel)


def set_learning_rate(optimizer: Optimizer, learning_rate: float) -> None:
    """Give every group the learning rate of this step."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
