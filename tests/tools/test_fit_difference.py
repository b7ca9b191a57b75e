"""The rank of a stored difference is what fitting keeps to, and what it learns within."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import litebert
from litebert.config import PRESETS, ModelConfig
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.storage.difference import Difference
from litebert.storage.int8 import is_quantized
from litebert.tasks.task import EmbedCard
from litebert.testing import tiny_tokenizer
from litebert.text.tokenizer import Tokenizer
from tools import fit_difference

PLACES = ("in a storm", "at night", "with the old sailor", "and the sea is calm")
VERBS = ("sails", "sinks", "is old", "comes home")
TEXTS = [f"the whale {verb} {place}" for verb in VERBS for place in PLACES]


def test_a_fitted_change_has_its_rank_and_is_nearer_than_a_cut_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = Tokenizer.load(tiny_tokenizer(tmp_path / "tokenizer"))
    encoder = replace(PRESETS["tiny"], vocab_size=tokenizer.vocab_size, pooler=False)
    torch.manual_seed(0)
    model = Model(ModelConfig(encoder=encoder)).eval()
    card = EmbedCard().to_dict()
    base = Checkpoint(model=model, tokenizer=tokenizer, task=card).save(tmp_path / "base")
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    tuned = Checkpoint(model=model, tokenizer=tokenizer, task=card).save(tmp_path / "tuned")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    teacher = litebert.load(tuned).embed(TEXTS)
    np.save(tmp_path / "teacher.npy", teacher)

    def fitted(steps: int) -> Path:
        out = tmp_path / f"fitted-{steps}"
        flags = {"--base": base, "--texts": tmp_path / "texts.txt", "--rank": 2, "--steps": steps}
        flags |= {
            "--token-rank": 1,
            "--teacher": tmp_path / "teacher.npy",
            "--batch-size": 8,
            "--learning-rate": 1e-2,
        }
        words = [str(each) for pair in flags.items() for each in pair]
        monkeypatch.setattr(sys, "argv", ["fit_difference", str(tuned), str(out), *words])
        fit_difference.main()
        report = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert report["rank"] == 2
        assert report["tokens"] > 0
        return out

    def distance(folder: Path) -> float:
        return float(1 - (litebert.load(folder).embed(TEXTS) * teacher).sum(1).mean())

    fit = fitted(80)
    for name, weight in Checkpoint.load(fit).model.state_dict().items():
        change = weight - before[name]
        most = 1 if name == "encoder.embedding.token.weight" else 2
        if is_quantized(tuple(weight.shape)):
            assert torch.linalg.matrix_rank(change, atol=1e-5) <= most, name
    ranks = Difference(base=base, rank=2, token_rank=1)
    Checkpoint.load(tuned).save(tmp_path / "cut", weights=ranks)
    Checkpoint.load(fit).save(tmp_path / "stored", weights=ranks)
    assert distance(tmp_path / "stored") < 0.7 * distance(tmp_path / "cut")
    assert distance(tmp_path / "stored") == pytest.approx(distance(fit), abs=0.01)


def test_batches_hold_texts_of_like_lengths_each_once_an_epoch() -> None:
    lengths = np.arange(100) % 10 + 1
    epoch = list(fit_difference.batches(lengths, 20, 5))
    assert sorted(np.concatenate(epoch).tolist()) == list(range(100))
    assert max(np.ptp(lengths[each]) for each in epoch) <= 2
    assert len(list(fit_difference.batches(lengths, 20, 12))) == 12
