"""An embedded model may be stored as a difference to another, and is used like any other."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import litebert
from litebert import cli
from litebert.config import HeadConfig
from litebert.errors import CheckpointError, ConfigError
from litebert.models import index
from litebert.storage.checkpoint import CONFIG, WEIGHTS, Checkpoint
from litebert.tasks.task import Task, TaskCard
from litebert.testing import tiny_tokenizer
from litebert.text.tokenizer import Tokenizer
from tests.helpers.embedded import FACTS, LABELS, embed, make_run

NAMES = ("gloomy", "cheerful")
TEXTS = ["the whale sails home", "a storm"]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A base, a classifier that was fine-tuned from it, and the report of embedding it."""
    folder = tmp_path_factory.mktemp("models")
    tokenizer = Tokenizer.load(tiny_tokenizer(folder / "tokenizer"))
    (folder / "facts.json").write_text(json.dumps(FACTS))
    flags = ("--facts", folder / "facts.json", "--into", folder / "models")
    embed(
        make_run(folder / "pretrained", tokenizer, HeadConfig(kind="masked")),
        "--name",
        "base",
        *flags,
    )
    task = Task(name="sst2", kind="classify", scores=("accuracy",), labels=LABELS, head="classify")
    card = TaskCard(task=task, max_length=64)
    make_run(folder / "tuned", tokenizer, HeadConfig(kind="classify", labels=LABELS), card)
    tuned = Checkpoint.load(folder / "tuned" / "final")
    tuned.model.encoder.load_state_dict(
        Checkpoint.load(folder / "models" / "base").model.encoder.state_dict()
    )
    with torch.no_grad():
        for parameter in tuned.model.parameters():
            parameter += 0.01 * torch.randn_like(parameter)
    tuned.save(folder / "tuned" / "final", replace=True)
    based = ("--based-on", "base", "--rank", "32", "--token-rank", "2")
    return folder, embed(
        folder / "tuned", "--name", "sentiment", *flags, *based, "--labels", *NAMES
    )


@pytest.fixture
def root(embedded: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(index, "ROOT", embedded[0] / "models")
    return embedded[0] / "models"


def test_it_is_chosen_by_name_and_by_verb(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert litebert.load("sentiment").verbs == ("embed", "classify")
    assert litebert.load().verbs == ("fill", "embed")
    exact = litebert.load(root.parent / "tuned").classify(TEXTS)
    for prediction, truth in zip(litebert.load("sentiment").classify(TEXTS), exact, strict=True):
        assert tuple(prediction.probabilities) == NAMES
        for name, label in zip(NAMES, LABELS, strict=True):
            assert prediction.probabilities[name] == pytest.approx(
                truth.probabilities[label], abs=0.01
            )
    assert cli.run(["classify", TEXTS[0], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answers"][0]["label"] in NAMES
    assert cli.run(["models", "--json"]) == 0
    base, sentiment = json.loads(capsys.readouterr().out)["models"]
    assert (sentiment["name"], sentiment["verbs"]) == ("sentiment", ["embed", "classify"])
    assert 3 * sentiment["bytes"] < 2 * base["bytes"]  # tiny models are mostly cards


def test_sizes_and_errors_are_reported(embedded: tuple[Path, dict[str, Any]]) -> None:
    folder, report = embedded
    models = index.embedded_models(folder / "models")
    assert report["bytes_of_all"] == sum(model.num_bytes for model in models)
    assert set(report["files"]) == {
        "README.md",
        "card.json",
        CONFIG,
        "manifest.json",
        WEIGHTS,
        "task.json",
    }
    lost = report["lost"]
    assert 0.5 < lost.pop("encoder.embedding.token.weight") < 1  # most directions are left out
    assert lost
    assert max(lost.values()) < 0.02  # the others' rank is 32 at most
    assert "| weights | difference of rank 32 to base |" in models[1].page.read_text()


def test_its_card_is_written_again_and_its_weights_stay(root: Path, tmp_path: Path) -> None:
    before = {
        name: (root / "sentiment" / name).read_bytes() for name in (WEIGHTS, CONFIG, "task.json")
    }
    (tmp_path / "facts.json").write_text(json.dumps({"limits": ["Short texts alone."]}))
    again = (
        root / "sentiment",
        "--name",
        "sentiment",
        "--facts",
        tmp_path / "facts.json",
        "--into",
        root,
    )
    embed(*again)
    assert {name: (root / "sentiment" / name).read_bytes() for name in before} == before
    card = index.embedded_models()[1].card()
    assert (card.limits, card.shape["weights"]) == (
        ("Short texts alone.",),
        "difference of rank 32 to base",
    )
    with pytest.raises(
        ConfigError,
        match="is stored as a difference, and its labels with it; embed the run itself to name",
    ):
        embed(*again, "--labels", "a", "b")


def test_names_for_labels_are_as_many_as_labels(root: Path) -> None:
    with pytest.raises(
        ConfigError, match="the model has the labels bad, good; got 3 names for them"
    ):
        embed(root.parent / "tuned", "--name", "three", "--into", root, "--labels", "a", "b", "c")


def test_all_models_together_keep_the_limit(root: Path) -> None:
    most = sum(model.num_bytes for model in index.embedded_models()) + 1000
    flags = ("--facts", root.parent / "facts.json", "--into", root, "--most-bytes", most)
    with pytest.raises(
        ConfigError, match=r"more has [\d,]+ bytes beside [\d,]+ of other models, a package takes"
    ):
        embed(root.parent / "tuned", "--name", "more", *flags)
    assert not (root / "more").exists()


def test_a_base_that_was_changed_is_noticed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(root, tmp_path / "models"))
    monkeypatch.setattr(index, "ROOT", copy)
    changed = Checkpoint.load(copy / "base")
    with torch.no_grad():
        changed.model.encoder.embedding.token.weight += 1
    embed(
        changed.save(tmp_path / "changed"),
        "--name",
        "base",
        "--facts",
        root.parent / "facts.json",
        "--into",
        copy,
    )
    assert cli.run(["classify", TEXTS[0]]) == CheckpointError.exit_code
    assert "is stored as its difference to base with sha256" in capsys.readouterr().err
