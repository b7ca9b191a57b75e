"""Configs are frozen data that refuse nonsense in one sentence; the plan of sharing follows from
them."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.config import PRESETS, EncoderConfig, HeadConfig, ModelConfig, preset
from litebert.errors import ConfigError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"hidden_size": 770},
            "hidden_size must be a multiple of num_attention_heads; 770 is not a multiple of 12",
        ),
        ({"num_groups": 13}, "num_groups is at most num_layers; got 13 groups, 12 layers"),
        ({"share": "some"}, "share is one of none, attention, ffn, all; got 'some'"),
        ({"activation": "gelu"}, "activation is one of gelu_tanh, gelu_erf, relu; got 'gelu'"),
        ({"norm": "sandwich"}, "norm is one of post, pre"),
        ({"ffn_dropout": 1.0}, "ffn_dropout is a number from 0 to 0.99; got 1.0"),
        (
            {"attention_dropout": float("nan")},
            "attention_dropout is a number from 0 to 0.99; got nan",
        ),
        ({"vocab_size": 0}, "vocab_size is a whole number from 1 to 2000000; got 0"),
        ({"vocab_size": 10**12}, "vocab_size is a whole number"),
        ({"num_layers": True}, "num_layers is a whole number from 1 to 1000; got True"),
        ({"norm_epsilon": -1.0}, "norm_epsilon is a number from 0"),
        ({"pooler": "yes"}, "pooler is true or false; got 'yes'"),
    ],
)
def test_nonsense_is_refused_in_one_sentence(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EncoderConfig(**changes)  # type: ignore[arg-type]


def test_a_config_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        PRESETS["tiny"].hidden_size = 3  # type: ignore[misc]


def test_an_unknown_preset_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match="there is no preset 'albert-bas-v2'; did you mean 'albert-base-v2'"
    ):
        preset("albert-bas-v2")


def test_an_unknown_setting_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError,
        match="there is no EncoderConfig setting 'hiden_size'; did you mean 'hidden_size'",
    ):
        EncoderConfig.from_dict({"hiden_size": 3})


def test_heads_say_what_they_need() -> None:
    with pytest.raises(ConfigError, match="a classify head needs labels; got 0"):
        HeadConfig(kind="classify")
    with pytest.raises(ConfigError, match="a span head has no labels; got 2"):
        HeadConfig(kind="span", labels=("a", "b"))
    with pytest.raises(ConfigError, match="kind is one of masked, order"):
        HeadConfig(kind="nothing")  # type: ignore[arg-type]
    order = HeadConfig(kind="order")
    with pytest.raises(ConfigError, match="at most one head of each kind; got order, order"):
        ModelConfig(encoder=PRESETS["tiny"], heads=(order, order))
    with pytest.raises(
        ConfigError, match="the order head reads the pooled state, so the encoder needs pooler=True"
    ):
        ModelConfig(encoder=replace(PRESETS["tiny"], pooler=False), heads=(order,))


@pytest.mark.parametrize("name", PRESETS)
def test_configs_survive_their_dictionaries(name: str) -> None:
    config = ModelConfig(
        encoder=PRESETS[name], heads=(HeadConfig(kind="tag", labels=("O", "B-x"), dropout=0.1),)
    )
    assert ModelConfig.from_dict(config.to_dict()) == config


def test_groups_worked_example() -> None:
    config = replace(PRESETS["tiny"], num_layers=12, num_groups=2)
    assert [config.group(layer) for layer in range(12)] == [0] * 6 + [1] * 6
    uneven = replace(PRESETS["tiny"], num_layers=5, num_groups=3, layers_per_group=2)
    assert uneven.plan() == [(k, k) for k in (0, 1, 0, 1, 2, 3, 2, 3, 4, 5)]


def test_rounding_of_groups_is_exact_where_the_floats_of_both_ports_are_not() -> None:
    """Up to 48 layers, Hugging Face's int(i / (L / G)) is off for 13 pairs and Google's int(i / L *
    G) for 11."""

    def off(rule: Callable[[int, int, int], int]) -> set[tuple[int, int]]:
        pairs = [(layers, groups) for layers in range(1, 49) for groups in range(1, layers + 1)]
        return {(n, g) for n, g in pairs if any(rule(i, n, g) != i * g // n for i in range(n))}

    def with_config(hf_compat: bool) -> Callable[[int, int, int], int]:
        configs = {
            (n, g): EncoderConfig(num_layers=n, num_groups=g, hf_compat=hf_compat)
            for n in range(1, 49)
            for g in range(1, n + 1)
        }
        return lambda i, n, g: configs[n, g].group(i)

    assert off(with_config(False)) == set()
    huggingface = off(with_config(True))
    assert len(huggingface) == 13
    assert {(18, 14), (36, 14), (36, 28)} <= huggingface
    google = off(lambda i, n, g: int(i / n * g))
    assert len(google) == 11
    assert {(22, 22), (44, 22)} <= google


@given(
    layers=st.integers(1, 48),
    groups=st.integers(1, 48),
    inner=st.integers(1, 3),
    share=st.sampled_from(["none", "attention", "ffn", "all"]),
)
def test_the_plan_uses_every_owner_and_visits_in_order(
    layers: int, groups: int, inner: int, share: str
) -> None:
    groups = min(groups, layers)
    config = EncoderConfig(
        num_layers=layers, num_groups=groups, layers_per_group=inner, share=share
    )  # type: ignore[arg-type]
    plan = config.plan()
    assert len(plan) == layers * inner
    for part, owners in zip(("attention", "ffn"), zip(*plan, strict=True), strict=True):
        shared = share in (part, "all")
        assert set(owners) == set(range(groups * inner if shared else layers * inner))
        assert owners[::inner] == tuple(sorted(owners[::inner]))
