"""The example of docs/finetune.md, run as it stands there."""

import csv
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from litebert import cli
from litebert.config import ModelConfig, preset
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.testing import tiny_tokenizer
from litebert.text.tokenizer import Tokenizer

PAGE = (Path(__file__).parents[1] / "docs" / "finetune.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## Own files")[1].split("\n## ")[0]


def block(kind: str) -> str:
    """The section's block that begins with ``` and this word."""
    blocks = dict(re.findall(r"^```(\w*)\n(.*?)^```$", SECTION, re.M | re.S))
    return blocks[kind]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a pretrained run and the file of the page."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.csv").write_text(block("csv"))
    texts = [row["text"] for row in csv.DictReader(block("csv").splitlines())]
    (tmp_path / "more.csv").write_text("text\na great warm story\na dull film\n")
    tokenizer = Tokenizer.load(
        tiny_tokenizer(tmp_path / "vocabulary", vocab_size=120, texts=texts * 20)
    )
    torch.manual_seed(0)
    encoder = replace(preset("tiny"), vocab_size=tokenizer.vocab_size, init_std=0.1, norm="pre")
    Checkpoint(model=Model(ModelConfig(encoder=encoder)), tokenizer=tokenizer).save(
        tmp_path / "runs" / "mine" / "final"
    )
    (tmp_path / "runs" / "mine" / "recipe.json").write_text("{}")
    return tmp_path


def test_the_example_runs_and_learns(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = [shlex.split(line) for line in block("").splitlines()]
    assert [command[1] for command in commands] == [
        "finetune",
        "classify",
        "predict",
        "evaluate",
        "report",
    ]
    for command in commands:
        assert cli.run(command[1:]) == 0, capsys.readouterr().err
    shown = capsys.readouterr()
    assert "a warm and funny story" in shown.out
    result = json.loads((here / "runs" / "reviews" / "result.json").read_text())
    assert (result["train_examples"], result["dev_examples"]) == (12, 4)
    assert len(list(csv.DictReader((here / "labeled.csv").read_text().splitlines()))) == 2
    assert (here / "runs" / "reviews" / "report.html").is_file()
    losses = [
        json.loads(line).get("loss")
        for line in (here / "runs/reviews/metrics.jsonl").read_text().splitlines()
    ]
    steps = [loss for loss in losses if loss is not None]
    assert sum(steps[-4:]) < sum(steps[:4])


def test_the_flags_of_the_page_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["finetune", "--help"]) == 0
    assert cli.run(["finetune", "embed", "--help"]) == 0
    shown = capsys.readouterr().out
    flags = set(re.findall(r"`(--[a-z-]+)", PAGE))
    assert flags
    assert [flag for flag in sorted(flags) if flag not in shown] == []
