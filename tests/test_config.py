"""Configs are frozen data that refuse nonsense in one sentence; the plan of sharing follows from
them."""

import json
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.checks import shorten
from litebert.config import (
    PRESETS,
    EncoderConfig,
    HeadConfig,
    ModelConfig,
    first_settings,
    preset,
)
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
        (
            {"embedding_bands": "4000"},
            r"embedding_bands are the first ids of bands, as in 4000,16000; got '4000'",
        ),
        (
            {"embedding_bands": (4000, 4000)},
            "begin at rising ids, from 1 to the last of 30000 tokens; got 4000, 4000",
        ),
        ({"embedding_bands": (30_000,)}, "the last of 30000 tokens; got 30000"),
        (
            {"embedding_bands": (10, 20), "embedding_size": 72},
            "2 embedding_bands is 4 times narrower than .* is a multiple of 16; got 72",
        ),
        ({"embedding_band_factor": 1}, "embedding_band_factor is a whole number from 2 to"),
        ({"adapter_rank": -1}, "adapter_rank is a whole number from 0 to 768; got -1"),
        ({"cycle": "backward"}, "cycle is one of forward, reversed; got 'backward'"),
        ({"cycle": "reversed"}, "layers_per_group of at least 2 and num_groups 1; got 1 and 1"),
        ({"cycle": "reversed", "layers_per_group": 3, "num_groups": 2}, "num_groups 1; got 3 and"),
        (
            {"cycle": "reversed", "layers_per_group": 12, "num_layers": 1},
            "a group that is applied at least twice; num_layers is 1",
        ),
        (
            {"cycle": "reversed", "layers_per_group": 3, "share": "none"},
            "cycle is about shared layers, and share is none; got cycle reversed",
        ),
        (
            {"unshared_ends": 1, "share": "none"},
            "unshared_ends is about shared layers, and share is none; got unshared_ends 1",
        ),
        ({"unshared_ends": -1}, "unshared_ends is a whole number from 0 to 1000; got -1"),
        (
            {"unshared_ends": 3, "num_layers": 7},
            "between unshared ends at least 2 layers share; got 3 at each end of 7",
        ),
        ({"positions": "fixed"}, "positions is one of learned, sinusoidal, rotary; got 'fixed'"),
        (
            {"positions": "rotary", "hidden_size": 15, "num_attention_heads": 5},
            "its size is even; hidden_size 15 with 5 heads gives 3",
        ),
        ({"rotary_base": 500.0}, "rotary_base is for positions=rotary; got rotary_base 500.0"),
        ({"positions": "rotary", "rotary_base": 0.5}, "rotary_base is a number from 1"),
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


def test_a_head_without_a_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="a head needs its kind, one of masked, order"):
        HeadConfig.from_dict({"labels": ["a"]})


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


@pytest.mark.parametrize(
    ("init", "positions"), [("normal", "learned"), ("sinusoidal", "sinusoidal")]
)
def test_the_first_name_of_positions_is_read(init: str, positions: str) -> None:
    config = EncoderConfig.from_dict({"position_init": init, "num_layers": 3})
    assert config == EncoderConfig(positions=positions, num_layers=3)  # type: ignore[arg-type]
    assert first_settings(config.to_dict())["position_init"] == init
    assert EncoderConfig.from_dict(first_settings(config.to_dict())) == config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"position_init": "zero"}, "positions is one of learned, sinusoidal, rotary; got 'zero'"),
        ({"position_init": ["x"]}, "positions is one of learned"),
        ({"position_init": "normal", "positions": "rotary"}, "no EncoderConfig setting 'position_"),
    ],
)
def test_wrong_values_of_the_first_name_are_refused(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        EncoderConfig.from_dict(settings)


def test_later_settings_are_in_a_fingerprint_only_where_they_change_something() -> None:
    assert "rotary_base" not in first_settings(EncoderConfig().to_dict())
    rotary = first_settings(EncoderConfig(positions="rotary", rotary_base=500.0).to_dict())
    assert (rotary["positions"], rotary["rotary_base"]) == ("rotary", 500.0)


@pytest.mark.parametrize("written", ["50,200", [50, 200], (50, 200)])
def test_bands_are_read_from_json_and_command_lines(written: Any) -> None:
    shape = PRESETS["tiny"].to_dict() | {"vocab_size": 256}
    config = EncoderConfig.from_dict(shape | {"embedding_bands": written})
    assert config.token_tables() == [(50, 16), (150, 4), (56, 1)]
    assert EncoderConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert EncoderConfig.from_dict(shape | {"embedding_bands": 50}).embedding_bands == (50,)


def test_groups_worked_example() -> None:
    config = replace(PRESETS["tiny"], num_layers=12, num_groups=2)
    assert [config.group(layer) for layer in range(12)] == [0] * 6 + [1] * 6
    uneven = replace(PRESETS["tiny"], num_layers=5, num_groups=3, layers_per_group=2)
    assert uneven.plan() == [(k, k) for k in (0, 1, 0, 1, 2, 3, 2, 3, 4, 5)]


def owners(**settings: Any) -> list[int]:
    """Of the feed-forward parameters of each application."""
    return [ffn for _, ffn in replace(PRESETS["tiny"], **settings).plan()]


def test_plans_of_takase_and_kiyono() -> None:
    """Their Figure 1: six layers with the parameters of three."""
    assert owners(num_layers=6, num_groups=3) == [0, 0, 1, 1, 2, 2]
    assert owners(num_layers=2, layers_per_group=3) == [0, 1, 2, 0, 1, 2]
    assert owners(num_layers=2, layers_per_group=3, cycle="reversed") == [0, 1, 2, 2, 1, 0]
    assert owners(num_layers=3, layers_per_group=2, cycle="reversed") == [0, 1, 0, 1, 1, 0]


def test_unshared_ends_worked_example() -> None:
    assert owners(num_layers=6, unshared_ends=1) == [0, 1, 1, 1, 1, 2]
    assert owners(num_layers=8, num_groups=2, unshared_ends=2) == [0, 1, 2, 2, 3, 3, 4, 5]
    ends = {"unshared_ends": 1, "layers_per_group": 2}
    assert owners(num_layers=4, cycle="reversed", **ends) == [0, 1, 2, 1, 2, 1, 1, 3]
    plan = replace(PRESETS["tiny"], num_layers=5, share="attention", unshared_ends=1).plan()
    assert plan == [(0, 0), (1, 1), (1, 2), (1, 3), (2, 4)]


def test_a_fingerprint_leaves_out_later_settings_at_what_was_done_before() -> None:
    shape = PRESETS["tiny"].to_dict()
    later = {"cycle", "unshared_ends", "adapter_rank", "rotary_base", "reversible"}
    later |= {"embedding_bands", "embedding_band_factor"}
    assert shape.keys() - first_settings(shape) == later | {"positions"}  # once position_init
    changed = first_settings(replace(PRESETS["tiny"], num_layers=4, unshared_ends=1).to_dict())
    assert changed["unshared_ends"] == 1


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


def test_errors_show_the_beginning_of_a_long_value() -> None:
    hostile = "x" * 1_000_000
    with pytest.raises(ConfigError, match=r"'x+… \(1,000,000 characters\)$") as wrong:
        EncoderConfig(activation=hostile)  # type: ignore[arg-type]
    assert len(str(wrong.value)) < 300
    assert shorten("short") == "'short'"
    assert shorten(list(range(1000))).endswith("… (4,890 characters)")


@given(
    layers=st.integers(2, 24),
    inner=st.integers(1, 4),
    groups=st.integers(1, 4),
    ends=st.integers(1, 4),
    is_reversed=st.booleans(),
)
def test_unshared_ends_are_alone_and_the_others_share_as_before(
    layers: int, inner: int, groups: int, ends: int, is_reversed: bool
) -> None:
    is_reversed = is_reversed and inner > 1
    shape = replace(
        PRESETS["tiny"],
        num_layers=layers,
        layers_per_group=inner,
        num_groups=1 if is_reversed else min(groups, layers),
        cycle="reversed" if is_reversed else "forward",
    )
    ends = min(ends, (layers * inner - 2) // 2)
    before = [owner for owner, _ in shape.plan()]
    after = [owner for owner, _ in replace(shape, unshared_ends=ends).plan()]
    assert list(dict.fromkeys(after)) == list(range(1 + max(after)))
    inside = slice(ends, len(after) - ends)
    assert all(after.count(owner) == 1 for owner in after[:ends] + after[len(after) - ends :])
    pairs = set(zip(before[inside], after[inside], strict=True))
    assert len(pairs) == len(set(before[inside])) == len(set(after[inside]))


@pytest.mark.parametrize("name", [field.name for field in fields(EncoderConfig)])
def test_every_switch_is_in_the_page_about_the_model(name: str) -> None:
    page = Path(__file__).parents[1] / "docs" / "model.md"
    assert re.search(rf"\b{name}\b", page.read_text(encoding="utf-8"))
