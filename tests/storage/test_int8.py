"""int8 weights err by at most half a scale; matmuls and logits by no more than follows from it."""

import statistics
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from litebert.config import PRESETS, HeadConfig, ModelConfig
from litebert.model.model import Model
from litebert.storage import int8


def steps_of(weight: Tensor, group_size: int) -> Tensor:
    """The scale of each weight."""
    _, scales = int8.quantize(weight, group_size)
    return scales.float().repeat_interleave(min(group_size, weight.shape[1]), 1)[
        :, : weight.shape[1]
    ]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 5),
    columns=st.integers(1, 70),
    group_size=st.sampled_from([1, 3, 16, 64, 2**20]),
    size=st.sampled_from([1e-30, 1e-6, 0.02, 1.0, 1e30]),
    seed=st.integers(0, 99),
)
def test_the_error_of_a_weight_is_at_most_half_a_scale(
    rows: int, columns: int, group_size: int, size: float, seed: int
) -> None:
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * size
    numbers, scales = int8.quantize(weight, group_size)
    assert numbers.dtype == torch.int8
    assert int8.layout({"w": (16, columns)}, group_size)["w.scales"] == (
        "BF16",
        (16, scales.shape[1]),
    )
    again = int8.dequantize(numbers, scales, group_size)
    half = steps_of(weight, group_size) / 2
    assert ((again - weight).abs() <= half * (1 + 1e-6)).all()
    # What comes from 8 bits goes back to the same 8 bits.
    assert all(
        torch.equal(*pair)
        for pair in zip(int8.quantize(again, group_size), (numbers, scales), strict=True)
    )


def test_a_worked_example() -> None:
    weight = torch.tensor([[0.0, 127.0, -63.4], [0.0, 0.0, 0.0], [1e-40, -1e-40, 0.0]])
    numbers, scales = int8.quantize(weight, 64)
    assert scales.tolist()[:2] == [[1.0], [0.0]]
    assert numbers.tolist()[:2] == [[0, 127, -63], [0, 0, 0]]
    assert int8.dequantize(numbers, scales, 64)[:2].tolist() == [
        [0.0, 127.0, -63.0],
        [0.0, 0.0, 0.0],
    ]
    numbers, scales = int8.quantize(weight, 2)  # the last group of a row is smaller
    assert scales.shape == (3, 2)
    assert numbers[0].tolist() == [0, 127, -127]


@pytest.mark.parametrize("group_size", [16, 2**20])
def test_the_error_of_a_matmul_is_bounded_by_that_of_its_weights(group_size: int) -> None:
    torch.manual_seed(0)
    weight, inputs = torch.randn(48, 96) * 0.05, torch.randn(200, 96)
    rounded = int8.dequantize(*int8.quantize(weight, group_size), group_size)
    error = (inputs.double() @ (rounded - weight).double().T).abs()
    bound = inputs.abs().double() @ (steps_of(weight, group_size).double() / 2).T
    assert (error <= bound).all()


def logits_with(model: Model, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
    model.load_state_dict(dict(weights))
    with torch.inference_mode():
        return model.masked_logits(model.encoder(token_ids=token_ids))


@pytest.mark.parametrize("group_size", [16, 2**20])
def test_logits_err_no_more_than_rounding_to_these_scales_must(group_size: int) -> None:
    """The peer is noise: weights moved at random by up to half a scale, which is what rounding does
    to them at best."""
    torch.manual_seed(0)
    encoder = replace(PRESETS["tiny"], num_layers=6, init_std=0.2)
    model = Model(ModelConfig(encoder=encoder, heads=(HeadConfig(kind="masked"),))).eval().double()
    exact = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    token_ids = torch.randint(0, encoder.vocab_size, (8, 32))
    truth = logits_with(model, exact, token_ids)

    def error(weights: Mapping[str, Tensor]) -> float:
        return (logits_with(model, weights, token_ids) - truth).square().mean().sqrt().item()

    def moved() -> dict[str, Tensor]:
        return {
            name: tensor + (torch.rand_like(tensor) - 0.5) * steps_of(tensor, group_size)
            if int8.is_quantized(tuple(tensor.shape))
            else tensor
            for name, tensor in exact.items()
        }

    ours = error(int8.unpack(int8.pack(exact, group_size), group_size))
    assert 0 < ours <= 1.1 * statistics.mean(error(moved()) for _ in range(8))


def test_small_weights_stay_float32_and_the_layout_is_exact() -> None:
    config = ModelConfig(
        encoder=PRESETS["tiny"], heads=(HeadConfig(kind="masked"), HeadConfig(kind="order"))
    )
    weights = Model(config).state_dict()
    stored = int8.pack(weights, 64)
    kinds = {torch.int8: "I8", torch.bfloat16: "BF16", torch.float32: "F32"}
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    assert {
        name: (kinds[tensor.dtype], tuple(tensor.shape)) for name, tensor in stored.items()
    } == int8.layout(shapes, 64)
    again = int8.unpack(stored, 64)
    assert again.keys() == weights.keys()
    same = {name for name in weights if torch.equal(again[name], weights[name])}
    assert {
        "encoder.embedding.segment.weight",
        "heads.order.output.weight",
        "heads.masked.norm.weight",
    } <= same
    assert "encoder.embedding.token.weight" not in same
