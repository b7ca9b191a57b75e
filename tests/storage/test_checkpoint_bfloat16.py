"""A bfloat16 checkpoint takes half the space, loads like any other, and `convert --weights` writes
one."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from litebert import cli
from litebert.config import PRESETS, GeneratorConfig, HeadConfig, ModelConfig
from litebert.model.model import Model
from litebert.storage.checkpoint import WEIGHTS, Checkpoint, is_difference
from litebert.testing import tiny_tokenizer
from litebert.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model pretrained by replaced-token detection: with a generator."""
    path = tmp_path_factory.mktemp("exact")
    tokenizer = Tokenizer.load(tiny_tokenizer(path / "tokenizer"))
    encoder = replace(PRESETS["tiny"], vocab_size=tokenizer.vocab_size)
    config = ModelConfig(
        encoder=encoder,
        heads=(HeadConfig(kind="detect"),),
        generator=GeneratorConfig(encoder=encoder),
    )
    torch.manual_seed(0)
    return Checkpoint(model=Model(config), tokenizer=tokenizer).save(path / "model")


def convert(*words: object) -> int:
    return cli.run(["convert", *map(str, words)])


def test_weights_are_rounded_to_bfloat16_and_return_as_float32(
    folder: Path, tmp_path: Path
) -> None:
    exact = Checkpoint.load(folder)
    half = exact.save(tmp_path / "half", weights="bfloat16")
    assert {tensor.dtype for tensor in load_file(half / WEIGHTS).values()} == {torch.bfloat16}
    assert not (half / "tokenizer.json").exists()
    assert not is_difference(half)
    sizes = [sum(t.nbytes for t in load_file(each / WEIGHTS).values()) for each in (half, folder)]
    assert 2 * sizes[0] == sizes[1]
    loaded = Checkpoint.load(half)
    assert loaded.tokenizer is not None
    weights = exact.model.state_dict()
    for name, tensor in loaded.model.state_dict().items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, weights[name].bfloat16().float()), name


@pytest.mark.parametrize("weights", ["exact", "bfloat16", "int8"])
def test_convert_stores_a_litebert_folder_in_another_way(
    folder: Path, tmp_path: Path, weights: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = tmp_path / "stored"
    assert convert(folder, stored, "--weights", weights) == 0, capsys.readouterr().err
    expected = Checkpoint.load(folder).save(tmp_path / "expected", weights=weights)  # type: ignore[arg-type]
    assert (stored / WEIGHTS).read_bytes() == (expected / WEIGHTS).read_bytes()
    assert Checkpoint.load(stored).model.config == Checkpoint.load(folder).model.config
    assert convert(folder, stored, "--weights", weights) == 0  # the same command again


def test_convert_refuses_what_has_no_meaning(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(folder, tmp_path / "a", "--to", "huggingface", "--weights", "int8") == 2
    assert "--weights is how a litebert folder is stored; leave out --to" in capsys.readouterr().err
    assert convert(folder, tmp_path / "a", "--to", "litebert") == 2
    message = "is a litebert folder already; add --to huggingface, or --weights int8, or copy it"
    assert message in " ".join(capsys.readouterr().err.split())
