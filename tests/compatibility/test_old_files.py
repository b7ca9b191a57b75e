"""Files that an earlier version wrote (fixtures/, see README.md) load, answer and resume as they
did.

Numbers are compared with a tolerance, for CPUs round differently.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import litebert
from litebert.cli import run as command
from litebert.data.shards import Shards
from litebert.errors import CheckpointError
from litebert.storage.snapshot import SnapshotStore

FIXTURES = Path(__file__).parent / "fixtures"
EXPECTED = json.loads((FIXTURES / "expected.json").read_text())
CLOSE = {"rtol": 2e-3, "atol": 2e-4}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to write in, as the working directory: the runs' commands name relative paths."""
    shutil.copytree(FIXTURES, tmp_path / "fixtures")
    monkeypatch.chdir(tmp_path / "fixtures")
    return tmp_path / "fixtures"


def records(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def losses(run: Path) -> list[float]:
    return [record["loss"] for record in records(run, "step")]


def arguments(verb: str, run: str) -> list[str]:
    """The command of a run; the recipe `affordable` was another one then, so the run's own."""
    flags = [str(each) for each in EXPECTED[verb]]
    return [f"{run}/recipe.json" if each == "affordable" else each for each in flags]


@pytest.mark.parametrize("name", EXPECTED["embed"])
def test_a_pretrained_model_embeds_as_it_did(name: str) -> None:
    vectors = litebert.load(FIXTURES / name, device="cpu").embed(EXPECTED["texts"])
    np.testing.assert_allclose(vectors, EXPECTED["embed"][name], **CLOSE)


@pytest.mark.parametrize("name", EXPECTED["classify"])
def test_a_classifier_answers_as_it_did(name: str) -> None:
    predictions = litebert.load(FIXTURES / name, device="cpu").classify(EXPECTED["texts"])
    for prediction, expected in zip(predictions, EXPECTED["classify"][name], strict=True):
        assert prediction.label == max(expected, key=expected.__getitem__)
        assert prediction.probabilities == pytest.approx(expected, rel=2e-3, abs=2e-4)


@pytest.mark.parametrize("name", ["pretrained/best", "pretrained/final", "finetuned/final", "int8"])
def test_a_checkpoint_of_ours_saves_the_weights_that_it_read(name: str, tmp_path: Path) -> None:
    checkpoint = litebert.Checkpoint.load(FIXTURES / name)
    again = litebert.Checkpoint.load(checkpoint.save(tmp_path / "again"))
    weights = checkpoint.model.state_dict()
    assert weights.keys() == again.model.state_dict().keys()
    assert all(weights[key].equal(value) for key, value in again.model.state_dict().items())
    if name != "int8":
        assert weights.keys() == load_file(FIXTURES / name / "model.safetensors").keys()


def test_the_tokenizer_and_the_shards_are_read() -> None:
    tokenizer = litebert.Tokenizer.load(FIXTURES / "tokenizer")
    shards = Shards.open(FIXTURES / "shards", verify=True)
    assert shards.tokenizer().fingerprint == tokenizer.fingerprint
    first = shards.arrays(0)
    sentences = (FIXTURES / "corpus.txt").read_text().split("\n\n")[0].splitlines()
    ids = [token for sentence in sentences for token in tokenizer.encode(sentence)]
    assert first.tokens[: len(ids)].tolist() == ids
    assert shards.index["documents"] == 40


def test_the_shards_are_built_again_bit_for_bit(folder: Path) -> None:
    build = ["data", "build", "corpus.txt", "--tokenizer", "tokenizer", "--split", "lines"]
    assert command([*build, "--out", "new"]) == 0
    for path in sorted((folder / "shards").glob("*.npy")):
        assert path.read_bytes() == (folder / "new" / path.name).read_bytes()
    assert command([*build, "--out", "shards"]) == 0  # done already, and known as such


@pytest.mark.parametrize("name", ["pretrained", "pretraining", "finetuning"])
def test_a_snapshot_is_read(name: str) -> None:
    complaints: list[str] = []
    snapshot = SnapshotStore(FIXTURES / name / "snapshots", report=complaints.append).latest()
    assert snapshot is not None
    assert snapshot.step == {"pretrained": 12, "pretraining": 7, "finetuning": 15}[name]
    assert complaints == []


@pytest.mark.parametrize(
    ("verb", "interrupted", "finished"),
    [("pretrain", "pretraining", "pretrained"), ("finetune", "finetuning", "finetuned")],
)
def test_an_interrupted_run_resumes_to_the_end_that_the_other_had(
    folder: Path,
    verb: str,
    interrupted: str,
    finished: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = (folder / interrupted / "metrics.jsonl").read_bytes()
    assert command([verb, *arguments(verb, interrupted), "--out", interrupted]) == 0
    messages = capsys.readouterr().err
    assert "note: --rate is now --learning-rate" in messages
    assert "another recipe" not in messages
    resumed, straight = folder / interrupted, folder / finished
    assert json.loads((resumed / "status.json").read_text())["state"] == "finished"
    after = (resumed / "metrics.jsonl").read_bytes()
    assert after.startswith(before), "resumed from the snapshot, not started again"
    np.testing.assert_allclose(losses(resumed), losses(straight), **CLOSE)
    weights, expected = (load_file(run / "final/model.safetensors") for run in (resumed, straight))
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(weights[name], value, rtol=2e-2, atol=2e-3, err_msg=name)


@pytest.mark.parametrize(
    ("verb", "finished"), [("pretrain", "pretrained"), ("finetune", "finetuned")]
)
def test_a_finished_run_is_known_as_finished(folder: Path, verb: str, finished: str) -> None:
    before = losses(folder / finished)
    assert command([verb, *arguments(verb, finished), "--out", finished]) == 0
    assert losses(folder / finished) == before


def test_another_recipe_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["pretrain", *EXPECTED["pretrain"], "--seed", "4", "--out", "pretraining"]) == 2
    assert "seed" in capsys.readouterr().err


def test_report_reads_the_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = ["pretrained", "pretraining", "finetuned", "finetuning"]
    assert command(["report", *runs, "--out", "page.html", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert len(facts["runs"]) == 4
    page = (folder / "page.html").read_text()
    assert all(name in page for name in runs)


def test_a_recipe_of_a_run_starts_another_like_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = ["--recipe", "pretrained/recipe.json", "--data", "shards", "--workers", "0"]
    assert command(["pretrain", *recipe, "--device", "cpu", "--out", "new"]) == 0
    np.testing.assert_allclose(losses(folder / "new"), losses(folder / "pretrained"), **CLOSE)


def test_a_damaged_old_file_is_refused(folder: Path) -> None:
    """That all of the above load is worth something only if verification still happens."""
    path = folder / "pretrained/final/model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        litebert.load(folder / "pretrained/final")
