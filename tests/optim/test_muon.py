"""Muon turns every direction of a matrix alike, leaves the rest to AdamW, and survives its
state_dict."""

import pytest
import torch

from litebert.config import PRESETS, HeadConfig, ModelConfig
from litebert.model.model import Model
from litebert.optim.groups import make_optimizer
from litebert.optim.muon import UPDATE_SIZE, Muon, orthogonal, orthogonal_all
from litebert.recipes import OptimizerSpec

SPEC = OptimizerSpec(name="muon", learning_rate=0.01, weight_decay=0.1, momentum=0.9)


def matrix(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(
        rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (8, 32), (32, 8), (1, 5)])
def test_singular_values_come_near_one_and_vectors_stay(rows: int, columns: int) -> None:
    original = matrix(rows, columns)
    actual = orthogonal(original[None])[0]
    u, _, v = torch.linalg.svd(original, full_matrices=False)
    turned = u.mT @ actual @ v.mT  # diagonal, if the singular vectors are the same
    values = turned.diagonal()
    assert ((values > 0.6) & (values < 1.3)).all()
    torch.testing.assert_close(turned, values.diag(), rtol=0, atol=1e-6)


def test_scale_does_not_matter() -> None:
    torch.testing.assert_close(
        orthogonal(matrix(6, 9)[None]), orthogonal(1000 * matrix(6, 9)[None]), rtol=1e-5, atol=1e-6
    )


def test_shapes_are_kept_apart() -> None:
    mixed = [matrix(4, 6, 1), matrix(6, 4, 2), matrix(4, 6, 3)]
    for one, together in zip(mixed, orthogonal_all(mixed), strict=True):
        torch.testing.assert_close(orthogonal(one[None])[0], together)


def test_one_step_worked_out() -> None:
    """The first update of a matrix: momentum is (1 − μ) g, Nesterov's (1 − μ) g + μ (1 − μ) g,
    whose direction is g's."""
    weight = torch.nn.Parameter(matrix(4, 9))
    before, gradient = weight.detach().clone(), matrix(4, 9, 7)
    weight.grad = gradient.clone()
    Muon([{"params": [weight], "momentum": 0.9, "weight_decay": 0.1}], lr=0.01).step()
    expected = before * (1 - 0.01 * 0.1) - 0.01 * UPDATE_SIZE * 3 * orthogonal(gradient[None])[0]
    torch.testing.assert_close(weight.detach(), expected)


def test_groups_are_matrices_tables_and_the_exempt() -> None:
    heads = (HeadConfig(kind="masked"), HeadConfig(kind="order"))
    model = Model(ModelConfig(encoder=PRESETS["tiny"], heads=heads))
    matrices, decayed, exempt = make_optimizer(model.named_parameters(), SPEC).param_groups
    inner = set(matrices["param_names"])
    assert "encoder.attentions.0.query.weight" in inner
    assert {
        "encoder.embedding.mapping.weight",
        "encoder.pooler.weight",
        "heads.masked.dense.weight",
    } <= inner
    tables = set(decayed["param_names"])
    assert tables == {
        f"encoder.embedding.{kind}.weight" for kind in ("token", "position", "segment")
    } | {"heads.order.output.weight"}
    assert all(name.endswith("bias") or "norm" in name for name in exempt["param_names"])
    assert "momentum" not in decayed


def test_the_last_layers_of_exits_are_no_matrices() -> None:
    head = HeadConfig(kind="classify", labels=("no", "yes"), exits="each")
    model = Model(ModelConfig(encoder=PRESETS["tiny"], heads=(head,)))
    matrices, decayed, _ = make_optimizer(model.named_parameters(), SPEC).param_groups
    outputs = [f"exits.classify.{depth}.output.output.weight" for depth in range(2)]
    assert {"heads.classify.output.weight", *outputs} <= set(decayed["param_names"])
    assert [name for name in matrices["param_names"] if name.startswith("exits.")] == [
        f"exits.classify.{depth}.pooler.weight" for depth in range(2)
    ]


def test_what_is_no_matrix_moves_as_with_adamw() -> None:
    start = matrix(5, 3).float()
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    mine = make_optimizer([("encoder.embedding.token.weight", ours)], SPEC)
    adamw = torch.optim.AdamW(
        [theirs], lr=0.01, betas=SPEC.betas, eps=SPEC.epsilon, weight_decay=0.1
    )
    for step in range(5):
        ours.grad = theirs.grad = matrix(5, 3, step).float()
        mine.step()
        adamw.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_the_state_comes_back_bit_for_bit() -> None:
    def run(steps: range, weight: torch.nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
        for step in steps:
            weight.grad = matrix(4, 6, step).float()
            optimizer.step()

    name = "encoder.attentions.0.query.weight"
    full = torch.nn.Parameter(matrix(4, 6).float())
    run(range(6), full, make_optimizer([(name, full)], SPEC))
    part = torch.nn.Parameter(matrix(4, 6).float())
    first = make_optimizer([(name, part)], SPEC)
    run(range(3), part, first)
    second = make_optimizer([(name, part)], SPEC)
    second.load_state_dict(first.state_dict())
    run(range(3, 6), part, second)
    assert torch.equal(full, part)
