"""finetune --calibrate: the temperature is chosen on text kept aside, stored with the model, and
changes probabilities and no answer."""

import csv
import json
import random
from pathlib import Path

import numpy as np
import pytest

from litebert import cli
from litebert.infer.predictor import load
from litebert.storage.checkpoint import Checkpoint
from tests.helpers.finetuning import HEROES, THINGS, source

QUICK = ["--device", "cpu", "--max-length", "32", "--evaluations", "1", "--patience", "0"]
WORDS = ("old", "sees", "the", "leaves", "then")


def write(path: Path, count: int, draw: random.Random) -> None:
    """Texts of two worlds; one label in four is wrong, so that certainty is never right."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        for _ in range(count):
            world = draw.choice(["sea", "farm"])
            noise = " ".join(draw.choice(WORDS) for _ in range(6))
            text = f"the {draw.choice(HEROES[world])} sees {draw.choice(THINGS[world])} . {noise}"
            label = world if draw.random() < 0.75 else {"sea": "farm", "farm": "sea"}[world]
            rows.writerow([text, label])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calibrate")
    draw = random.Random(0)
    source().save(path / "model")
    for split, count in (("train", 400), ("dev", 200)):
        write(path / f"{split}.csv", count, draw)
    return path


def finetune(folder: Path, out: Path, *more: str) -> int:
    command = ["finetune", "classify", "--model", folder / "model", "--data", folder]
    command += ["--out", out, "--epochs", "12", "--batch-size", "16", "--learning-rate", "5e-3"]
    return cli.run([*map(str, command), *QUICK, *more])


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    assert finetune(folder, folder / "run", "--calibrate") == 0
    return folder / "run"


def test_the_temperature_is_stored_and_applied(run: Path, tmp_path: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    card = json.loads((run / "final" / "task.json").read_text())
    assert card["temperature"] == result["temperature"]
    assert abs(result["temperature"] - 1) > 0.05
    assert result["train_examples"] == pytest.approx(360, abs=20)
    calibrated = load(run, device="cpu")
    stored = Checkpoint.load(run / "final")
    assert stored.task is not None
    plain = dict(stored.task)
    del plain["temperature"]
    Checkpoint(model=stored.model, tokenizer=stored.tokenizer, task=plain).save(tmp_path / "plain")
    texts = ["the whale sees a ship .", "old leaves then the barn"]
    with_t = calibrated.classify(texts)
    without = load(tmp_path / "plain", device="cpu").classify(texts)
    for here, there in zip(with_t, without, strict=True):
        assert here.label == there.label
        first, second = (np.log(list(each.probabilities.values())) for each in (there, here))
        assert (first[0] - first[1]) / result["temperature"] == pytest.approx(
            second[0] - second[1], rel=1e-3
        )


def test_evaluate_prints_the_error_and_its_bins(
    run: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", "classify", "--model", str(run), "--data", str(folder)]
    assert cli.run([*command, "--json", "--device", "cpu"]) == 0
    calibration = json.loads(capsys.readouterr().out)["calibration"]
    result = json.loads((run / "result.json").read_text())
    assert calibration["error"] == pytest.approx(result["calibration_error"], abs=1e-4)
    assert sum(each["num_examples"] for each in calibration["bins"]) == 200
    assert cli.run([*command, "--device", "cpu"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"expected calibration error {100 * calibration['error']:.1f} confidence mean" in shown


def test_what_cannot_be_calibrated_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.csv").write_text("text,score\n" + "the whale,1\na ship,2\n" * 9)
    (tmp_path / "dev.csv").write_text("text,score\nthe whale,1\na ship,2\n")
    command = ["finetune", "regress", "--model", str(folder / "model"), "--data", str(tmp_path)]
    command += ["--out", str(tmp_path / "run"), *QUICK, "--epochs", "1", "--calibrate"]
    assert cli.run(command) == 2
    message = "--calibrate is for tasks with one label for each example; regress has none"
    assert message in " ".join(capsys.readouterr().err.split())


def test_too_few_examples_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split in ("train", "dev"):
        (tmp_path / f"{split}.csv").write_text("text,label\nthe whale,a\nthe whale,b\n")
    command = ["finetune", "classify", "--model", folder / "model", "--data", tmp_path]
    command += ["--out", tmp_path / "run", *QUICK, "--epochs", "1", "--calibrate"]
    assert cli.run(list(map(str, command))) == 3
    message = "--calibrate keeps a tenth of train aside, and there are too few examples for that"
    assert message in " ".join(capsys.readouterr().err.split())
