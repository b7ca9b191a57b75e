"""A run with rotary positions: stages of length, resuming, checkpoints in every storage, and
continuing with more or fewer positions."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import litebert
from litebert.config import HeadConfig, ModelConfig
from litebert.errors import ConfigError, InterruptedRunError
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.storage.difference import Difference
from litebert.text.tokenizer import Tokenizer
from litebert.train.pretrain.init import load_initial_weights, new_positions
from tests.helpers.pretraining import (
    CPU,
    Watched,
    assert_same_run,
    events,
    signalled,
    staged_recipe,
    train,
    weights,
)

ROTARY = {"positions": "rotary", "rotary_base": 500.0}


def test_a_run_with_longer_stages_resumes_bit_for_bit(shards: Path, tmp_path: Path) -> None:
    recipe = staged_recipe(encoder={**ROTARY, "attention_dropout": 0.1}, checkpoint_every=1)
    assert new_positions(recipe) == {}
    train(recipe, shards, tmp_path / "whole")
    assert [name for name in weights(tmp_path / "whole") if "position" in name] == []
    assert events(tmp_path / "whole") == []
    with pytest.raises(InterruptedRunError, match="interrupted at step"):
        train(recipe, shards, tmp_path / "parts", at=signalled(14))
    train(recipe, shards, tmp_path / "parts")
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


def checkpoint(shards: Path, **encoder: Any) -> Checkpoint:
    tokenizer = Tokenizer.load(shards / "tokenizer")
    shape = replace(
        staged_recipe().encoder, vocab_size=tokenizer.vocab_size, init_std=0.2, **encoder
    )
    torch.manual_seed(0)
    model = Model(ModelConfig(encoder=shape, heads=(HeadConfig(kind="masked"),))).eval()
    return Checkpoint(model=model, tokenizer=tokenizer)


@pytest.mark.parametrize("positions", [16, 200])
def test_weights_are_continued_with_fewer_or_more_positions(
    shards: Path, tmp_path: Path, positions: int
) -> None:
    old = checkpoint(shards, **ROTARY)
    new = checkpoint(shards, **ROTARY, max_positions=positions)
    for parameter in new.model.parameters():
        torch.nn.init.zeros_(parameter)
    assert old.tokenizer is not None
    message = load_initial_weights(new.model, old, old.tokenizer)
    assert message.endswith("tokens keep their rows")
    for name, weight in old.model.state_dict().items():
        assert torch.equal(new.model.state_dict()[name], weight)
    old.save(tmp_path / "old")
    recipe = staged_recipe(encoder=ROTARY)
    assert Watched(recipe, shards, CPU, init=tmp_path / "old").new_positions == {}


@pytest.mark.parametrize(
    ("then", "now", "message"),
    [
        ({}, ROTARY, "positions: learned there, rotary here; rotary_base: 10000.0 there, 500.0"),
        (ROTARY, {"positions": "sinusoidal"}, "positions: rotary there, sinusoidal here"),
        (ROTARY, {"positions": "rotary"}, "rotary_base: 500.0 there, 10000.0 here"),
    ],
)
def test_weights_of_other_positions_are_refused(
    shards: Path, then: dict[str, Any], now: dict[str, Any], message: str
) -> None:
    old, new = checkpoint(shards, **then), checkpoint(shards, **now)
    assert old.tokenizer is not None
    with pytest.raises(ConfigError, match=f"another shape: .*{message}"):
        load_initial_weights(new.model, old, old.tokenizer)


def test_every_storage_has_the_positions(shards: Path, tmp_path: Path) -> None:
    old = checkpoint(shards, **ROTARY, max_positions=100)
    base, text = old.save(tmp_path / "base"), "a long input " * 300
    assert torch.equal(
        Checkpoint.load(base).model.encoder.attentions[0].key.weight,
        old.model.encoder.attentions[0].key.weight,
    )
    vector = litebert.load(base, device="cpu").embed(text)
    assert vector.any()
    for name, storage, tolerance in (
        ("int8", "int8", 0.05),
        ("difference", Difference(base=base, rank=2, token_rank=2), 1e-5),
    ):
        stored = old.save(tmp_path / name, weights=storage)  # type: ignore[arg-type]
        assert Checkpoint.load(stored).model.config == old.model.config
        other = litebert.load(stored, device="cpu").embed(text)
        assert np.abs(vector - other).max() < tolerance * np.abs(vector).max()


def test_a_difference_of_other_positions_is_refused(shards: Path, tmp_path: Path) -> None:
    base = checkpoint(shards).save(tmp_path / "base")
    with pytest.raises(
        litebert.CheckpointError, match="positions 'rotary', its base has 'learned'"
    ):
        checkpoint(shards, positions="rotary").save(
            tmp_path / "difference", weights=Difference(base=base, rank=2, token_rank=2)
        )
