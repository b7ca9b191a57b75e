"""A step taken apart is the step: with numbers on the device as with floats, and nothing is counted
before it is done."""

import copy
from typing import Any

import pytest
import torch

from litebert.optim.groups import make_optimizer
from litebert.optim.lamb import Lamb
from litebert.recipes import OptimizerSpec

SHAPES = {
    "encoder.embedding.token.weight": (30, 6),
    "encoder.attentions.0.query.weight": (6, 8),
    "encoder.attentions.0.key.weight": (8, 6),
    "encoder.attentions.0.query.bias": (8,),
    "encoder.norm.weight": (8,),
}
LATE = ("encoder.attentions.0.key.weight", "encoder.norm.weight")
"""Without a gradient in the first steps, so they are younger."""
SPECS = [
    OptimizerSpec(name="lamb", learning_rate=0.01, bias_correction=False),
    OptimizerSpec(name="lamb", learning_rate=0.01, bias_correction=True, norm_clamp=(0.5, 0.9)),
    OptimizerSpec(name="lamb", learning_rate=0.01, bias_correction=True, weight_decay=0.0),
    OptimizerSpec(name="adamw", learning_rate=0.01, bias_correction=False),
    OptimizerSpec(name="adamw", learning_rate=0.01),
    OptimizerSpec(name="muon", learning_rate=0.01, weight_decay=0.1),
    OptimizerSpec(name="muon", learning_rate=0.01, bias_correction=False),
]


def train(
    spec: OptimizerSpec, way: str, steps: int = 8
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Weights and state after some steps with a rising rate: whole, taken apart with floats, or
    with tensors."""
    generator = torch.Generator().manual_seed(0)
    named = {
        name: torch.nn.Parameter(torch.randn(shape, generator=generator))
        for name, shape in SHAPES.items()
    }
    optimizer = make_optimizer(named.items(), spec)
    for step in range(steps):
        for name, parameter in named.items():
            gradient = torch.randn(parameter.shape, generator=generator)
            parameter.grad = None if name in LATE and step < 3 else gradient
        for group in optimizer.param_groups:
            group["lr"] = spec.learning_rate * (step + 1) / steps
        is_young = way == "whole" or any(
            not optimizer.state[p] for p in named.values() if p.grad is not None
        )
        if is_young:  # torch's AdamW makes its state in a whole step
            optimizer.step()
            continue
        for part in optimizer.step_groups():
            numbers = optimizer.scalars(part)
            optimizer.apply(part, numbers if way == "floats" else torch.tensor(numbers).unbind())
            optimizer.advance(part)
    return {name: parameter.detach() for name, parameter in named.items()}, optimizer.state_dict()


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_taken_apart_it_is_the_step_bit_for_bit(spec: OptimizerSpec) -> None:
    (whole, state), (apart, other) = train(spec, "whole"), train(spec, "floats")
    for name, weight in whole.items():
        assert torch.equal(weight, apart[name]), name
    assert state["param_groups"] == other["param_groups"]
    torch.testing.assert_close(state["state"], other["state"], rtol=0, atol=0)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_numbers_on_the_device_give_the_same_but_for_rounding(spec: OptimizerSpec) -> None:
    (whole, state), (there, other) = train(spec, "whole"), train(spec, "tensors")
    for name, weight in whole.items():
        torch.testing.assert_close(there[name], weight, rtol=2e-6, atol=2e-6, msg=name)
    for number, values in state["state"].items():
        assert values.keys() == other["state"][number].keys()
        assert [value for value in values.values() if not isinstance(value, torch.Tensor)] == [
            value
            for value in other["state"][number].values()
            if not isinstance(value, torch.Tensor)
        ]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_asking_for_numbers_changes_nothing(spec: OptimizerSpec) -> None:
    weight = torch.nn.Parameter(torch.randn(4, 6))
    optimizer = make_optimizer([("encoder.attentions.0.query.weight", weight)], spec)
    weight.grad = torch.randn(4, 6)
    optimizer.step()
    before = copy.deepcopy(optimizer.state_dict())
    (part,) = optimizer.step_groups()
    assert optimizer.scalars(part) == optimizer.scalars(part)
    torch.testing.assert_close(optimizer.state_dict()["state"], before["state"], rtol=0, atol=0)


def test_one_part_is_of_one_age() -> None:
    old, young, idle = (torch.nn.Parameter(torch.ones(2)) for _ in range(3))
    optimizer = Lamb([old, young, idle], lr=0.5, betas=(0.5, 0.75), bias_correction=True)
    old.grad = torch.ones(2)
    optimizer.step()
    young.grad = torch.ones(2)
    first, second = optimizer.step_groups()
    assert (first.parameters, second.parameters) == ([old], [young])
    assert optimizer.scalars(first) == [0.5, (1 - 0.75**2) ** 0.5, 0.75]
    assert optimizer.scalars(second) == [0.5, 0.5, 0.5]
    assert idle not in optimizer.state
