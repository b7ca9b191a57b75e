"""The examples of docs/infer.md, run as they stand there."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from litebert import cli
from litebert.config import HeadConfig, HeadKind, ModelConfig, preset
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.task import Task, TaskCard
from litebert.testing import tiny_tokenizer
from litebert.text.tokenizer import Tokenizer

PAGE = (Path(__file__).parents[1] / "docs" / "infer.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the runs that the page names, and a file."""
    monkeypatch.chdir(tmp_path)
    tokenizer = Tokenizer.load(tiny_tokenizer(tmp_path / "vocabulary"))
    labels = ("bad", "good")
    reviews = Task(
        name="classify", kind="classify", scores=("accuracy",), labels=labels, head="classify"
    )
    squad = Task(name="squad2", kind="answer", scores=("f1",), head="joint_span", has_null=True)
    runs: dict[str, tuple[HeadKind, Task | None]] = {
        "mine": ("masked", None),
        "reviews": ("classify", reviews),
        "squad2": ("joint_span", squad),
    }
    for name, (kind, task) in runs.items():
        torch.manual_seed(0)
        encoder = replace(preset("tiny"), vocab_size=tokenizer.vocab_size)
        head = HeadConfig(kind=kind, labels=labels if kind == "classify" else ())
        card = None if task is None else TaskCard(task=task, max_length=64).to_dict()
        model = Model(ModelConfig(encoder=encoder, heads=(head,)))
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "recipe.json").write_text("{}")
        Checkpoint(model=model, tokenizer=tokenizer, task=card).save(
            tmp_path / "runs" / name / "final"
        )
    (tmp_path / "more.csv").write_text("text\na great story\na dull film\n")
    return tmp_path


def test_the_python_of_the_page_runs(here: Path) -> None:
    code = [text for kind, text in BLOCKS if kind == "python"]
    assert len(code) == 1
    names: dict[str, object] = {}
    exec(code[0], names)
    assert names["model"].verbs == ("fill", "embed")  # type: ignore[attr-defined]


def test_the_commands_of_the_page_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines]
    assert [words[1] for words in commands if words[0] != "litebert"] == ["install"]
    assert sum(words[0] == "litebert" for words in commands) >= 8
    for program, *args in commands:
        if program != "litebert":
            continue
        assert cli.run(args) == 0, (args, capsys.readouterr().err)
    assert (
        (here / "labels.csv")
        .read_text()
        .startswith("line,text,label,probability,probability:bad,probability:good\n2,a great")
    )
    assert len((here / "vectors.jsonl").read_text().splitlines()) == 2
    assert (here / "vectors.npy").exists()
