"""Norms and biases are neither decayed nor adapted; the spec decides which optimizer there is."""

from typing import Any

import pytest
import torch

from litebert.errors import ConfigError
from litebert.optim.groups import AdamW, make_optimizer, set_learning_rate
from litebert.optim.lamb import Lamb
from litebert.recipes import OptimizerSpec

NAMES = {
    "encoder.embedding.token.weight": False,
    "encoder.embedding.position.weight": False,
    "encoder.embedding.norm.weight": True,
    "encoder.embedding.mapping.weight": False,
    "encoder.attentions.0.query.bias": True,
    "encoder.feed_forwards.0.norm.bias": True,
    "encoder.norm.weight": True,
    "heads.masked.bias": True,
    "heads.joint_span.end_norm.weight": True,
    "heads.joint_span.end_dense.weight": False,
    "enormous.weight": False,
}


def named(device: str = "cpu") -> list[tuple[str, torch.nn.Parameter]]:
    generator = torch.Generator().manual_seed(0)
    return [(name, torch.nn.Parameter(torch.randn(3, 2, generator=generator))) for name in NAMES]


def run(optimizer: torch.optim.Optimizer, parameters: list[tuple[str, torch.nn.Parameter]]) -> None:
    for _ in range(3):
        for _, parameter in parameters:
            parameter.grad = parameter.detach() * 0.3 + 0.1
        optimizer.step()


def test_groups_hold_every_parameter_once() -> None:
    spec = OptimizerSpec(name="lamb", weight_decay=0.3)
    decayed, exempt = make_optimizer(named(), spec).param_groups
    assert decayed["param_names"] == [name for name, out in NAMES.items() if not out]
    assert exempt["param_names"] == [name for name, out in NAMES.items() if out]
    assert (decayed["weight_decay"], decayed["adapt"]) == (0.3, True)
    assert (exempt["weight_decay"], exempt["adapt"]) == (0.0, False)


@pytest.mark.parametrize("name", ["lamb", "adamw", "muon"])
def test_adapters_are_decayed_and_neither_adapted_nor_orthogonal(name: Any) -> None:
    """One factor starts at zero: LAMB's ratio of norms would hold it there."""
    added = [f"encoder.adapters.0.query.{factor}.weight" for factor in ("down", "up")]
    parameters = [(each, torch.nn.Parameter(torch.zeros(3, 2))) for each in added]
    optimizer = make_optimizer(named() + parameters, OptimizerSpec(name=name, weight_decay=0.3))
    (group,) = (each for each in optimizer.param_groups if added[0] in each["param_names"])
    assert group["param_names"] == added
    assert group["weight_decay"] == 0.3
    assert not group.get("adapt")
    assert group.get("momentum") is None


def test_frozen_parameters_and_empty_groups_are_left_out() -> None:
    parameters = named()
    for name, parameter in parameters:
        parameter.requires_grad_(not NAMES[name])
    assert len(make_optimizer(parameters, OptimizerSpec()).param_groups) == 1
    for _, parameter in parameters:
        parameter.requires_grad_(False)
    with pytest.raises(ConfigError, match="no parameter asks for a gradient"):
        make_optimizer(parameters, OptimizerSpec())


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        (OptimizerSpec(name="lamb", bias_correction=False, norm_clamp=(0.0, 10.0)), Lamb),
        (OptimizerSpec(name="lamb", bias_correction=True), Lamb),
        (OptimizerSpec(name="adamw", bias_correction=False), Lamb),
        (OptimizerSpec(name="adamw", bias_correction=True), AdamW),
    ],
)
def test_spec_decides(spec: OptimizerSpec, kind: type) -> None:
    optimizer = make_optimizer(named(), spec)
    assert type(optimizer) is kind
    group: dict[str, Any] = optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["eps"]) == (
        spec.learning_rate,
        spec.betas,
        spec.epsilon,
    )
    assert group["param_names"][0] == "encoder.embedding.token.weight"
    if kind is Lamb:
        assert group["bias_correction"] is spec.bias_correction
        assert group["adapt"] is (spec.name == "lamb")
        assert group["clamp"] == spec.norm_clamp
    set_learning_rate(optimizer, 0.25)
    assert {group["lr"] for group in optimizer.param_groups} == {0.25}


def test_exempt_parameters_move_as_in_undecayed_adam() -> None:
    lamb, plain = named(), named()
    run(
        make_optimizer(lamb, OptimizerSpec(name="lamb", bias_correction=True, weight_decay=0.5)),
        lamb,
    )
    run(make_optimizer(plain, OptimizerSpec(name="adamw", weight_decay=0.0)), plain)
    for (name, ours), (_, theirs) in zip(lamb, plain, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6, rtol=0) is NAMES[name], name


def test_both_adamw_agree_but_for_the_correction() -> None:
    """After many steps the correction is 1 and the two forms take equal steps; at first they do
    not."""
    ours, theirs = named(), named()
    run(make_optimizer(ours, OptimizerSpec(bias_correction=False)), ours)
    run(make_optimizer(theirs, OptimizerSpec(bias_correction=True)), theirs)
    # Uncorrected, the first step is (1 − β₁)/√(1 − β₂) = 0.71 of the corrected one.
    assert not torch.allclose(ours[0][1], theirs[0][1], atol=1e-5)
