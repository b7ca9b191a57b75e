"""A checkpoint is a folder that comes back bit for bit, or is refused with the reason."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from litebert.cli import run
from litebert.config import PRESETS, HeadConfig, ModelConfig
from litebert.convert.folder import convert_folder
from litebert.errors import CheckpointError
from litebert.files import MANIFEST
from litebert.infer.predictor import load
from litebert.loading import load_checkpoint
from litebert.model.model import Model
from litebert.storage.checkpoint import CONFIG, WEIGHTS, Checkpoint

HEADS = (HeadConfig(kind="masked"), HeadConfig(kind="classify", labels=("no", "yes"), dropout=0.1))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = ModelConfig(encoder=replace(PRESETS["tiny"], num_groups=2, norm="pre"), heads=HEADS)
    return Checkpoint(model=Model(config)).save(tmp_path / "model")


def edit(folder: Path, **changes: Any) -> None:
    data = json.loads((folder / CONFIG).read_text())
    data["encoder"] |= changes.pop("encoder", {})
    (folder / CONFIG).write_text(json.dumps(data | changes))
    (folder / MANIFEST).unlink(missing_ok=True)


def test_weights_and_config_come_back_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    loaded = Checkpoint.load(folder)
    assert loaded.tokenizer is None
    assert not loaded.model.training
    again = Checkpoint.load(loaded.save(tmp_path / "again")).model
    assert again.config == loaded.model.config
    for name, tensor in loaded.model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    assert (folder / WEIGHTS).read_bytes() == (tmp_path / "again" / WEIGHTS).read_bytes()


def test_who_may_read_the_config_may_read_the_weights(folder: Path) -> None:
    assert (folder / WEIGHTS).stat().st_mode == (folder / CONFIG).stat().st_mode


def test_another_dtype_on_request(folder: Path) -> None:
    model = Checkpoint.load(folder, dtype=torch.bfloat16).model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_saving_over_a_folder_must_be_asked_for(folder: Path) -> None:
    checkpoint = Checkpoint.load(folder)
    with pytest.raises(CheckpointError, match="exists already; choose another name or remove it"):
        checkpoint.save(folder)
    checkpoint.save(folder, replace=True)
    assert Checkpoint.load(folder).model.config == checkpoint.model.config


def test_missing_parts_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"nowhere is not a folder; expected a checkpoint with config.json"
    ):
        Checkpoint.load(tmp_path / "nowhere")
    (folder / WEIGHTS).unlink()
    (folder / MANIFEST).unlink()
    with pytest.raises(
        CheckpointError, match=r"has no model.safetensors; the checkpoint is not complete"
    ):
        Checkpoint.load(folder, unverified=True)
    (folder / CONFIG).unlink()
    with pytest.raises(
        CheckpointError, match=r"has no config.json; expected a model folder with config.json in it"
    ):
        Checkpoint.load(folder, unverified=True)


def test_a_foreign_config_points_to_convert(folder: Path) -> None:
    (folder / CONFIG).write_text('{"model_type": "albert"}')
    with pytest.raises(
        CheckpointError, match=r"is not of a litebert checkpoint; .* litebert convert"
    ):
        Checkpoint.load(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ("[1]", "should hold a JSON object, it holds a list"),
        (
            '{"format": "litebert", "version": 9}',
            "has version 9, this litebert reads 1; update litebert",
        ),
        (
            '{"format": "litebert", "version": 1, "encoder": 3}',
            "encoder is an object of encoder settings; got 3",
        ),
        (
            '{"format": "litebert", "version": 1, "encoder": {"hidden": 3}}',
            "there is no EncoderConfig setting 'hidden'",
        ),
        (
            '{"format": "litebert", "version": 1, "encoder": {}, "heads": [{"kind": "tag", '
            '"labels": [1]}]}',
            "list of strings",
        ),
        (
            '{"format": "litebert", "version": 1, "encoder": {}, "heads": {}}',
            "heads is a list of head settings",
        ),
    ],
)
def test_hostile_configs_get_one_sentence(folder: Path, text: str, message: str) -> None:
    (folder / CONFIG).write_text(text)
    with pytest.raises(CheckpointError, match=message):
        Checkpoint.load(folder)


def test_a_config_file_too_large_to_be_one_is_not_read(folder: Path) -> None:
    (folder / CONFIG).write_text(" " * (5 * 2**20))
    with pytest.raises(CheckpointError, match="is larger than 4194304 bytes; it is no config"):
        Checkpoint.load(folder)


def test_a_config_that_does_not_fit_its_weights_is_refused_before_anything_is_built(
    folder: Path,
) -> None:
    edit(
        folder,
        encoder={
            "num_layers": 1000,
            "num_groups": 1000,
            "layers_per_group": 64,
            "hidden_size": 65536,
        },
    )
    with pytest.raises(
        CheckpointError,
        match=r"config.json asks for [\d,]+ parameters, model.safetensors has [\d,]+",
    ):
        Checkpoint.load(folder, unverified=True)


def test_leftover_missing_and_misshapen_weights_are_refused(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    weights = load_file(folder / WEIGHTS)
    renamed = {
        name.replace("pooler.bias", "pooler.offset"): tensor for name, tensor in weights.items()
    }
    save_file(renamed, folder / WEIGHTS)
    with pytest.raises(
        CheckpointError, match=r"1 weights have no name here, the first is 'encoder.pooler.offset'"
    ):
        Checkpoint.load(folder, unverified=True)
    reshaped = weights | {"encoder.pooler.weight": weights["encoder.pooler.weight"].reshape(16, 64)}
    save_file(reshaped, folder / WEIGHTS)
    with pytest.raises(
        CheckpointError,
        match=r"encoder.pooler.weight has shape \(16, 64\), config.json asks for \(32, 32\)",
    ):
        Checkpoint.load(folder, unverified=True)
    two = {"heads.masked.norm.weight", "heads.masked.norm.bias"}
    missing = {name: tensor for name, tensor in weights.items() if name not in two}
    missing["encoder.pooler.bias"] = torch.zeros(32 + 2 * 16)
    save_file(missing, folder / WEIGHTS)
    with pytest.raises(
        CheckpointError, match=r"2 weights are missing, the first is 'heads.masked.norm.bias'"
    ):
        Checkpoint.load(folder, unverified=True)


def test_damage_is_found_with_the_manifest_and_without(folder: Path) -> None:
    raw = bytearray((folder / WEIGHTS).read_bytes())
    raw[-3] ^= 1
    (folder / WEIGHTS).write_bytes(raw)
    with pytest.raises(CheckpointError, match="does not have the sha256"):
        Checkpoint.load(folder)
    (folder / MANIFEST).unlink()
    (folder / WEIGHTS).write_bytes(raw[:-100])
    with pytest.raises(CheckpointError, match="cannot be read, it is truncated or damaged"):
        Checkpoint.load(folder, unverified=True)


def test_a_folder_without_its_manifest_is_refused(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    for loader in (Checkpoint.load, load):
        with pytest.raises(CheckpointError, match=r"has no manifest\.json.* add --unverified"):
            loader(folder)
    assert run(["fill", "--model", str(folder), "a [MASK]"]) == 3
    names = Checkpoint.load(folder, unverified=True).model.state_dict().keys()
    assert names == load_checkpoint(folder, unverified=True)[0].model.state_dict().keys()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_finite_are_refused(value: float, tmp_path: Path) -> None:
    config = ModelConfig(encoder=PRESETS["tiny"], heads=(HeadConfig(kind="masked"),))
    checkpoint = Checkpoint(model=Model(config))
    theirs = convert_folder(checkpoint.save(tmp_path / "ours"), tmp_path / "theirs").folder
    with torch.no_grad():
        checkpoint.model.encoder.pooler.bias[3] = value
    checkpoint.save(tmp_path / "broken")
    message = r"1 of 32 numbers of encoder\.pooler\.bias are NaN or infinite; the run .* diverged"
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path / "broken")
    (theirs / MANIFEST).unlink()
    weights = load_file(theirs / WEIGHTS)
    next(iter(weights.values())).view(-1)[0] = value
    save_file(weights, theirs / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="are NaN or infinite"):
        load(theirs)
