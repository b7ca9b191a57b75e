"""The gate: which kernels run on which machine, how they are switched off, and what it says."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from litebert.config import PRESETS, HeadConfig, ModelConfig
from litebert.errors import ConfigError
from litebert.kernels import gate as gate_module
from litebert.kernels.gate import FAMILIES, Gate, gate_of, parse
from litebert.model.layers import apply_layer
from litebert.model.model import Model

BASE = PRESETS["albert-base-v2"]
PRE = replace(BASE, norm="pre")


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A machine with an H200, as far as the gate can see."""
    properties = SimpleNamespace(major=9, minor=0, shared_memory_per_block_optin=232448)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda device: properties)
    monkeypatch.setattr(gate_module, "find_spec", lambda name: object())
    monkeypatch.delenv("LITEBERT_KERNELS", raising=False)
    return properties


def on(gate: Gate) -> set[str]:
    return {family for family in FAMILIES if getattr(gate, family)}


def test_hopper_runs_every_family_in_bfloat16(hopper: SimpleNamespace) -> None:
    gate = Gate.detect("cuda", torch.bfloat16, config=PRE)
    assert on(gate) == set(FAMILIES)
    assert gate.reasons == {}
    assert gate.packs(4096, dropout=0.0)
    assert gate.packs(512, dropout=0.1)
    assert not gate.packs(513, dropout=0.1), "torch's attention over packed rows has no dropout"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"major": 8, "minor": 6}, "compute capability 8.6, kernels are for 9.0"),
        ({"major": 10}, "compute capability 10.0, kernels are for 9.0"),
        ({"shared_memory_per_block_optin": 100 << 10}, "100 KiB of shared memory"),
    ],
)
def test_other_gpus_run_the_plain_layer_over_packed_rows(
    hopper: SimpleNamespace, changes: dict[str, int], reason: str
) -> None:
    hopper.__dict__.update(changes)
    gate = Gate.detect("cuda", torch.bfloat16, config=PRE)
    assert on(gate) == set()
    assert all(reason in given for given in gate.reasons.values())
    assert gate.packs(128, dropout=0.0)
    assert not gate.packs(128, dropout=0.1)
    assert gate.layer() is not apply_layer, "it has torch's attention over packed rows"


def test_gpus_before_ampere_read_padded_rows(hopper: SimpleNamespace) -> None:
    """torch's attention over packed rows is for compute capability 8.0 and later."""
    hopper.major, hopper.minor = 7, 5
    gate = Gate.detect("cuda", torch.bfloat16, config=PRE)
    assert not gate.packs(128, dropout=0.0)
    assert gate.layer() is apply_layer


def test_without_triton_there_are_no_kernels(
    hopper: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_module, "find_spec", lambda name: None)
    assert Gate.detect("cuda", torch.bfloat16).reasons["norm"] == "Triton is not installed"


def test_other_dtypes_have_no_kernels(hopper: SimpleNamespace) -> None:
    gate = Gate.detect("cuda", torch.float32)
    assert gate.reasons["attention"] == "float32, kernels are for bfloat16"
    assert not gate.packs(64, dropout=0.0)
    assert gate.layer() is apply_layer
    assert Gate.detect("cuda", torch.float16).packs(64, dropout=0.0)


def test_a_cpu_runs_the_plain_layer() -> None:
    gate = Gate.detect("cpu", torch.float32, config=BASE)
    assert set(gate.reasons.values()) == {"no GPU"}
    assert gate.layer() is apply_layer
    assert not gate.packs(64, dropout=0.0)


@pytest.mark.parametrize(
    ("changes", "off"),
    [
        ({"norm": "post"}, {"norm"}),
        ({"activation": "relu"}, {"feed_forward"}),
        ({"num_attention_heads": 16}, {"attention"}),
        ({"num_attention_heads": 48, "positions": "rotary"}, {"attention"}),
        ({"num_attention_heads": 24, "positions": "rotary"}, set()),
        ({"vocab_size": 1000}, {"cross_entropy"}),
        ({"vocab_size": 30_001}, {"cross_entropy"}),
        ({"hidden_size": 1032, "num_attention_heads": 8},
         {"attention", "norm", "linear", "feed_forward"}),
        ({"hidden_size": 8192, "num_attention_heads": 64}, {"norm", "linear", "feed_forward"}),
    ],
)  # fmt: skip
def test_a_config_decides_too(
    hopper: SimpleNamespace, changes: dict[str, Any], off: set[str]
) -> None:
    gate = Gate.detect("cuda", torch.bfloat16, config=replace(PRE, **changes))
    assert set(gate.reasons) == set(FAMILIES) - on(gate) == off


def test_small_heads_of_rotary_positions_say_why(hopper: SimpleNamespace) -> None:
    config = replace(PRE, num_attention_heads=48, positions="rotary")
    gate = Gate.detect("cuda", torch.bfloat16, config=config)
    assert gate.reasons["attention"] == "rotary positions in heads of 16 numbers, not 32 to 128"


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"adapter_rank": 4}, "adapter_rank 4"), ({"reversible": True}, "reversible layers")],
)
def test_some_layers_are_plain_and_read_no_packed_rows(
    hopper: SimpleNamespace, changes: dict[str, Any], name: str
) -> None:
    config = replace(PRE, **changes)
    gate = Gate.detect("cuda", torch.bfloat16, config=config)
    assert on(gate) == {"cross_entropy"}
    assert gate.reasons["norm"] == f"{name}, which the plain layer computes"
    assert gate.note == f"{name}: the plain layer runs, without fused kernels and packed rows"
    assert Gate.detect("cuda", torch.bfloat16, config=PRE).note is None
    assert Gate.detect("cpu", torch.float32, config=config).note is None
    assert gate.layer() is apply_layer
    assert not gate.packs(64, dropout=0.0)
    with pytest.raises(ConfigError, match=f"--dtype fp8 is not for {name}; choose bfloat16"):
        Gate.detect("cuda", torch.bfloat16, config=config, quantizes=True)


def test_families_are_switched_off(
    hopper: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITEBERT_KERNELS", "norm=off")
    gate = Gate.detect("cuda", torch.bfloat16, off=parse("attention=off"))
    assert gate.reasons == {
        "attention": "switched off by --kernels",
        "norm": "switched off by LITEBERT_KERNELS",
    }
    assert gate.packs(128, dropout=0.0)
    assert not gate.packs(128, dropout=0.1)
    monkeypatch.setenv("LITEBERT_KERNELS", "off")
    assert on(Gate.detect("cuda", torch.bfloat16)) == set()


@pytest.mark.parametrize(
    ("text", "families"),
    [
        ("", set()),
        ("on", set()),
        ("off", set(FAMILIES)),
        ("attention=off,norm=off", {"attention", "norm"}),
        ("attention=off, norm=on", {"attention"}),
    ],
)
def test_what_switches_off_what(text: str, families: set[str]) -> None:
    assert parse(text) == families


@pytest.mark.parametrize("text", ["atention=off", "attention", "attention=no", "off,norm=off"])
def test_an_unknown_family_is_an_error_that_lists_them(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--kernels is off, on or a list.*got .*the families "):
        parse(text)


def test_the_variable_is_named_in_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEBERT_KERNELS", "fast")
    with pytest.raises(ConfigError, match="LITEBERT_KERNELS is off, on or a list"):
        Gate.detect("cpu", torch.float32)


def test_a_model_has_the_gate_that_was_applied() -> None:
    model = Model(ModelConfig(encoder=PRESETS["tiny"], heads=(HeadConfig(kind="masked"),)))
    assert gate_of(model) == Gate()
    gate = Gate(varlen=True)
    assert gate.apply(model) == []
    assert gate_of(model) is gate
    assert model.encoder.layer is not apply_layer
