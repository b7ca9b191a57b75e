"""Embedded models: added by a command, chosen by name and by verb, listed with their cards."""

import json
import re
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import litebert
from litebert import cli
from litebert.config import HeadConfig
from litebert.errors import CheckpointError, ConfigError
from litebert.infer.predictor import load
from litebert.models import index
from litebert.storage.checkpoint import Checkpoint, is_difference
from litebert.tasks.task import Task, TaskCard
from litebert.testing import tiny_tokenizer
from litebert.text.tokenizer import Tokenizer
from tests.helpers.embedded import FACTS, LABELS, embed, make_run
from tools import embed_model


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models as the package has one: a classifier, embedded first, and an encoder that
    takes its place."""
    folder = tmp_path_factory.mktemp("runs")
    tokenizer = Tokenizer.load(tiny_tokenizer(folder / "tokenizer"))
    task = Task(name="sst2", kind="classify", scores=("accuracy",), labels=LABELS, head="classify")
    make_run(
        folder / "tuned",
        tokenizer,
        HeadConfig(kind="classify", labels=LABELS),
        TaskCard(task=task, max_length=64),
    )
    make_run(folder / "pretrained", tokenizer, HeadConfig(kind="masked"))
    (folder / "facts.json").write_text(json.dumps(FACTS))
    for run, name, *more in (("tuned", "mood"), ("pretrained", "small", "--first")):
        report = embed(
            folder / run,
            "--name",
            name,
            "--facts",
            folder / "facts.json",
            "--into",
            folder / "models",
            *more,
        )
        assert report["bytes"] == sum(
            path.stat().st_size for path in (folder / "models" / name).iterdir()
        )
    return folder


@pytest.fixture
def root(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(index, "ROOT", runs / "models")
    return runs / "models"


def test_the_models_of_this_package_verify_and_their_pages_follow_from_the_facts() -> None:
    models = index.embedded_models()
    for model in models:
        if is_difference(model.folder):
            assert model.num_bytes <= 1_001_000  # a manifest is written after the count
        card = model.card()
        assert (card.name, card.verbs) == (model.name, model.verbs)
        assert model.page.read_text(encoding="utf-8") == card.page()
        assert load(model.folder, device="cpu").verbs == model.verbs


def test_a_wheel_stays_below_30_mb() -> None:
    """Everything that is packed, deflated as a wheel is; weights hardly shrink."""
    size = 0
    for path in Path(litebert.__file__).parent.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            is_small = path.stat().st_size < 1e6
            size += len(zlib.compress(path.read_bytes())) if is_small else path.stat().st_size
    assert size < 30e6


def test_the_name_of_the_preset_loads_the_model_of_that_shape() -> None:
    assert index.find_embedded("litebert-base") == index.find_embedded("base")
    assert litebert.load("litebert-base").fingerprint == litebert.load("base").fingerprint


def test_a_model_has_other_names_and_claims_verbs(runs: Path, tmp_path: Path) -> None:
    into, facts = tmp_path / "models", ("--facts", runs / "facts.json")
    facts = (*facts, "--into", into)
    embed(runs / "pretrained", "--name", "small", "--alias", "litebert-small", *facts)
    embed(runs / "tuned", "--name", "mood", "--default-for", "embed", *facts)
    embed(runs / "pretrained", "--name", "small", *facts)  # again: its other name stays
    small, mood = index.embedded_models(into)
    assert (small.aliases, mood.default_for) == (("litebert-small",), ("embed",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index, "ROOT", into)
        assert index.default_model().name == index.default_model("fill").name == "small"
        assert index.default_model("embed").name == "mood"
        assert index.find_embedded("litebert-small") == small
    with pytest.raises(ConfigError, match="mood cannot fly, so it is no default for it"):
        embed(runs / "tuned", "--name", "mood", "--default-for", "fly", *facts)


def test_a_difference_that_is_too_large_is_refused(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = ("--into", tmp_path / "models", "--facts", runs / "facts.json")
    embed(runs / "pretrained", "--name", "small", *into)
    monkeypatch.setattr(embed_model, "MOST_DIFFERENCE", 1_000)
    with pytest.raises(ConfigError, match="bytes, a difference takes 1,000 at most; lower --rank"):
        embed(runs / "tuned", "--name", "mood", "--based-on", "small", *into)


def test_a_model_is_found_by_name_and_nothing_gives_the_first(root: Path, runs: Path) -> None:
    assert [model.name for model in index.embedded_models()] == ["small", "mood"]
    assert (
        litebert.load("small").fingerprint
        == litebert.load().fingerprint
        == load(root / "small").fingerprint
    )
    assert litebert.load("mood").verbs == ("embed", "classify")
    text = "the [MASK] sails home"
    exact, small = load(runs / "pretrained").fill(text, top=1), litebert.load().fill(text, top=1)
    assert np.isclose(exact[0][0].probability, small[0][0].probability, rtol=0.1)
    with pytest.raises(
        CheckpointError,
        match=r"there is no smal; expected .* or an embedded model \(small, mood\)",
    ):
        load("smal")


def test_a_folder_of_that_name_comes_before_the_package(
    root: Path, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Checkpoint.load(runs / "tuned" / "final").save("small")
    assert "classify" in litebert.load("small").verbs


def test_one_liners_without_a_model_take_the_first_that_can(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command, keys in (
        (["fill", "the [MASK] sails"], {"text", "masks"}),
        (["embed", "the whale"], {"text", "vector"}),
        (["classify", "the whale"], {"text", "label", "probabilities"}),
        (["classify", "the whale", "--model", "mood"], {"text", "label", "probabilities"}),
    ):
        assert cli.run([*command, "--json"]) == 0
        assert set(json.loads(capsys.readouterr().out)["answers"][0]) == keys
    assert cli.run(["tag", "the whale"]) == 2
    message = (
        "no embedded model can tag (small can fill and embed; mood can embed and classify); give a "
        "folder with --model"
    )
    assert message in capsys.readouterr().err


def test_files_are_predicted_by_the_default_too(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.txt").write_text("the whale\na ship\n")
    out = tmp_path / "out.csv"
    assert (
        cli.run(["predict", str(tmp_path / "in.txt"), "--verb", "classify", "--out", str(out)]) == 0
    ), capsys.readouterr().err
    assert len(out.read_text().splitlines()) == 3


def test_models_are_listed_for_a_person_and_a_program(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["models", "--json"]) == 0
    small, mood = json.loads(capsys.readouterr().out)["models"]
    assert (small["name"], small["verbs"], small["license"]) == (
        "small",
        ["fill", "embed"],
        "Apache-2.0",
    )
    assert small["bytes"] == sum(path.stat().st_size for path in (root / "small").iterdir())
    assert mood["scores"] == FACTS["scores"]
    assert cli.run(["models"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{small['parameters']:,} fill, embed Apache-2.0" in shown
    assert "scores: SST-2 accuracy 0.5 (dev)" in shown


def test_an_embedded_model_is_converted_by_name(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "huggingface"
    assert cli.run(["convert", "mood", str(target), "--to", "huggingface", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["source"] == "litebert"
    text = ["the whale sails home"]
    converted = load(target).embed(text)
    assert np.allclose(converted, load(root / "mood").embed(text), atol=1e-5)
    assert cli.run(["convert", "moot", str(tmp_path / "other")]) == 3
    assert re.search(r"there is no moot; expected", capsys.readouterr().err)


def test_without_any_model_all_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(index, "ROOT", tmp_path)
    (tmp_path / "index.json").write_text(index.index_text([]))
    with pytest.raises(
        ConfigError, match="there is no embedded model yet; give a folder with --model"
    ):
        litebert.load()
    assert cli.run(["models"]) == 0
    assert "no model comes with this litebert" in capsys.readouterr().out
    assert cli.run(["models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"models": []}
    (tmp_path / "index.json").write_text('{"format": "other", "version": 1}')
    assert cli.run(["models"]) == 3
    assert (
        "cannot be read: it is of format 'other', version 1; reinstall litebert"
        in capsys.readouterr().err
    )


def test_the_card_holds_the_authors_facts_and_those_of_the_run(root: Path) -> None:
    small = index.embedded_models()[0]
    card = small.card()
    assert card.run == {"recipe": {"recipe": {"seed": 3}}, "status": {"tokens": 1200128}}
    assert card.parameters == sum(
        part.numel() for part in Checkpoint.load(small.folder).model.parameters()
    )
    page = small.page.read_text(encoding="utf-8")
    assert page == card.page()
    for part in (
        "# small\n",
        f"| parameters | {card.parameters:,} |",
        "- Tiny (CC0): sea | stories",
        "- tokens: 1,200,000",
    ):
        assert part in page
    assert "| SST-2 | accuracy | 0.5 | dev | one seed |" in page
    assert '"tokens": 1200128' in page


def test_a_card_is_written_again_from_the_embedded_folder_itself(
    runs: Path, tmp_path: Path
) -> None:
    models, facts = runs / "models", tmp_path / "facts.json"
    before = (models / "mood" / "model.safetensors").read_bytes()
    facts.write_text(json.dumps({"limits": ["Short texts alone."], "failures": ["not bad: bad"]}))
    embed(models / "mood", "--name", "mood", "--facts", facts, "--into", models)
    assert (models / "mood" / "model.safetensors").read_bytes() == before
    again = next(model for model in index.embedded_models(models) if model.name == "mood").card()
    assert (again.limits, again.license, again.run) == (
        ("Short texts alone.",),
        "Apache-2.0",
        _record(runs / "tuned"),
    )
    assert again.failures == ("not bad: bad",)
    assert "## Failures\n\n- not bad: bad" in again.page()
    assert [model.name for model in index.embedded_models(models)] == ["small", "mood"]


def _record(run: Path) -> dict[str, Any]:
    return {"recipe": json.loads((run / "recipe.json").read_text()), "status": {"tokens": 1200128}}


@pytest.mark.parametrize(
    ("args", "facts", "message"),
    [
        (
            ["--name", "Big One"],
            FACTS,
            "a name has small letters, digits and hyphens; got 'Big One'",
        ),
        (
            ["--name", "big", "--most-bytes", "1000"],
            FACTS,
            "bytes, a package takes 1,000; choose a smaller model",
        ),
        (
            ["--name", "big"],
            {"limits": ["x"]},
            "ModelCard needs summary, license, data, recipe, scores as well",
        ),
        (["--name", "big"], FACTS | {"limits": []}, "a card says something of limits; got ()"),
        (["--name", "big"], FACTS | {"verbs": ["fly"]}, "verbs is none of these"),
        (
            ["--name", "big"],
            FACTS | {"scores": [{"task": "a"}]},
            "ScoreFact needs score, value, split as well; got task",
        ),
        (["--name", "big"], FACTS | {"data": ["a"]}, "a DataFact is an object; got 'a'"),
    ],
)
def test_what_cannot_be_embedded_is_refused_and_nothing_appears(
    runs: Path, tmp_path: Path, args: list[str], facts: dict[str, Any], message: str
) -> None:
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    into = tmp_path / "models"
    with pytest.raises(ConfigError, match=re.escape(message)):
        embed(runs / "pretrained", "--facts", tmp_path / "facts.json", "--into", into, *args)
    assert not into.exists() or not list(into.iterdir())


FRESH = """
import sys
others = "transformers tokenizers sklearn scipy pyarrow zstandard pandas beartype pytest".split()
sys.modules.update(dict.fromkeys(others))                       # as if only the core were installed
from litebert.models import index
index.ROOT = index.Path(sys.argv[1])
from litebert import cli
code = cli.run(["fill", "the [MASK] sails", "--json"]) or cli.run(["embed", "the whale", "--json"])
assert code == 0
slow = {"torch._dynamo", "torch._inductor", "rich.progress", "litebert.train.run"}
slow &= set(sys.modules)  # imports that take longer than the answer
assert not slow, slow                                         
"""


def test_core_packages_are_enough_and_nothing_slow_is_imported(runs: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FRESH, runs / "models"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])["answers"]
