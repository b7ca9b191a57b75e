"""Which parameters are decayed and adapted, and the optimizer of a recipe. In: named parameters.
Out: an optimizer.

Norms and biases are neither decayed nor adapted (Google's optimization.py); embeddings are both.
The low-rank updates of each depth are decayed alone: one factor starts at zero, where LAMB's ratio
would keep it, and Muon is for matrices of full rank.
"""

from collections.abc import Iterable
from typing import Any, Literal

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
_DENSE_HEADS = ("heads.masked.dense.", "heads.detect.dense.")
"""Linear layers of heads that another follows."""
_Kind = Literal["matrix", "other", "exempt", "adapter"]


def _kind(name: str, parameter: Tensor) -> _Kind:
    """exempt: a bias or a norm's (`encoder.embedding.norm.weight`); adapter: a factor of a low-rank
    update; matrix: between two hidden widths, so no embedding table and no head's last linear
    layer, at an exit neither."""
    *owners, last = name.split(".")
    if last == "bias" or any(owner == "norm" or owner.endswith("_norm") for owner in owners):
        return "exempt"
    if ".adapters." in name:
        return "adapter"
    is_table = any(f"embedding.{table}." in name for table in ("token", "position", "segment"))
    name = name.removeprefix("generator.")
    is_output = name.startswith("heads.") and not name.startswith(_DENSE_HEADS)
    is_output |= name.startswith("exits.") and ".output." in name
    return "matrix" if parameter.ndim == 2 and not is_table and not is_output else "other"


def _parameter_groups(
    named_parameters: Iterable[tuple[str, Tensor]], spec: OptimizerSpec
) -> list[dict[str, Any]]:
    """Groups, without empty ones: decayed, exempt, and adapters; with muon the matrices inside the
    layers come first.

    Names travel along, so that a snapshot can tell them apart.
    """
    by_kind: dict[_Kind, list[tuple[str, Tensor]]] = {
        "matrix": [],
        "other": [],
        "exempt": [],
        "adapter": [],
    }
    for name, parameter in named_parameters:
        if parameter.requires_grad:
            kind = _kind(name, parameter)
            is_other = kind == "matrix" and spec.name != "muon"
            by_kind["other" if is_other else kind].append((name, parameter))
    if not any(by_kind.values()):
        raise ConfigError(
            "no parameter asks for a gradient, so there is nothing to train; unfreeze some"
        )
    decay, adapts = spec.weight_decay, spec.name == "lamb"
    settings: dict[_Kind, dict[str, Any]] = {
        "matrix": {"weight_decay": decay, "adapt": False, "momentum": spec.momentum},
        "other": {"weight_decay": decay, "adapt": adapts},
        "exempt": {"weight_decay": 0.0, "adapt": False},
        "adapter": {"weight_decay": decay, "adapt": False},
    }
    return [{"params": some} | settings[kind] for kind, some in by_kind.items() if some]


def make_optimizer(
    named_parameters: Iterable[tuple[str, Tensor]], spec: OptimizerSpec
) -> Lamb | AdamW:
    """The optimizer that `spec` describes, its learning rate still at the peak: the loop calls
    `set_learning_rate` before each step."""
    groups = _parameter_groups(named_parameters, spec)
    if spec.name != "adamw" or not spec.bias_correction:
        # LAMB without its ratio and its corrections is the AdamW of Google's fine-tuning, which
        # torch does not have.
        return (Muon if spec.name == "muon" else Lamb)(
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
