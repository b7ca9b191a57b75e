"""--minutes: a run saves and stops at its time limit, and the same command ends where an
uninterrupted run does."""

import itertools
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file

from litebert import cli
from litebert.testing import tiny_task
from litebert.train import folder, runtime
from tests.helpers.finetuning import source
from tests.helpers.launch import FLAGS


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """The command line takes SIGTERM over; give it back."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second passes at each look."""
    seconds = itertools.count()
    monkeypatch.setattr(runtime, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))


def run(*words: object) -> int:
    return cli.run([str(word) for word in words])


def weights(run_folder: Path) -> dict[str, list[float]]:
    return {
        name: tensor.flatten().tolist()
        for name, tensor in load_file(run_folder / "final" / "model.safetensors").items()
    }


def test_pretraining_stops_at_its_limit_and_the_same_command_resumes(
    shards: Path, tmp_path: Path, clock: None, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["pretrain", "--data", shards, *FLAGS, "--workers", "0", "--threads", "1"]
    assert run(*command, "--out", tmp_path / "whole") == 0
    limited = [*command, "--out", tmp_path / "parts", "--minutes", "0.3"]
    assert run(*limited) == 75
    message = " ".join(capsys.readouterr().err.split())
    assert "of 12; saved, the same command resumes it" in message
    assert json.loads((tmp_path / "parts" / "status.json").read_text())["state"] == "interrupted"
    codes = [75]
    while codes[-1] == 75 and len(codes) < 12:
        codes.append(run(*limited))
    assert codes[-1] == 0
    assert len(codes) > 2
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")


@pytest.mark.parametrize("task", ["rte", "embed"])
def test_fine_tuning_stops_at_its_limit(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = source().save(tmp_path / "model")
    data = tiny_task(tmp_path / "rte", "rte")
    if task == "embed":
        data = tmp_path / "texts.txt"
        data.write_text("the whale sees a ship .\na ship sails .\n" * 4)
    command = ["finetune", task, "--model", model, "--data", data, "--out", tmp_path / "run"]
    command += ["--device", "cpu", "--max-length", "32", "--epochs", "1", "--evaluations", "1"]
    assert run(*command, "--minutes", "1e-6") == 75
    assert "interrupted at step 0 of" in capsys.readouterr().err
    assert run(*command) == 0


def test_minutes_are_a_number_above_zero(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["pretrain", "--data", shards, "--out", tmp_path / "run", *FLAGS]
    assert run(*command, "--minutes", "0") == 2
    assert "minutes is a number above 0, or none for no limit; got 0" in capsys.readouterr().err


def test_the_revision_of_a_copy_without_history_may_be_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "__file__", str(tmp_path / "src/litebert/train/folder.py"))
    monkeypatch.delenv("LITEBERT_REVISION", raising=False)
    assert folder.environment()["revision"] is None
    monkeypatch.setenv("LITEBERT_REVISION", "3fd1a20")
    assert folder.environment()["revision"] == "3fd1a20"
