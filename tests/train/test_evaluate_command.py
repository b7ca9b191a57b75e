"""litebert evaluate and ensemble: what they print is what scores say, files are handed in, misuse
is answered in one line."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from litebert import cli
from litebert.config import PRESETS, HeadConfig, ModelConfig
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.heads.heads import average
from litebert.tasks.predictions import load_predictions
from litebert.tasks.registry import open_task
from litebert.tasks.scores.baselines import bag_of_words, majority
from litebert.tasks.scores.score import score
from litebert.tasks.task import TaskCard
from litebert.testing import SHAPE, tiny_task, tiny_tokenizer
from litebert.text.tokenizer import Tokenizer
from litebert.train.evaluate import FinetunedModel


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def tuned(folder: Path, name: str, data: Path, tokenizer: Tokenizer, *, seed: int = 0) -> Path:
    """A checkpoint that answers for a task, with random weights far from zero."""
    read = open_task(name, data, splits=("dev",))
    task = read.task
    torch.manual_seed(seed)
    encoder = replace(
        PRESETS["albert-base-v2"], vocab_size=tokenizer.vocab_size, init_std=0.2, **dict(SHAPE)
    )
    model = Model(
        ModelConfig(encoder=encoder, heads=(HeadConfig(kind=task.head, labels=task.labels),))
    )
    card = TaskCard(
        task=task,
        max_length=48,
        stride=16,
        null_threshold=0.0 if task.has_null else None,
        stratified=read.stratified,
    )
    Checkpoint(model=model, tokenizer=tokenizer, task=card.to_dict()).save(folder)
    return folder


def ran(capsys: pytest.CaptureFixture[str], *args: object, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert cli.run([str(arg) for arg in args]) == code, capsys.readouterr().err
    captured = capsys.readouterr()
    return captured.out, captured.err


@pytest.mark.parametrize("name", ["cola", "stsb", "mnli", "squad2", "race", "classify", "tag"])
def test_evaluate_says_what_the_model_is_worth(
    name: str, tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tiny_task(tmp_path / "data", name)
    model = tuned(tmp_path / "model", name, data, tokenizer)
    kept = tmp_path / "new" / "kept.jsonl"
    out, _ = ran(
        capsys,
        "evaluate",
        name,
        "--model",
        model,
        "--data",
        data,
        "--samples",
        50,
        "--out",
        kept,
        "--baselines",
        "--json",
    )
    facts = json.loads(out)
    read = open_task(name, data, splits=("train", "dev"))
    train, dev = read.splits["train"], read.splits["dev"]
    said = FinetunedModel.load(model).predict(dev)
    assert facts["scores"] == pytest.approx(score(read.task, dev, said))
    assert facts["num_examples"] == len(dev)
    assert facts["baselines"]["majority"] == pytest.approx(
        score(read.task, dev, majority(read.task, train, dev))
    )
    assert facts["baselines"]["bag of words"] == pytest.approx(
        score(read.task, dev, bag_of_words(read.task, train, dev))
    )
    assert load_predictions(kept)[1] == list(dev)
    assert ("best_threshold" in facts) == read.task.has_null
    assert facts.get("best_f1", 1) >= facts["scores"].get("f1", 0)
    words = ["evaluate", name, "--model", model, "--data", data, "--samples", 50, "--threads", 2]
    shown, notes = ran(capsys, *words)
    assert "computing with 2 threads (as requested)" in notes
    first = read.task.scores[0]
    assert f"{100 * facts['scores'][first]:.1f}" in shown
    assert "95 % interval" in shown
    assert "most confidently wrong" in shown


def test_a_benchmarks_numbers_are_the_names_that_a_model_has_for_them(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    """SST-2's 0 and 1 are negative and positive; other names, and own files, are not guessed."""
    data = tiny_task(tmp_path / "data", "sst2")
    plain = tuned(tmp_path / "plain", "sst2", data, tokenizer)

    def renamed(name: str, labels: tuple[str, str]) -> Path:
        checkpoint = Checkpoint.load(plain)
        assert checkpoint.task is not None
        card = TaskCard.from_dict(checkpoint.task)
        model = Model(
            replace(checkpoint.model.config, heads=(HeadConfig(kind="classify", labels=labels),))
        )
        model.load_state_dict(checkpoint.model.state_dict())
        card = replace(card, task=replace(card.task, labels=labels))
        Checkpoint(model=model, tokenizer=tokenizer, task=card.to_dict()).save(tmp_path / name)
        return tmp_path / name

    expected = json.loads(
        ran(capsys, "evaluate", "sst2", "--model", plain, "--data", data, "--json")[0]
    )
    assert 0 < expected["scores"]["accuracy"] < 1  # so that swapped labels would be seen
    submission = tmp_path / "submission"
    command = ("evaluate", "sst2", "--data", data, "--model")
    model = renamed("named", ("negative", "positive"))
    out, err = ran(capsys, *command, model, "--json")
    named = json.loads(out)
    assert named["scores"] == expected["scores"]
    assert named["confusion"] == expected["confusion"]
    assert "labels of sst2: 0 is negative, 1 is positive" in err
    ran(capsys, *command, model, "--split", "test", "--submit", submission)
    lines = (submission / "SST-2.tsv").read_text().splitlines()[1:]
    assert {line.split("\t")[1] for line in lines} <= {"0", "1"}
    other = renamed("other", ("bad", "good"))
    _, err = ran(capsys, "evaluate", "sst2", "--model", other, "--data", data, code=2)
    assert "the labels of sst2 are '0', '1', those of the model" in err
    table = tmp_path / "own.csv"
    table.write_text("text,label\n" + "".join(f"x{n},{n % 2}\n" for n in range(30)))
    _, err = ran(
        capsys,
        *("evaluate", "classify", "--data", table, "--split", "train", "--bad-rows", "error"),
        *("--model", tmp_path / "named"),
        code=3,
    )
    assert "own.csv" in err


def test_the_confusion_matrix_is_printed(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tiny_task(tmp_path / "data", "mnli")
    model = tuned(tmp_path / "model", "mnli", data, tokenizer)
    counts = json.loads(
        ran(capsys, "evaluate", "mnli", "--model", model, "--data", data, "--json")[0]
    )["confusion"]
    out, _ = ran(capsys, "evaluate", "mnli", "--model", model, "--data", data)
    lines = [line.split() for line in out.splitlines()]
    assert ["true", "↓", "predicted", "→", *counts] in lines
    for label, row in counts.items():
        assert [label, *map(str, row.values())] in lines


def test_the_confusion_of_tags_counts_words_by_type_of_entity(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tiny_task(tmp_path / "data", "tag")
    model = tuned(tmp_path / "model", "tag", data, tokenizer)
    args = ("evaluate", "tag", "--model", model, "--data", data)
    counts = json.loads(ran(capsys, *args, "--json")[0])["confusion"]
    assert set(counts) == {"O", "hero", "thing"}
    words = [tag for example in open_task("tag", data).splits["dev"] for tag in example.tags]
    assert sum(counts["hero"].values()) == words.count("B-hero")
    assert sum(sum(row.values()) for row in counts.values()) == len(words)
    lines = [line.split() for line in ran(capsys, *args)[0].splitlines()]
    assert ["words,", "true", "↓", "predicted", "→", *counts] in lines
    assert ["hero", *map(str, counts["hero"].values())] in lines


def test_many_labels_are_listed_by_how_often_they_are_confused(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "t.csv"
    data.write_text("text,label\n" + "".join(f"word {n},label {n % 12:02}\n" for n in range(240)))
    model = tuned(tmp_path / "model", "classify", data, tokenizer)
    args = ("evaluate", "classify", "--model", model, "--data", data, "--split", "dev")
    out, _ = ran(capsys, *args)
    assert "true ↓" not in out
    match = re.search(r"most often confused\n  (\d+) of (label \d+) as (label \d+)\n", out)
    assert match
    counts = json.loads(ran(capsys, *args, "--json")[0])["confusion"]
    assert counts[match[2]][match[3]] == int(match[1])
    assert int(match[1]) == max(
        count for true, row in counts.items() for name, count in row.items() if name != true
    )


def test_brackets_and_colons_are_shown_as_they_are(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Labels, slices and paths are no markup, whatever they look like."""
    data = tmp_path / "t.csv"
    data.write_text(
        "text,label,slice\n"
        + "".join(f"x{n},{('[/no]', ':cat:')[n % 2]},[bold]{n % 3}\n" for n in range(60))
    )
    model = tuned(tmp_path / "[red]", "classify", data, tokenizer)
    out, _ = ran(
        capsys, "evaluate", "classify", "--model", model, "--data", data, "--dev-fraction", 0.5
    )
    shown = "".join(out.split())
    assert all(name in shown for name in ("[red]", "[/no]", ":cat:", "[bold]0"))


def test_test_is_handed_in(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A split without labels has no scores; a model of MNLI answers for the diagnostic set."""
    data = tiny_task(tmp_path / "data", "mnli")
    tiny_task(tmp_path / "data", "diagnostic")
    model = tuned(tmp_path / "model", "mnli", data, tokenizer)
    common = ("--model", model, "--data", data, "--split", "test")
    _, told = ran(capsys, "evaluate", "mnli", *common, code=2)
    remedy = "`litebert evaluate mnli` with --out FILE or --submit FOLDER writes its predictions"
    assert f"test of mnli has no labels to score by; {remedy}" in told
    out, told = ran(capsys, "evaluate", "mnli", *common, "--submit", tmp_path / "handed", "--json")
    assert json.loads(out)["submission"] == [str(tmp_path / "handed" / "MNLI-m.tsv")]
    assert "GLUE's server expects" in told
    _, told = ran(capsys, "evaluate", "diagnostic", *common, "--submit", tmp_path / "handed")
    assert "was fine-tuned on mnli, not on diagnostic" in told
    assert (tmp_path / "handed" / "AX.tsv").read_text().startswith("index\tprediction\n0\t")


@pytest.mark.parametrize("name", ["sst2", "stsb", "squad2", "race", "tag"])
def test_an_ensemble_stands_beside_its_models(
    name: str, tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tiny_task(tmp_path / "data", name)
    models = [tuned(tmp_path / f"m{seed}", name, data, tokenizer, seed=seed) for seed in range(3)]
    common = ("ensemble", name, "--models", *models, "--data", data)
    facts = json.loads(ran(capsys, *common, "--json", "--out", tmp_path / "kept.jsonl")[0])
    read = open_task(name, data, splits=("dev",))
    dev = read.splits["dev"]
    said = [FinetunedModel.load(model).predict(dev) for model in models]
    assert facts["singles"] == [pytest.approx(score(read.task, dev, each)) for each in said]
    assert facts["everyone"] == pytest.approx(score(read.task, dev, average(read.task, said)))
    chosen = [said[models.index(Path(member))] for member in facts["members"]]
    together = average(read.task, chosen)
    assert facts["scores"] == facts["together"] == pytest.approx(score(read.task, dev, together))
    task, examples, kept = load_predictions(tmp_path / "kept.jsonl")
    assert score(task, examples, kept) == pytest.approx(facts["scores"])
    shown, _ = ran(capsys, *common)
    assert "all 3 together" in shown
    assert re.search(r"\d chosen on dev", shown)
    all_of_them = json.loads(ran(capsys, *common, "--everyone", "--json")[0])
    assert all_of_them["members"] == [str(model) for model in models]
    assert all_of_them["scores"] == pytest.approx(facts["everyone"])


def test_an_ensemble_hands_in_test(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tiny_task(tmp_path / "data", "rte")
    models = [tuned(tmp_path / f"m{seed}", "rte", data, tokenizer, seed=seed) for seed in range(2)]
    ran(
        capsys,
        "ensemble",
        "rte",
        "--models",
        *models,
        "--data",
        data,
        "--submit",
        tmp_path / "handed",
        "--everyone",
    )
    read = open_task("rte", data, splits=("test",))
    said = average(
        read.task, [FinetunedModel.load(model).predict(read.splits["test"]) for model in models]
    )
    lines = (tmp_path / "handed" / "RTE.tsv").read_text().splitlines()[1:]
    assert [line.split("\t")[1] for line in lines] == [each.label for each in said]  # type: ignore[union-attr]


def test_misuse_is_answered_in_one_line(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tiny_task(tmp_path / "data", "mnli")
    for name in ("rte", "stsb"):
        tiny_task(tmp_path / "data", name)
    model = tuned(tmp_path / "model", "mnli", data, tokenizer)
    bare = Checkpoint.load(model)
    Checkpoint(model=bare.model, tokenizer=tokenizer).save(tmp_path / "bare")
    file = model / "config.json"
    wrong = [
        (
            ("evaluate", "rte", "--model", model),
            2,
            "the labels of rte are .*, those of the model in .* are 'contradiction'",
        ),
        (
            ("evaluate", "stsb", "--model", model),
            2,
            "stsb is a task of kind regress, the model in .* was fine-tuned on mnli",
        ),
        (
            ("evaluate", "mnli", "--model", tmp_path / "bare"),
            2,
            "answers for no task .*; run litebert finetune TASK first",
        ),
        (("evaluate", "mnli", "--model", tmp_path / "none"), 3, "there is no .*none"),
        (("evaluate", "mnl", "--model", model), 2, "there is no task 'mnl'; did you mean 'mnli'"),
        (("evaluate", "mnli", "--model", model, "--split", "deb"), 3, "mnli has no split 'deb'"),
        (("evaluate", "mnli", "--model", model, "--samples", 0), 2, "samples is a number from 1"),
        (
            ("ensemble", "mnli", "--models", model, "--split", "test"),
            2,
            "test of mnli has no labels to choose models by",
        ),
        (("ensemble", "mnli", "--models", model, tmp_path / "bare"), 2, "answers for no task"),
        (
            ("evaluate", "mnli", "--model", model, "--out", data),
            2,
            "data is a folder; --out is a file for the predictions",
        ),
        (
            ("evaluate", "mnli", "--model", model, "--out", file / "x"),
            3,
            r"x cannot be written \(.+\); choose another place",
        ),
        (
            ("evaluate", "mnli", "--model", model, "--out", file),
            2,
            "config.json exists and is not a file of predictions of litebert; name another",
        ),
        (
            ("evaluate", "mnli", "--model", model, "--exit", "all", "--curve", file),
            2,
            "config.json exists and is not a file of curves of litebert; name another",
        ),
        (
            ("ensemble", "mnli", "--models", model, "--out", file),
            2,
            "config.json exists and is not a file of predictions of litebert; name another",
        ),
        (
            ("ensemble", "mnli", "--models", model, "--out", data),
            2,
            "data is a folder; --out is a file for the predictions",
        ),
        (
            ("ensemble", "mnli", "--models", model, "--out", file / "x"),
            3,
            r"x cannot be written \(.+\); choose another place",
        ),
        (
            ("evaluate", "mnli", "--model", model, "--submit", file),
            2,
            "config.json is a file; --submit takes a folder",
        ),
        (
            ("ensemble", "mnli", "--models", model, "--submit", file),
            2,
            "config.json is a file; --submit takes a folder",
        ),
    ]
    for args, code, said in wrong:
        _, told = ran(capsys, *args, "--data", data, code=code)
        assert re.search(said, told), told
        assert told.strip().count("\n") == 0


def test_a_split_with_some_labels_is_not_scored_and_says_why(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tiny_task(tmp_path / "data", "classify")
    model = tuned(tmp_path / "model", "classify", data, tokenizer)
    label = open_task("classify", data).task.labels[0]
    (tmp_path / "some.csv").write_text(f"text,label\nx,{label}\ny,\nz,\n")
    command = (
        "evaluate",
        "classify",
        "--model",
        model,
        "--data",
        tmp_path / "some.csv",
        "--split",
        "test",
    )
    why = (
        "2 of the 3 examples of test have no label, so that it is not scored; the first: some.csv:3"
    )
    assert why in ran(capsys, *command, code=2)[1]
    assert why in ran(capsys, *command, "--out", tmp_path / "kept.jsonl")[1]


def test_own_labels_are_those_of_the_model(
    tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that lacks a label, or holds them in another order, is scored all the same; an unknown
    one is said."""
    data = tiny_task(tmp_path / "data", "classify")
    model = tuned(tmp_path / "model", "classify", data, tokenizer)
    labels = FinetunedModel.load(model).card.task.labels
    few = tmp_path / "few.csv"
    few.write_text(
        "text,label\n"
        + "".join(f"the {word} sails,{labels[-1]}\n" for word in ("sailor", "whale", "ship"))
    )
    facts = json.loads(
        ran(
            capsys,
            "evaluate",
            "classify",
            "--model",
            model,
            "--data",
            few,
            "--split",
            "test",
            "--json",
        )[0]
    )
    assert facts["num_examples"] == 3
    few.write_text("text,label\nthe sailor sails,elsewhere\n")
    _, told = ran(
        capsys, "evaluate", "classify", "--model", model, "--data", few, "--split", "test", code=3
    )
    assert "elsewhere" in told


def test_a_task_of_the_same_labels_will_do(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """In any order; not of other ones."""
    data = tiny_task(tmp_path / "data", "mnli")
    model = FinetunedModel.load(tuned(tmp_path / "model", "mnli", data, tokenizer))
    task = model.card.task
    model.check_task(replace(task, name="other", labels=task.labels[::-1]))
