"""Laws of the encoder: sharing is sharing, masks hide, dropout at 0 is nothing, checkpointing
changes no bit."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from litebert.config import PRESETS, EncoderConfig
from litebert.errors import ConfigError, DataError
from litebert.model.embedding import BandedEmbedding
from litebert.model.encoder import Encoder
from litebert.model.layers import Adapters, Attention, LowRank
from litebert.model.positions import Needed, Packing

TINY = PRESETS["tiny"]
SWITCHES: list[dict[str, Any]] = [
    {},
    {"share": "none"},
    {"share": "attention"},
    {"share": "ffn", "num_groups": 2},
    {"num_groups": 3, "layers_per_group": 2},
    {"norm": "pre"},
    {"num_layers": 2, "layers_per_group": 2, "cycle": "reversed"},
    {"num_layers": 4, "unshared_ends": 1},
    {"adapter_rank": 3, "norm": "pre"},
    {"embedding_bands": (50, 200)},
    {"activation": "relu", "embedding_size": 32},
    {"activation": "gelu_erf", "embedding_size": 32, "hf_compat": True},
    {"positions": "rotary", "norm": "pre"},
    {"positions": "rotary", "rotary_base": 100.0, "share": "none"},
]


def ids(batch: int = 2, seq: int = 9) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(5, TINY.vocab_size, (batch, seq), generator=generator)


def make(config: EncoderConfig = TINY, **settings: Any) -> Encoder:
    torch.manual_seed(0)
    encoder = Encoder(config, **settings)
    for module in encoder.modules():
        if isinstance(module, LowRank):  # they start at zero, where they would test nothing
            nn.init.normal_(module.up.weight, std=0.1)
    return encoder


@pytest.mark.parametrize("changes", SWITCHES)
def test_forward_is_the_last_of_all_states(changes: dict[str, Any]) -> None:
    config = replace(TINY, **changes)
    encoder = make(config).eval()
    states = encoder.all_states(token_ids=ids())
    assert len(states) == 1 + config.num_layers * config.layers_per_group
    assert torch.equal(states[-1], encoder(token_ids=ids()))
    assert encoder.pool(states[-1]).shape == (2, config.hidden_size)


@pytest.mark.parametrize("changes", SWITCHES)
def test_padding_changes_nothing(changes: dict[str, Any]) -> None:
    encoder = make(replace(TINY, **changes)).double().eval()
    short = encoder(token_ids=ids(seq=6))
    padded = torch.cat([ids(seq=6), torch.zeros(2, 4, dtype=torch.long)], 1)
    mask = torch.arange(10).expand(2, 10) < 6
    torch.testing.assert_close(
        encoder(token_ids=padded, mask=mask)[:, :6], short, rtol=0, atol=1e-12
    )


def test_a_wholly_padded_row_stays_finite_and_harms_no_other() -> None:
    encoder = make().double()
    mask = torch.tensor([[True] * 9, [False] * 9])
    states = encoder(token_ids=ids(), mask=mask)
    assert states.isfinite().all()
    torch.testing.assert_close(states[:1], encoder(token_ids=ids()[:1]), rtol=0, atol=1e-12)
    states.sum().backward()
    assert all(
        parameter.grad is None or parameter.grad.isfinite().all()
        for parameter in encoder.parameters()
    )


def test_without_segments_all_tokens_are_of_the_first() -> None:
    encoder = make().eval()
    assert torch.equal(
        encoder(token_ids=ids()), encoder(token_ids=ids(), segment_ids=torch.zeros_like(ids()))
    )
    assert not torch.equal(
        encoder(token_ids=ids()), encoder(token_ids=ids(), segment_ids=torch.ones_like(ids()))
    )


def test_a_shared_layer_equals_the_unshared_with_copied_weights() -> None:
    """What sharing means: the same function as an unshared stack whose layers happen to be
    equal."""
    shared = make(replace(TINY, num_groups=2, layers_per_group=2)).eval()
    unshared = make(replace(TINY, share="none", layers_per_group=2)).eval()
    with torch.no_grad():
        for mine, theirs in (("attentions", 0), ("feed_forwards", 1)):
            for application, owners in enumerate(shared.plan):
                copy = getattr(unshared, mine)[application]
                copy.load_state_dict(getattr(shared, mine)[owners[theirs]].state_dict())
        unshared.embedding.load_state_dict(shared.embedding.state_dict())
    assert torch.equal(shared(token_ids=ids()), unshared(token_ids=ids()))


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_adapters_are_updates_of_the_shared_matrices(norm: Any) -> None:
    """The same function as an unshared stack whose matrices are W + B·A, each depth with its own
    B·A."""
    shape = {"norm": norm, "layers_per_group": 2, "num_layers": 2}
    adapted = make(replace(TINY, adapter_rank=3, **shape)).double()
    unshared = make(replace(TINY, share="none", **shape)).double()
    with torch.no_grad():
        for number, owner in enumerate([0, 1, 0, 1]):
            adapters = adapted.adapters[number]
            assert isinstance(adapters, Adapters)
            for mine in ("attentions", "feed_forwards"):
                copy = getattr(unshared, mine)[number]
                copy.load_state_dict(getattr(adapted, mine)[owner].state_dict())
                for name, update in adapters.named_children():
                    if hasattr(copy, name):
                        getattr(copy, name).weight += update.up.weight @ update.down.weight  # type: ignore[union-attr,operator]
        for name in ("embedding", "norm", "pooler"):
            getattr(unshared, name).load_state_dict(getattr(adapted, name).state_dict())
    for method in ("all_states", "attention_weights"):
        ours, theirs = (getattr(each, method)(token_ids=ids()) for each in (adapted, unshared))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(ours[0], ours[2], rtol=0, atol=1e-12)


def test_adapters_start_as_nothing() -> None:
    torch.manual_seed(0)
    encoder = Encoder(replace(TINY, adapter_rank=3))
    before = encoder.all_states(token_ids=ids())
    encoder.adapters = nn.ModuleList()
    assert all(map(torch.equal, before, encoder.all_states(token_ids=ids())))


def test_sharing_attention_alone_shares_attention_alone() -> None:
    encoder = make(replace(TINY, share="attention"))
    assert (len(encoder.attentions), len(encoder.feed_forwards)) == (1, 3)
    encoder = make(replace(TINY, share="ffn"))
    assert (len(encoder.attentions), len(encoder.feed_forwards)) == (3, 1)


def test_depth_stops_early() -> None:
    encoder = make(replace(TINY, layers_per_group=2)).eval()
    assert torch.equal(encoder(token_ids=ids(), depth=2), encoder.all_states(token_ids=ids())[4])
    with pytest.raises(ConfigError, match="depth is from 1 to the model's 3 layers; got 4"):
        encoder(token_ids=ids(), depth=4)


def test_banded_embeddings_equal_a_table_of_their_mapped_rows() -> None:
    """Forward and gradients, at the first and the last id of every band."""
    banded = make(replace(TINY, embedding_bands=(50, 200))).double().embedding.token
    assert isinstance(banded, BandedEmbedding)
    edges = torch.tensor([[0, 49, 50], [199, 200, 255]])
    ours, table = banded(edges), banded.weight
    assert table.shape == (TINY.vocab_size, TINY.embedding_size)
    torch.testing.assert_close(ours, table[edges], rtol=0, atol=1e-15)
    weights = torch.randn(ours.shape, dtype=torch.float64)
    for one, other in zip(
        torch.autograd.grad((ours * weights).sum(), list(banded.parameters())),
        torch.autograd.grad((table[edges] * weights).sum(), list(banded.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    with pytest.raises(IndexError):
        banded(torch.tensor([[256]]))


def test_rows_of_every_band_start_alike() -> None:
    config = replace(TINY, vocab_size=6000, embedding_size=64, embedding_bands=(2000, 4000))
    weight = make(config).embedding.token.weight
    assert isinstance(weight, torch.Tensor)
    for rows in weight.detach().split(2000):
        assert rows.std().item() == pytest.approx(0.0176, rel=0.35)


def test_no_dropout_is_no_operation() -> None:
    encoder = make()
    assert not any(isinstance(part, nn.Dropout) for part in encoder.modules())
    assert torch.equal(encoder.train()(token_ids=ids()), encoder.eval()(token_ids=ids()))


@pytest.mark.parametrize(
    "place", ["embedding_dropout", "attention_dropout", "attention_output_dropout", "ffn_dropout"]
)
def test_each_dropout_acts_in_training_only(place: str) -> None:
    encoder = make(replace(TINY, **{place: 0.5}))
    assert not torch.equal(encoder(token_ids=ids()), encoder(token_ids=ids()))
    encoder.eval()
    assert torch.equal(encoder(token_ids=ids()), encoder(token_ids=ids()))


def test_hf_compat_forgets_the_ffn_dropout() -> None:
    encoder = make(replace(TINY, ffn_dropout=0.5, hf_compat=True))
    assert torch.equal(encoder(token_ids=ids()), encoder(token_ids=ids()))


def test_hf_compat_keeps_the_mapping_and_a_zero_pad_row() -> None:
    square = replace(TINY, embedding_size=TINY.hidden_size)
    assert isinstance(make(square).embedding.mapping, nn.Identity)
    encoder = make(replace(square, hf_compat=True))
    assert isinstance(encoder.embedding.mapping, nn.Linear)
    assert encoder.embedding.token.weight[0].abs().sum() == 0


def test_weights_start_as_a_truncated_normal() -> None:
    encoder = make(replace(TINY, vocab_size=20_000, init_std=0.05))
    weight = encoder.embedding.token.weight.detach()
    assert weight.abs().max() <= 0.1
    # a normal cut at two deviations keeps 0.8796 of its own
    assert weight.std().item() == pytest.approx(0.05 * 0.8796, rel=0.01)
    assert all(
        parameter.abs().sum() == 0
        for name, parameter in encoder.named_parameters()
        if name.endswith("bias")
    )
    compat = make(
        replace(TINY, vocab_size=20_000, init_std=0.05, hf_compat=True)
    ).embedding.token.weight.detach()
    assert compat[1:].std().item() == pytest.approx(0.05, rel=0.01)


def test_residual_writers_may_start_smaller() -> None:
    plain, small = (
        make(replace(TINY, share="none")),
        make(replace(TINY, share="none", residual_init=0.25)),
    )
    for name, parameter in plain.named_parameters():
        writes = name.endswith(
            (
                "attentions.0.output.weight",
                "feed_forwards.2.outer.weight",
                "output.weight",
                "outer.weight",
            )
        )
        assert torch.equal(
            dict(small.named_parameters())[name], parameter * 0.25 if writes else parameter
        )


def test_positions_may_start_as_sinusoids() -> None:
    weight = make(
        replace(TINY, positions="sinusoidal", max_positions=512)
    ).embedding.position.weight.detach()
    assert weight.square().mean().sqrt().item() == pytest.approx(TINY.init_std, rel=1e-5)
    # near positions look alike, far ones do not: what makes relative places easy to learn
    nearness = torch.cosine_similarity(weight[100:101], weight[100:140])
    assert nearness[0] == pytest.approx(1)
    assert nearness[1] > 0.9 > nearness[10]


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize(
    "changes", [*SWITCHES, {"attention_dropout": 0.2, "ffn_dropout": 0.3, "embedding_dropout": 0.1}]
)
def test_gradient_checkpointing_changes_no_bit(changes: dict[str, Any], every: int) -> None:
    gradients = []
    for checkpoint_every in (0, every):
        config = replace(TINY, **{"num_layers": 5, **changes})
        encoder = make(config, checkpoint_every=checkpoint_every)
        torch.manual_seed(3)
        encoder.pool(encoder(token_ids=ids(4, 16))).square().sum().backward()
        gradients.append({name: parameter.grad for name, parameter in encoder.named_parameters()})
    plain, checkpointed = gradients
    for name, gradient in plain.items():
        assert gradient is not None or name == "norm.weight", name
        assert torch.equal(gradient, checkpointed[name]), name


@pytest.mark.parametrize("changes", [*SWITCHES, {"num_layers": 1, "num_attention_heads": 1}])
def test_one_layer_against_the_formulas_in_float64(changes: dict[str, Any]) -> None:
    """A whole pass written out with plain matmuls, softmax and sums: the encoder gives the
    same."""
    config = replace(TINY, **changes)
    encoder = make(config).double().eval()
    token_ids, mask = ids(), torch.tensor([[True] * 9, [True] * 5 + [False] * 4])
    w = {name: value.detach() for name, value in encoder.named_parameters()}

    depth = -1  # before the first layer

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        centered = x - x.mean(-1, keepdim=True)
        return (
            centered
            / (centered.square().mean(-1, keepdim=True) + config.norm_epsilon).sqrt()
            * w[name + ".weight"]
            + w[name + ".bias"]
        )

    def dense(x: torch.Tensor, name: str) -> torch.Tensor:
        mapped = x @ w[name + ".weight"].T + w[name + ".bias"]
        factors = [f"adapters.{depth}.{name.rpartition('.')[2]}.{part}" for part in ("down", "up")]
        for factor in (w.get(f"{each}.weight") for each in factors):
            x = x if factor is None else x @ factor.T
        return mapped + x if f"{factors[0]}.weight" in w else mapped

    def act(x: torch.Tensor) -> torch.Tensor:
        if config.activation == "relu":
            return x.clamp(min=0)
        if config.activation == "gelu_erf":
            return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    def rotated(x: torch.Tensor, width: int) -> torch.Tensor:
        out = torch.empty_like(x)
        for p in range(9):
            for i in range(width // 2):
                angle = p * config.rotary_base ** (-2 * i / width)
                c, s, j = math.cos(angle), math.sin(angle), i + width // 2
                out[:, p, :, i] = x[:, p, :, i] * c - x[:, p, :, j] * s
                out[:, p, :, j] = x[:, p, :, j] * c + x[:, p, :, i] * s
        return out

    def attention(x: torch.Tensor, name: str) -> torch.Tensor:
        heads, width = config.num_attention_heads, config.hidden_size // config.num_attention_heads
        q, k, v = (
            dense(x, f"{name}.{part}").reshape(2, 9, heads, width)
            for part in ("query", "key", "value")
        )
        if config.positions == "rotary":
            q, k = rotated(q, width), rotated(k, width)
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(width)
        weights = scores.masked_fill(~mask[:, None, None, :], -1e30).softmax(-1)
        return dense(
            torch.einsum("bhqk,bkhd->bqhd", weights, v).reshape(2, 9, -1), name + ".output"
        )

    def ffn(x: torch.Tensor, name: str) -> torch.Tensor:
        return dense(act(dense(x, name + ".inner")), name + ".outer")

    tables = [each for name, each in w.items() if name.startswith("embedding.token.tables")]
    maps = [each for name, each in w.items() if name.startswith("embedding.token.maps")]
    tokens = w.get("embedding.token.weight")
    if tokens is None:
        pairs = zip(tables, [torch.eye(16, dtype=torch.float64), *maps], strict=True)
        tokens = torch.cat([table @ to_size.T for table, to_size in pairs])
    table = tokens[token_ids] + w["embedding.segment.weight"][0]
    if config.positions != "rotary":
        table = table + w["embedding.position.weight"][:9]
    x = norm(table, "embedding.norm")
    if "embedding.mapping.weight" in w:
        x = dense(x, "embedding.mapping")
    for depth, (a, f) in enumerate(config.plan()):  # noqa: B007, dense reads it
        for part, name in ((attention, f"attentions.{a}"), (ffn, f"feed_forwards.{f}")):
            x = (
                norm(x + part(x, name), name + ".norm")
                if config.norm == "post"
                else x + part(norm(x, name + ".norm"), name)
            )
    if config.norm == "pre":
        x = norm(x, "norm")
    torch.testing.assert_close(encoder(token_ids=token_ids, mask=mask), x, rtol=0, atol=1e-12)


def test_a_long_input_is_refused_in_one_sentence() -> None:
    with pytest.raises(
        DataError,
        match="the input has 65 tokens, the model reads at most 64; shorten or truncate it",
    ):
        make()(token_ids=torch.zeros(1, 65, dtype=torch.long))
    assert make()(token_ids=torch.zeros(1, 64, dtype=torch.long)).shape == (1, 64, 32)


def test_an_encoder_without_pooler_says_so() -> None:
    encoder = make(replace(TINY, pooler=False))
    with pytest.raises(ConfigError, match="this encoder has no pooler"):
        encoder.pool(encoder(token_ids=ids()))


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_attention_weights_are_the_softmax_that_the_layer_applies(
    norm: Any, positions: Any
) -> None:
    """Weights times values through the output layer are what attention adds to the residual."""
    config = replace(TINY, norm=norm, positions=positions, share="none")
    encoder = make(config).double().eval()
    mask = torch.tensor([[True] * 9, [True] * 5 + [False] * 4])
    weights = encoder.attention_weights(token_ids=ids(), mask=mask)
    states = encoder.all_states(token_ids=ids(), mask=mask)
    assert len(weights) == TINY.num_layers
    for attention, given, before in zip(encoder.attentions, weights, states, strict=False):
        assert isinstance(attention, Attention)
        assert given.shape == (2, TINY.num_attention_heads, 9, 9)
        torch.testing.assert_close(given.sum(-1), torch.ones_like(given[..., 0]))
        assert not given[1, :, :, 5:].any()
        x = attention.norm(before) if norm == "pre" else before
        values = attention.heads(attention.value(x)).transpose(1, 2)
        attended = (given @ values).transpose(1, 2).flatten(2)
        rotate = encoder.rotation(before)
        expected = attention.compute(x, mask[:, None, None, :], rotate=rotate)
        torch.testing.assert_close(attention.output(attended), expected, rtol=0, atol=1e-12)


def test_packed_rows_are_the_rows_alone() -> None:
    encoder = make().double().eval()
    rows = [ids(1, 5), ids(1, 9), ids(1, 2)]
    bounds = torch.tensor([0, 5, 14, 16], dtype=torch.int32)
    positions = torch.cat([torch.arange(row.shape[1]) for row in rows])[None]
    packed = encoder(
        token_ids=torch.cat(rows, 1), mask=Packing(bounds=bounds, longest=9), positions=positions
    )
    for row, first, last in zip(rows, bounds[:-1], bounds[1:], strict=True):
        torch.testing.assert_close(
            packed[:, first:last], encoder(token_ids=row), rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("changes", SWITCHES)
def test_needed_positions_are_those_of_the_full_layer(changes: dict[str, Any]) -> None:
    encoder = make(replace(TINY, **changes)).double().eval()
    positions = torch.tensor([[0, 3], [9, 17]])
    chosen = encoder(token_ids=ids(), needed=Needed(places=positions))
    every = encoder(token_ids=ids()).flatten(0, 1)
    torch.testing.assert_close(chosen, every[positions], rtol=0, atol=1e-12)


def test_stored_names_are_those_of_0_1_0() -> None:
    """Checkpoints are read by these names."""
    assert list(make(replace(TINY, norm="pre")).state_dict()) == [
        *(f"embedding.{name}.weight" for name in ("token", "position", "segment")),
        *(f"embedding.{name}" for name in ("norm.weight", "norm.bias")),
        *(f"embedding.{name}" for name in ("mapping.weight", "mapping.bias")),
        *(
            f"attentions.0.{name}.{kind}"
            for name in ("query", "key", "value", "output", "norm")
            for kind in ("weight", "bias")
        ),
        *(
            f"feed_forwards.0.{name}.{kind}"
            for name in ("inner", "outer", "norm")
            for kind in ("weight", "bias")
        ),
        *("norm.weight", "norm.bias", "pooler.weight", "pooler.bias"),
    ]
