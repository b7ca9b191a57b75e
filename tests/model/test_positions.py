"""Laws of rotary positions: a score depends on distance alone, nothing else of the encoder knows
where a token stands, and inputs longer than the trained ones are read."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from litebert.config import PRESETS, EncoderConfig
from litebert.errors import DataError
from litebert.model.encoder import Encoder
from litebert.model.layers import apply_layer
from litebert.model.positions import Needed, Packing, Rotation

ROTARY = replace(PRESETS["tiny"], positions="rotary")
SHAPES: list[dict[str, Any]] = [
    {},
    {"rotary_base": 50.0},
    {"num_attention_heads": 1},
    {"num_attention_heads": 16},
]


def make(config: EncoderConfig = ROTARY, **settings: Any) -> Encoder:
    torch.manual_seed(0)
    return Encoder(config, **settings).double()


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(5, 256, shape, generator=torch.Generator().manual_seed(1))


def heads(config: EncoderConfig, *shape: int, seed: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    size = (*shape, config.num_attention_heads, config.head_size)
    return torch.randn(*size, generator=generator, dtype=torch.float64)


def rotation(config: EncoderConfig, positions: torch.Tensor, dtype: Any = None) -> Rotation:
    states = torch.zeros(*positions.shape, config.hidden_size, dtype=dtype or torch.float64)
    return Rotation.of(config, states, positions)


@pytest.mark.parametrize("shape", SHAPES)
def test_rotating_is_multiplying_by_a_unit_complex_number(shape: dict[str, Any]) -> None:
    """The two halves of a head are the real and the imaginary parts."""
    config = replace(ROTARY, **shape)
    positions, x = torch.tensor([[0, 1, 7, 63]]), heads(config, 1, 4)
    half = config.head_size // 2
    frequencies = torch.tensor(
        [config.rotary_base ** (-2 * i / config.head_size) for i in range(half)],
        dtype=torch.float64,
    )
    turns = torch.polar(
        torch.ones(4, half, dtype=torch.float64), positions[0, :, None] * frequencies
    )
    expected = torch.complex(x[..., :half], x[..., half:]) * turns[None, :, None]
    rotated = rotation(config, positions).apply(x)
    torch.testing.assert_close(
        rotated, torch.cat([expected.real, expected.imag], -1), rtol=0, atol=1e-13
    )
    assert torch.equal(rotated[:, 0], x[:, 0])


@pytest.mark.parametrize("shape", SHAPES)
def test_scores_depend_on_the_distance_alone(shape: dict[str, Any]) -> None:
    config = replace(ROTARY, **shape)
    query, key = heads(config, 1, 9), heads(config, 1, 9, seed=3)

    def scores(first: int) -> torch.Tensor:
        rotate = rotation(config, torch.arange(first, first + 9)[None])
        return torch.einsum("bqhd,bkhd->bhqk", rotate.apply(query), rotate.apply(key))

    for first in (1, 20, 55):
        torch.testing.assert_close(scores(first), scores(0), rtol=0, atol=1e-11)
    assert not torch.allclose(scores(0), torch.einsum("bqhd,bkhd->bhqk", query, key))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_angles_are_computed_in_float32(dtype: torch.dtype) -> None:
    """In bfloat16 alone the positions 256 and 257 would be one."""
    positions = torch.arange(300)[None]
    config = replace(ROTARY, max_positions=300)
    tables = rotation(config, positions, dtype)
    exact = rotation(config, positions)
    assert tables.cos.dtype == tables.sin.dtype == torch.float32
    assert (tables.cos - exact.cos).abs().max() < 3e-5
    assert (tables.sin - exact.sin).abs().max() < 3e-5
    x = heads(config, 1, 300).to(dtype)
    assert tables.apply(x).dtype == dtype
    error = (tables.apply(x) - exact.apply(x.double())).abs().max()
    assert error < x.abs().max() * (5e-5 + torch.finfo(dtype).eps)


def test_there_is_no_position_embedding_and_order_still_matters() -> None:
    encoder = make(replace(ROTARY, init_std=0.2)).eval()
    assert not [name for name, _ in encoder.named_parameters() if "position" in name]
    assert not list(encoder.buffers())
    tokens = ids(1, 9)
    turned = encoder(token_ids=tokens.flip(1)).flip(1)
    assert (encoder(token_ids=tokens) - turned).abs().max() > 1e-3
    states, parts = encoder.embedding(tokens), (encoder.attentions[0], encoder.feed_forwards[0])
    torch.testing.assert_close(  # without the rotation nothing tells positions apart
        apply_layer(*parts, states.flip(1), None).flip(1),  # type: ignore[arg-type]
        apply_layer(*parts, states, None),  # type: ignore[arg-type]
        rtol=0,
        atol=1e-12,
    )


def test_shifting_a_row_changes_nothing() -> None:
    """Padding before a row is a shift: with position embeddings it would matter."""
    encoder, tokens = make().eval(), ids(1, 9)
    shifted = torch.cat([torch.zeros(1, 4, dtype=torch.long), tokens], 1)
    states = encoder(token_ids=shifted, mask=torch.arange(13)[None] >= 4)[:, 4:]
    torch.testing.assert_close(states, encoder(token_ids=tokens), rtol=0, atol=1e-12)


@pytest.mark.parametrize("every", [0, 1])
def test_packed_rows_are_the_rows_alone_also_where_few_are_needed(every: int) -> None:
    encoder = make(checkpoint_every=every)
    rows = [ids(1, 5), ids(1, 9), ids(1, 2)]
    bounds = torch.tensor([0, 5, 14, 16], dtype=torch.int32)
    packed = {
        "token_ids": torch.cat(rows, 1),
        "mask": Packing(bounds=bounds, longest=9),
        "positions": torch.cat([torch.arange(row.shape[1]) for row in rows])[None],
    }
    alone = torch.cat([encoder(token_ids=row) for row in rows], 1)
    torch.testing.assert_close(encoder(**packed), alone, rtol=0, atol=1e-12)
    places = torch.tensor([[0, 3, 13, 15]])
    needed = Needed(places=places, bounds=torch.tensor([0, 2, 3, 4], dtype=torch.int32), longest=2)
    chosen = encoder(**packed, needed=needed)
    torch.testing.assert_close(chosen, alone[:, places[0]], rtol=0, atol=1e-12)


def test_needed_tokens_of_padded_rows_have_their_own_positions() -> None:
    encoder, tokens = make().eval(), ids(2, 9)
    every = encoder(token_ids=tokens).flatten(0, 1)
    places = torch.tensor([[0, 3], [9, 17]])
    for positions in (None, torch.arange(9).expand(2, 9)):
        chosen = encoder(token_ids=tokens, positions=positions, needed=Needed(places=places))
        torch.testing.assert_close(chosen, every[places], rtol=0, atol=1e-12)


def test_longer_inputs_than_any_before_are_read_up_to_the_limit() -> None:
    """Weights say nothing of positions, so the same weights read more where the config allows
    it."""
    short, long = make(replace(ROTARY, max_positions=16)), make(replace(ROTARY, max_positions=2000))
    long.load_state_dict(short.state_dict())
    tokens = ids(1, 16)
    assert torch.equal(short(token_ids=tokens), long(token_ids=tokens))
    assert long(token_ids=ids(1, 700)).isfinite().all()
    with pytest.raises(DataError, match="the input has 17 tokens, the model reads at most 16"):
        short(token_ids=ids(1, 17))
    packing = Packing(bounds=torch.tensor([0, 17], dtype=torch.int32), longest=17)
    with pytest.raises(DataError, match="the input has 17 tokens, the model reads at most 16"):
        short(token_ids=ids(1, 17), mask=packing, positions=torch.arange(17)[None])


def test_a_rotation_of_inference_serves_training_too() -> None:
    """Tables are made anew for each forward: none is a tensor that gradients may not meet."""
    encoder = make()
    with torch.inference_mode():
        encoder(token_ids=ids(1, 9))
    encoder(token_ids=ids(1, 9)).sum().backward()
    assert encoder.attentions[0].query.weight.grad is not None
