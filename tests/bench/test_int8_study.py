"""The bench of weights in 8 bits works on a tiny model: float32 is at no distance from itself,
smaller groups are nearer."""

import json
import runpy
import sys
from pathlib import Path

import pytest
import torch

from litebert import cli
from litebert.config import EncoderConfig, HeadConfig, ModelConfig
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.testing import tiny_documents, tiny_tokenizer
from litebert.text.tokenizer import Tokenizer


def test_ways_of_storing_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = Tokenizer.load(tiny_tokenizer(tmp_path / "tokenizer"))
    (tmp_path / "corpus.txt").write_text(
        "\n\n".join("\n".join(document) for document in tiny_documents())
    )
    built = [
        "--tokenizer",
        str(tmp_path / "tokenizer"),
        "--out",
        str(tmp_path / "shards"),
        "--split",
        "lines",
    ]
    assert cli.run(["data", "build", str(tmp_path / "corpus.txt"), *built]) == 0
    torch.manual_seed(0)
    shape = {
        "embedding_size": 64,
        "hidden_size": 128,
        "num_layers": 2,
        "num_attention_heads": 2,
        "ffn_size": 256,
    }
    encoder = EncoderConfig(
        vocab_size=tokenizer.vocab_size, max_positions=64, init_std=0.1, **shape
    )
    model = Model(ModelConfig(encoder=encoder, heads=(HeadConfig(kind="masked"),)))
    Checkpoint(model=model, tokenizer=tokenizer).save(tmp_path / "model")
    capsys.readouterr()
    flags = [
        "--model",
        str(tmp_path / "model"),
        "--data",
        str(tmp_path / "shards"),
        "--tokens",
        "2000",
        "--seq",
        "32",
    ]
    monkeypatch.setattr(sys, "argv", ["int8.py", *flags])
    runpy.run_module("bench.studies.int8", run_name="__main__")
    ways = json.loads(capsys.readouterr().out)["ways"]
    assert (
        ways["float32"]["divergence"],
        ways["float32"]["agreement"],
        ways["float32"]["weights_lost"],
    ) == (0, 1, 0)
    lost = [
        ways[f"int8 by {group}"]["weights_lost"] for group in ("tensor", "row", "128", "64", "32")
    ]
    assert lost == sorted(lost, reverse=True)
    sizes = [ways[f"int8 by {group}"]["bytes"] for group in ("row", "128", "64", "32")]
    assert sizes == sorted(sizes)
    assert max(sizes) < ways["float16"]["bytes"] < ways["float32"]["bytes"]
