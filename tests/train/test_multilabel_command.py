"""Several labels a row, through the command line: finetune, evaluate, classify, predict, convert,
and the same from Python and in transformers."""

import csv
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import litebert
from litebert import cli
from litebert.tasks.predictions import MultiLabelPrediction
from tests.helpers.finetuning import source

WORDS = {"sea": "the whale sees a wave", "farm": "the goat sees a barn", "sky": "the pilot flies"}
QUICK = ["--max-length", "32", "--device", "cpu", "--epochs", "6", "--retries", "0"]


def rows(count: int) -> list[tuple[str, list[str]]]:
    draw = random.Random(0)
    chosen = [draw.sample(sorted(WORDS), draw.randint(1, 2)) for _ in range(count)]
    return [
        (" . ".join(shuffled(WORDS[label], draw) for label in labels), labels) for labels in chosen
    ]


def shuffled(text: str, draw: random.Random) -> str:
    """Equal texts would stay on one side of the cut between train and dev."""
    words = text.split()
    return " ".join(draw.sample(words, len(words)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fine-tuned run, and the files it was made of."""
    folder = tmp_path_factory.mktemp("several")
    source().save(folder / "model")
    with (folder / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [("text", "label"), *((text, "; ".join(labels)) for text, labels in rows(120))]
        )
    args = ["--model", str(folder / "model"), "--data", str(folder / "rows.csv")]
    assert cli.run(["finetune", "classify", *args, "--out", str(folder / "run"), *QUICK]) == 0
    return folder


def test_it_learns_and_says_what_it_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--model", str(folder / "run"), "--data", str(folder / "rows.csv")]
    assert cli.run(["evaluate", "classify", *args, "--baselines", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["scores"].keys() == {"micro_f1", "macro_f1", "subset_accuracy"}
    low, high = result["intervals"]["micro_f1"]
    assert low <= result["scores"]["micro_f1"] <= high
    assert result["scores"]["micro_f1"] > result["baselines"]["majority"]["micro_f1"]
    card = json.loads((folder / "run" / "final" / "task.json").read_text())
    assert (card["task"]["head"], card["label_threshold"]) == ("multilabel", 0.5)
    assert card["task"]["labels"] == ["farm", "sea", "sky"]
    assert cli.run(["evaluate", "classify", *args, "--baselines"]) == 0
    captured = capsys.readouterr()
    assert "rows have several labels" in captured.err
    assert "subset accuracy" in captured.out


def test_classify_prints_every_label_and_its_probability(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = " . ".join([WORDS["sea"], WORDS["sky"]])
    assert cli.run(["classify", "--model", str(folder / "run"), text, "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    prediction = litebert.load(folder / "run").classify(text)
    assert isinstance(prediction, MultiLabelPrediction)
    assert answer["labels"] == list(prediction.labels)
    assert answer["probabilities"] == pytest.approx(prediction.probabilities, abs=1e-5)
    assert cli.run(["classify", "--model", str(folder / "run"), text]) == 0
    assert ", ".join(prediction.labels) in capsys.readouterr().out


def test_predictions_of_a_file(folder: Path, tmp_path: Path) -> None:
    args = ["predict", "--model", str(folder / "run"), str(folder / "rows.csv")]
    assert cli.run([*args, "--out", str(tmp_path / "a.jsonl"), "--keep", "label"]) == 0
    assert cli.run([*args, "--out", str(tmp_path / "a.csv"), "--keep", "label"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    with (tmp_path / "a.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    for line, row in zip(lines, table, strict=True):
        assert ";".join(line["labels"]) == row["labels"]
        assert line["label"] == row["label"]
        for label, probability in line["probabilities"].items():
            assert float(row[f"probability:{label}"]) == probability
            assert (label in line["labels"]) == (probability >= 0.5)


def test_it_is_the_same_model_in_transformers(folder: Path, tmp_path: Path) -> None:
    model = transformers.AlbertForSequenceClassification(
        transformers.AlbertConfig(
            vocab_size=source().model.config.encoder.vocab_size,
            hidden_size=32,
            embedding_size=16,
            num_attention_heads=2,
            intermediate_size=64,
            num_labels=3,
            problem_type="multi_label_classification",
            id2label={0: "farm", 1: "sea", 2: "sky"},
        )
    ).eval()
    model.save_pretrained(tmp_path / "theirs")
    (tmp_path / "theirs" / "spiece.model").write_bytes(
        (folder / "model" / "spiece.model").read_bytes()
    )
    text = WORDS["sea"]
    predictor = litebert.load(tmp_path / "theirs")
    ours = predictor.classify(text)
    assert isinstance(ours, MultiLabelPrediction)
    ids = torch.from_numpy(np.array(predictor.tokenizer.encode(text)))
    special = predictor.tokenizer
    row = torch.cat([torch.tensor([special.cls_id]), ids, torch.tensor([special.sep_id])])[None]
    with torch.no_grad():
        theirs = model(input_ids=row).logits.sigmoid()[0]
    assert list(ours.probabilities.values()) == pytest.approx(theirs.tolist(), abs=1e-5)
