"""litebert evaluate --exit: score, depth and time of early exit on labelled files, with every
engine; the curve for the report; and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from litebert import cli
from litebert.infer.exit_scores import score_exits
from litebert.infer.export.folder import ExportOptions, export_folder
from litebert.infer.predictor import load
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.decode.exits import CRITERIA, ExitRule
from litebert.tasks.examples import TextExample
from tests.helpers.models import LABELS, texts
from tests.infer.test_exits import card_of, checkpoint_of

NUMBERS = ("score", "lost", "changed", "mean_depth", "layers_saved", "seconds", "times_faster")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return checkpoint_of(tmp_path, "classify", "each").save(tmp_path / "model")


@pytest.fixture
def data(model: Path, tmp_path: Path) -> Path:
    """Texts with the labels that the full depth predicts, but for every sixth."""
    labels = [each.label for each in load(model, device="cpu").classify(texts(48))]
    wrong = {labels[n]: labels[n - 1] for n in range(1, 48) if labels[n] != labels[n - 1]}
    rows = [
        {"text": text, "label": label if number % 6 else wrong[label]}
        for number, (text, label) in enumerate(zip(texts(48), labels, strict=True))
    ]
    path = tmp_path / "dev.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def evaluate(capsys: pytest.CaptureFixture[str], *flags: object) -> dict[str, Any]:
    capsys.readouterr()
    command = ["evaluate", "classify", *map(str, flags), "--json", "--samples", "100"]
    assert cli.run(command) == 0, capsys.readouterr().err
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


@pytest.mark.parametrize("engine", ["torch", "onnx", "openvino"])
def test_a_rule_is_scored_beside_all_layers(
    model: Path, data: Path, engine: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = model
    if engine != "torch":
        source = tmp_path / "exported"
        checkpoint = checkpoint_of(tmp_path / "again", "classify", "each")
        export_folder(checkpoint, source, ExportOptions(runtime=engine))
    flags = ["--model", source, "--data", data, "--device", "cpu"]
    full = evaluate(capsys, *flags)
    assert "exits" not in full
    result = evaluate(capsys, *flags, "--exit", "confidence", "--threshold", 0.45)
    exits = result["exits"]
    assert (exits["score"], exits["layers"]) == (full["scores"]["accuracy"], 4)
    (row,) = exits["rows"]
    early = load(source, device="cpu", exit="confidence", threshold=0.45).classify(texts(48))
    every = load(source, device="cpu").classify(texts(48))
    depths = [each.depth for each in early]
    assert row["mean_depth"] == sum(depths) / 48 < 4  # type: ignore[arg-type]
    assert row["layers_saved"] == 4 / row["mean_depth"]
    assert row["changed"] == sum(a.label != b.label for a, b in zip(early, every, strict=True)) / 48  # type: ignore[union-attr]
    assert row["lost"] == pytest.approx(exits["score"] - row["score"])
    assert result["scores"]["accuracy"] == row["score"]  # predictions are those of early exit
    for name in ("score", "lost", "mean_depth", "layers_saved"):
        low, high = row[f"{name}_interval"]
        assert low <= row[name] <= high
    assert row["times_faster"] == exits["seconds"] / row["seconds"]


def test_all_criteria_side_by_side_and_their_curves(
    model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--model", model, "--data", data, "--device", "cpu"]
    result = evaluate(capsys, *flags, "--exit", "all", "--curve", tmp_path / "exits.json")
    assert [row["criterion"] for row in result["exits"]["rows"]] == ["confidence"]  # calibrated
    assert all(type(result["exits"]["rows"][0][name]) in (int, float) for name in NUMBERS)
    curve = json.loads((tmp_path / "exits.json").read_text())
    assert set(curve["curves"]) == {"patience", "confidence", "cumulative"}
    points = curve["curves"]["confidence"]
    assert len({(each["mean_depth"], each["score"]) for each in points}) == len(points) >= 2
    assert all(each["seconds"] > 0 for each in points)
    capsys.readouterr()
    command = ["evaluate", "classify", *map(str, flags), "--exit", "all", "--samples", "10"]
    assert cli.run(command) == 0
    shown = capsys.readouterr().out
    assert "all layers" in shown
    assert "confidence 0.6" in shown


def test_a_model_without_thresholds_has_a_curve(
    model: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = Checkpoint.load(model)
    bare = replace(checkpoint, task=card_of("classify").to_dict()).save(tmp_path / "bare")
    flags = ["--model", bare, "--data", data, "--device", "cpu", "--exit", "all"]
    result = evaluate(capsys, *flags, "--curve", tmp_path / "exits.json")
    assert result["exits"]["rows"] == []
    assert set(json.loads((tmp_path / "exits.json").read_text())["curves"]) == set(CRITERIA)
    command = ["evaluate", "classify", *map(str, flags), "--samples", "10"]
    assert cli.run(command) == 0
    assert "no calibrated threshold to score; name one with --exit" in capsys.readouterr().err


def test_no_graph_is_loaded_while_a_rule_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_folder(checkpoint_of(tmp_path, "classify", "each"), tmp_path / "out")
    predictor = load(tmp_path / "out")
    assert predictor.card is not None
    card, session = predictor.card, onnxruntime.InferenceSession
    loaded, after = 0, []

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal loaded
        loaded += 1
        return session(*arguments, **named)

    def predict(examples: Any) -> Any:
        predictions = predictor.engine.predict(card, examples)
        after.append(loaded)
        return predictions

    monkeypatch.setattr(onnxruntime, "InferenceSession", counted)
    rows = [
        TextExample(key=str(n), first=text, label=LABELS[n % 2]) for n, text in enumerate(texts(8))
    ]
    rules = [ExitRule(criterion="patience", threshold=threshold) for threshold in (9.0, 1.0)]
    score_exits(predictor, card.task, rows, rules, predict=predict, samples=10)
    # two runs that are not timed, all layers twice, two rules
    assert len(after) == 6
    assert after[0] < after[1] == after[-1] == loaded


def test_a_split_without_labels_is_predicted_and_not_scored(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "rows"
    data.mkdir()
    for split, row in (("train", {"text": "a", "label": LABELS[0]}), ("test", {"text": "a fox"})):
        (data / f"{split}.jsonl").write_text(json.dumps(row) + "\n")
    curve, out = tmp_path / "exits.json", tmp_path / "p.jsonl"
    flags = ["--model", model, "--data", data, "--split", "test", "--out", out, "--curve", curve]
    assert cli.run(["evaluate", "classify", *map(str, flags), "--exit", "all"]) == 0
    assert "test has no labels, so that early exit is not scored" in capsys.readouterr().err
    assert out.exists()
    assert not curve.exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--exit", "all", "--threshold", "0.5"], "--exit all names them all; got 0.5"),
        (["--exit", "patience"], "(there are: confidence); give one, such as --threshold 4"),
        (["--threshold", "0.5"], "--threshold and --curve are of early exit; add --exit all"),
        (["--curve", "x.json"], "--threshold and --curve are of early exit; add --exit all"),
    ],
)
def test_what_makes_no_sense_is_refused(
    model: Path, data: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", "classify", "--model", str(model), "--data", str(data), *flags]
    assert cli.run(command) == 2
    assert message in capsys.readouterr().err


def test_a_model_without_exits_is_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = checkpoint_of(tmp_path / "plain", "classify", "none").save(tmp_path / "plain" / "model")
    command = ["evaluate", "classify", "--model", str(plain), "--data", str(data)]
    assert cli.run([*command, "--exit", "all"]) == 2
    assert "this model has no exits" in capsys.readouterr().err
