"""Laws of packed units: states, losses, gradients and predictions are those of padded units, and
padding counts for nothing."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch

from litebert.kernels.gate import Gate, can_pack
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.packing import bucket
from litebert.tasks.encode.encode import encode
from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.heads import heads
from litebert.tasks.heads.heads import task_losses, task_states
from litebert.text.tokenizer import Tokenizer
from tests.helpers.task_examples import CASES, made_card, made_examples, made_model


def made(kind: Any, head: Any, tokenizer: Tokenizer) -> tuple[Model, Inputs]:
    card = made_card(kind, head)
    return made_model(card, tokenizer).double(), encode(card, made_examples(kind, 13), tokenizer)


def told(model: Model, batch: DeviceBatch) -> dict[str, torch.Tensor]:
    """Loss, guesses and every gradient."""
    model.zero_grad()
    sums = task_losses(model, batch)
    sums.loss.backward()  # type: ignore[no-untyped-call]
    gradients = {
        name: parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    return {**sums.detach().numbers(), **gradients}


@pytest.mark.parametrize("bucketed", [False, True])
@pytest.mark.parametrize(("kind", "head"), CASES)
def test_packed_units_are_the_padded_ones(
    tokenizer: Tokenizer, kind: Any, head: Any, bucketed: bool
) -> None:
    model, inputs = made(kind, head, tokenizer)
    batch = inputs.batch(np.arange(len(inputs)))
    laid = batch.packed(longest=32, bucketed=bucketed, most_tokens=2048)
    padded = told(model, DeviceBatch.of(batch.padded()))
    end_to_end = told(model, DeviceBatch.of(laid))
    assert padded.keys() == end_to_end.keys()
    for name, value in padded.items():  # losses are float32 in both
        torch.testing.assert_close(
            end_to_end[name],
            value,
            rtol=1e-5,
            atol=1e-5,
            msg=lambda said, name=name: f"{name}: {said}",
        )
    assert end_to_end["correct"] == padded["correct"]


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_states_are_those_of_padded_rows(tokenizer: Tokenizer, kind: Any, head: Any) -> None:
    model, inputs = made(kind, head, tokenizer)
    batch = inputs.batch(np.arange(len(inputs)))
    side_by_side, end_to_end = (
        task_states(model, DeviceBatch.of(host))
        for host in (batch.padded(), batch.packed(longest=32))
    )
    if head == "tag":
        assert batch.mask is not None
        side_by_side = side_by_side[batch.mask][None]
    if batch.allowed is not None and batch.mask is not None:
        side_by_side, end_to_end = side_by_side[batch.mask], end_to_end[batch.mask]
    torch.testing.assert_close(end_to_end, side_by_side, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_a_batch_that_is_not_learned_from_has_no_loss_and_no_gradient(
    tokenizer: Tokenizer, kind: Any, head: Any
) -> None:
    model, inputs = made(kind, head, tokenizer)
    spare = replace(inputs.batch(np.arange(3)), is_spare=True)
    actual = told(model, DeviceBatch.of(spare.packed(longest=32, bucketed=True)))
    assert all(not value.any() for value in actual.values())


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_shapes_are_few(tokenizer: Tokenizer, kind: Any, head: Any) -> None:
    """Eight units, whichever they are, have as many shapes as token counts that are rounded up."""
    _, inputs = made(kind, head, tokenizer)
    draw, found = np.random.default_rng(0), set()
    for _ in range(20):
        batch = inputs.batch(draw.choice(len(inputs), 8, replace=False))
        layout = batch.packed(longest=64, bucketed=True, most_tokens=2048)
        found.add(layout.shapes)
        tokens = layout.arrays["token_ids"].shape[1]
        assert tokens == bucket(tokens)
        assert layout.arrays["bounds"][-1] == tokens
        assert np.diff(layout.arrays["bounds"]).max() <= 64
    assert len(found) <= 4


def test_bounds_are_as_many_whatever_the_tokens(tokenizer: Tokenizer) -> None:
    """What is compiled once for a free number of tokens is not compiled again for more rows that
    fill up."""
    _, inputs = made("classify", "classify", tokenizer)
    longest = int(inputs.lengths.max())
    sizes = {
        inputs.batch(np.repeat(unit, 64))
        .packed(longest=longest, bucketed=True, most_tokens=4096)
        .arrays["bounds"]
        .shape
        for unit in range(len(inputs))
    }
    assert len(sizes) == 1


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_one_buffer_holds_all_arrays(tokenizer: Tokenizer, kind: Any, head: Any) -> None:
    _, inputs = made(kind, head, tokenizer)
    host = inputs.batch(np.arange(5)).packed(longest=32, bucketed=True)
    one, other = (
        DeviceBatch.within(host, torch.from_numpy(host.flat())).head_inputs,
        DeviceBatch.of(host).head_inputs,
    )
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].dtype == other[name].dtype
        assert torch.equal(one[name], other[name]), name
    assert inputs.targets is not None
    assert one["targets"].dtype == heads.HEADS[head].dtype


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_predictions_are_the_same(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, kind: Any, head: Any
) -> None:
    card, examples = made_card(kind, head), made_examples(kind, 13)
    model = made_model(card, tokenizer).double()
    plain = heads.predict(model, card, examples, tokenizer, batch_tokens=200)
    monkeypatch.setattr(heads, "can_pack", lambda *_: True)
    actual = heads.predict(model, card, examples, tokenizer, batch_tokens=200)
    for one, other in zip(plain, actual, strict=True):
        assert_alike(asdict(other), asdict(one))


def assert_alike(found: Any, expected: Any) -> None:
    """Equal but for the last places of numbers, which are float32."""
    if isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            assert_alike(found[name], expected[name])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    else:
        assert found == expected


def test_rows_are_packed_where_the_gate_packs_them(tokenizer: Tokenizer) -> None:
    model = made_model(made_card("classify"), tokenizer)
    assert not can_pack(model, 64), "the plain layer"
    for packs in (True, False):
        Gate(varlen=packs).apply(model)
        assert can_pack(model, 64) is packs


def test_attention_dropout_packs_where_kernels_drop(tokenizer: Tokenizer) -> None:
    model = made_model(made_card("classify"), tokenizer, attention_dropout=0.1)
    for attention in (True, False):
        Gate(attention=attention, varlen=True).apply(model)
        assert can_pack(model.train(), 64) is attention
        assert can_pack(model.eval(), 64)
