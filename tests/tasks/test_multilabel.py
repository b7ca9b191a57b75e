"""Multi-label classification, from rows of a file to scores: each label is predicted by itself."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics
import torch
import torchmetrics.functional as reference
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from litebert.errors import ConfigError, DataError
from litebert.model.batch import DeviceBatch
from litebert.tasks.encode.encode import encode
from litebert.tasks.examples import TextExample
from litebert.tasks.heads.heads import HEADS, average, predict, task_losses
from litebert.tasks.predictions import (
    MultiLabelPrediction,
    load_predictions,
    save_predictions,
)
from litebert.tasks.registry import TableOptions, open_task
from litebert.tasks.scores.baselines import bag_of_words, majority, word_features
from litebert.tasks.scores.evaluation import evaluate, worst
from litebert.tasks.scores.score import score
from litebert.tasks.task import Task, TaskCard, TaskData
from litebert.text.tokenizer import Tokenizer
from tests.helpers.task_examples import made_model

LABELS = ("a", "b", "c")
TASK = Task(
    name="classify",
    kind="classify",
    scores=("micro_f1", "macro_f1", "subset_accuracy"),
    labels=LABELS,
    head="multilabel",
)


def label_sets(size: int, seed: int = 0) -> list[tuple[str, ...]]:
    draw = np.random.default_rng(seed)
    return [tuple(label for label in LABELS if draw.random() < 0.4) for _ in range(size)]


def made(size: int = 60) -> list[TextExample]:
    """Texts that name most of their labels."""
    draw = np.random.default_rng(1)
    return [
        TextExample(
            key=str(number),
            first=" ".join([f"l{label}" for label in labels if draw.random() < 0.8] + ["word"]),
            label=labels,
        )
        for number, labels in enumerate(label_sets(size))
    ]


def guesses(size: int = 60) -> list[MultiLabelPrediction]:
    draw = np.random.default_rng(2)
    return [
        MultiLabelPrediction(
            probabilities={
                label: float(np.clip((label in labels) * 0.6 + draw.random() * 0.6, 0, 1))
                for label in LABELS
            }
        )
        for labels in label_sets(size)
    ]


def write_csv(path: Path, cells: list[str]) -> Path:
    path.write_text("text,label\n" + "".join(f"row {n},{cell}\n" for n, cell in enumerate(cells)))
    return path


def write_jsonl(path: Path, labels: list[object]) -> Path:
    path.write_text(
        "".join(json.dumps({"text": f"row {n}", "label": x}) + "\n" for n, x in enumerate(labels))
    )
    return path


def labels_of(data: TaskData) -> set[object]:
    return {example.label for examples in data.splits.values() for example in examples}  # type: ignore[union-attr]


CELLS = ["a", "b", "a;b", "b; a", "c"] * 4


@pytest.mark.parametrize(
    ("cells", "separator", "head", "labels"),
    [
        (CELLS, "auto", "multilabel", ("a", "b", "c")),
        ([cell.replace(";", "|") for cell in CELLS], "auto", "multilabel", ("a", "b", "c")),
        (CELLS, "none", "classify", ("a", "a;b", "b", "b; a", "c")),
        (["x;y", "y;z", "x;y"] * 4, "auto", "classify", ("x;y", "y;z")),
        (["x;y", "y;z", "x;y"] * 4, ";", "multilabel", ("x", "y", "z")),
        (["x y", "y", "x y"] * 4, " ", None, ()),
        (["x/y", "y"] * 4, "/", "multilabel", ("x", "y")),
        (["a", "b"] * 4, "auto", "classify", ("a", "b")),
        (['"[""a"", ""b""]"', "[]", "a"] * 4, "auto", "multilabel", ("a", "b")),
    ],
)
def test_cells_are_split_where_their_labels_also_stand_alone(
    tmp_path: Path, cells: list[str], separator: str, head: str | None, labels: tuple[str, ...]
) -> None:
    path = write_csv(tmp_path / "a.csv", cells)
    if head is None:
        with pytest.raises(ConfigError, match="label_separator is a text"):
            TableOptions(label_separator=separator)
        return
    data = open_task("classify", path, options=TableOptions(label_separator=separator))
    assert (data.task.head, data.task.labels) == (head, labels)
    noted = any("several labels" in note for note in data.notes)
    assert noted == (head == "multilabel")
    if head == "multilabel":
        assert data.task.scores == ("micro_f1", "macro_f1", "subset_accuracy")


def test_a_note_tells_how_to_split_what_was_left_whole(tmp_path: Path) -> None:
    data = open_task("classify", write_csv(tmp_path / "a.csv", ["a", "a;b", "c"] * 4))
    assert data.task.head == "classify"
    assert any("'b' never stands alone; --label-separator ';' splits" in n for n in data.notes)


def test_lists_are_several_labels_unless_each_has_one(tmp_path: Path) -> None:
    several = open_task(
        "classify", write_jsonl(tmp_path / "a.jsonl", [["b", "a", "b"], [], "a"] * 4)
    )
    assert several.task.head == "multilabel"
    assert labels_of(several) == {("b", "a"), (), ("a",)}
    single = open_task("classify", write_jsonl(tmp_path / "b.jsonl", [["a"], ["b"], "a"] * 4))
    assert single.task.head == "classify"
    assert labels_of(single) == {"a", "b"}
    numbers = open_task("classify", write_jsonl(tmp_path / "c.jsonl", [[1, 10], [2], [10]] * 4))
    assert numbers.task.labels == ("1", "2", "10")


def test_other_splits_follow_train(tmp_path: Path) -> None:
    write_csv(tmp_path / "train.csv", CELLS)
    write_csv(tmp_path / "dev.csv", ["a", "c;a"])
    data = open_task("classify", tmp_path)
    assert [example.label for example in data.splits["dev"]] == [("a",), ("c", "a")]  # type: ignore[union-attr]
    write_csv(tmp_path / "dev.csv", ["a;z"])
    with pytest.raises(DataError, match="the label 'z' is unknown; known are: a, b, c"):
        open_task("classify", tmp_path)


def test_a_model_tells_what_its_rows_hold(tmp_path: Path) -> None:
    """A single file is scored by the model's labels, whatever occurs in it."""
    path = write_csv(tmp_path / "a.csv", ["a|b", "a"])
    options = TableOptions(labels=LABELS, dev_fraction=0)
    several = open_task("classify", path, options=options, splits=["train"], head="multilabel")
    assert [example.label for example in several.splits["train"]] == [("a", "b"), ("a",)]  # type: ignore[union-attr]
    with pytest.raises(DataError, match=r"the label 'a\|b' is unknown"):
        open_task("classify", path, options=options, splits=["train"], head="classify")
    lists = write_jsonl(tmp_path / "a.jsonl", [["a", "b"], ["a"]])
    with pytest.raises(DataError, match="the row has 2 labels"):
        open_task("classify", lists, options=options, splits=["train"], head="classify")


def test_what_cannot_be_learned_from(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="all rows have the same labels"):
        open_task("classify", write_jsonl(tmp_path / "a.jsonl", [["a", "b"], ["b", "a"]] * 4))
    with pytest.raises(DataError, match="a list with an empty label"):
        open_task("classify", write_jsonl(tmp_path / "b.jsonl", [["a", ""], ["b"]] * 4))


def test_scores_equal_scikit_learn_and_torchmetrics() -> None:
    examples, predictions = made(), guesses()
    true = np.array([[label in each.labels() for label in LABELS] for each in examples])
    guessed = np.array([[label in each.labels for label in LABELS] for each in predictions])
    scores = score(TASK, examples, predictions)
    assert scores["micro_f1"] == pytest.approx(
        sklearn.metrics.f1_score(true, guessed, average="micro"), abs=1e-12
    )
    assert scores["macro_f1"] == pytest.approx(
        sklearn.metrics.f1_score(true, guessed, average="macro"), abs=1e-12
    )
    assert scores["subset_accuracy"] == sklearn.metrics.accuracy_score(true, guessed)
    for average_ in ("micro", "macro"):
        theirs = reference.f1_score(
            torch.from_numpy(guessed),
            torch.from_numpy(true),
            task="multilabel",
            num_labels=3,
            average=average_,
        )
        assert scores[f"{average_}_f1"] == pytest.approx(float(theirs), abs=1e-6)


def test_a_label_that_never_occurs_counts_as_in_scikit_learn() -> None:
    examples = [TextExample(key="1", first="", label=("a",))]
    right = [MultiLabelPrediction(probabilities={"a": 0.9, "b": 0.1, "c": 0.2})]
    none = [MultiLabelPrediction(probabilities={"a": 0.1, "b": 0.1, "c": 0.2})]
    assert score(TASK, examples, right) == {
        "micro_f1": 1,
        "macro_f1": pytest.approx(1 / 3),
        "subset_accuracy": 1,
    }
    silent = [replace(examples[0], label=())]
    assert score(TASK, silent, none) == {"micro_f1": 0, "macro_f1": 0, "subset_accuracy": 1}


def test_an_evaluation_has_intervals_slices_and_the_worst() -> None:
    examples, predictions = made(), guesses()
    actual = evaluate(TASK, examples, predictions, samples=50)
    for name, (low, high) in actual.intervals.items():
        assert low <= actual.scores[name] <= high
    assert {part.name for part in actual.slices["truth"]} <= {
        "0 labels",
        "1 label",
        "2 labels",
        "3 labels",
    }
    assert json.loads(json.dumps(actual.to_dict()))["scores"] == actual.scores
    example = TextExample(key="1", first="", label=("a", "b"))
    prediction = MultiLabelPrediction(probabilities={"a": 0.9, "b": 0.2, "c": 0.6})
    (wrong,) = worst(TASK, [example], [prediction])
    assert (wrong.weight, wrong.true, wrong.predicted) == (0.8, "a, b", "a (90%), c (60%)")
    assert worst(TASK, [replace(example, label=("a", "c"))], [prediction]) == []


def test_baselines() -> None:
    train, dev = made(60), made(20)
    (first, *_) = predicted = majority(TASK, train, dev)
    assert all(each == first for each in predicted)
    assert isinstance(first, MultiLabelPrediction)
    frequent = max(LABELS, key=lambda label: sum(label in each.labels() for each in train))
    assert first.labels == (frequent,)
    always = [replace(each, label=("a", "b")) for each in train]
    (first, *_) = majority(TASK, always, dev)
    assert isinstance(first, MultiLabelPrediction)
    assert first.labels == ("a", "b")
    rows = DictVectorizer().fit([word_features(each) for each in train])
    targets = [[int(label in each.labels()) for label in LABELS] for each in train]
    theirs = OneVsRestClassifier(LogisticRegression(C=1.0, tol=1e-8, max_iter=1000)).fit(
        rows.transform([word_features(each) for each in train]), np.array(targets)
    )
    expected = theirs.predict_proba(rows.transform([word_features(each) for each in dev]))
    ours = [list(each.probabilities.values()) for each in bag_of_words(TASK, train, dev)]  # type: ignore[union-attr]
    assert np.array(ours) == pytest.approx(expected, abs=1e-3)
    chance, words = (
        score(TASK, dev, guess(TASK, train, dev)) for guess in (majority, bag_of_words)
    )
    assert words["micro_f1"] > chance["micro_f1"]


def test_the_loss_is_the_mean_binary_cross_entropy(tokenizer: Tokenizer) -> None:
    """Over all labels of all examples, as Hugging Face's problem_type has it."""
    card, examples = TaskCard(task=TASK, max_length=16), made(8)
    model = made_model(card, tokenizer).eval()
    inputs = encode(card, examples, tokenizer)
    assert inputs.targets is not None
    assert inputs.targets.dtype == np.float32
    assert torch.from_numpy(inputs.targets).dtype == HEADS["multilabel"].dtype
    batch = inputs.batch(np.arange(8))
    sums = task_losses(model, DeviceBatch.of(batch.padded()))
    probabilities = np.array(
        [list(each.probabilities.values()) for each in predict(model, card, examples, tokenizer)]  # type: ignore[union-attr]
    )
    expected = -np.log(np.where(inputs.targets == 1, probabilities, 1 - probabilities)).mean()
    assert float(sums.loss.detach()) / 8 == pytest.approx(expected, rel=1e-5)
    right = ((probabilities >= 0.5) == inputs.targets.astype(bool)).all(1).sum()
    assert float(sums.correct) == right


def test_a_threshold_decides(tokenizer: Tokenizer) -> None:
    card = TaskCard(task=TASK, max_length=16, label_threshold=0.0)
    model = made_model(card, tokenizer)
    (every,) = predict(model, card, made(1), tokenizer)
    (none,) = predict(model, replace(card, label_threshold=1.0), made(1), tokenizer)
    assert isinstance(every, MultiLabelPrediction)
    assert isinstance(none, MultiLabelPrediction)
    assert (every.labels, none.labels) == (LABELS, ())
    assert every.probabilities == none.probabilities


def test_the_card_keeps_its_threshold_and_others_have_none() -> None:
    card = TaskCard(task=TASK, max_length=16, label_threshold=0.3)
    assert TaskCard.from_dict(json.loads(json.dumps(card.to_dict()))) == card
    single = replace(card, task=replace(TASK, head="classify", scores=("accuracy",)))
    assert "label_threshold" not in single.to_dict()
    with pytest.raises(ConfigError, match="regress is answered by a regress head; got multilabel"):
        TaskCard(task=replace(TASK, kind="regress", labels=()), max_length=16)


def test_predictions_of_a_file_and_of_several_models(tmp_path: Path) -> None:
    examples, predictions = made(5), guesses(5)
    save_predictions(tmp_path / "p.jsonl", TASK, examples, predictions)
    assert load_predictions(tmp_path / "p.jsonl") == (TASK, examples, predictions)
    one = MultiLabelPrediction(probabilities={"a": 0.9, "b": 0.1, "c": 0.5})
    other = MultiLabelPrediction(probabilities={"a": 0.3, "b": 0.2, "c": 0.4})
    (mean,) = average(TASK, [[one], [other]])
    assert isinstance(mean, MultiLabelPrediction)
    assert mean.probabilities == pytest.approx({"a": 0.6, "b": 0.15, "c": 0.45})
    assert mean.labels == ("a",)
