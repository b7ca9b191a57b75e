"""litebert finetune through the command line: every task's files, one's own, resuming, seeds, and
messages."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from litebert import cli
from litebert.config import ModelConfig
from litebert.convert.folder import convert_folder
from litebert.errors import ConfigError
from litebert.model.model import Model
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.examples import (
    AnswerExample,
    ChoiceExample,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.tasks.registry import BENCHMARKS, OWN
from litebert.testing import tiny_task
from litebert.train.finetune.prepare import unknown_tokens
from litebert.train.finetune.seeds import run_finetuning
from tests.helpers.finetuning import source
from tests.helpers.launch import finish, start_command, state, wait_for_step

QUICK = ["--max-length", "32", "--device", "cpu", "--evaluations", "2", "--retries", "0"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return source().save(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture(scope="module")
def rte(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_task(tmp_path_factory.mktemp("rte"), "rte")


def finetune(task: str, model: Path, data: Path, out: Path, *flags: str) -> int:
    return cli.run(
        [
            "finetune",
            task,
            "--model",
            str(model),
            "--data",
            str(data),
            "--out",
            str(out),
            *QUICK,
            *flags,
        ]
    )


@pytest.mark.parametrize("task", [*(name for name in BENCHMARKS if name != "diagnostic"), *OWN])
def test_every_task_runs_from_its_own_files(
    task: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tiny_task(tmp_path / "data", task)
    assert finetune(task, model, data, tmp_path / "run", "--epochs", "1", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["task"] == task
    assert 0 <= result["score"] <= 1 or task in ("cola", "stsb", "regress")
    card = Checkpoint.load(tmp_path / "run" / "final").task
    assert card is not None
    assert card["task"]["name"] == task
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())["recipe"]
    assert (recipe["epochs"], recipe["steps"], recipe["max_length"]) == (1.0, None, 32)


def test_what_is_printed_and_the_recipe_again(
    model: Path, rte: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [
        "--epochs",
        "4",
        "--learning-rate",
        "5e-3",
        "--batch-size",
        "4",
        "--warmup",
        "3",
        "--tensorboard",
    ]
    assert finetune("rte", model, rte, tmp_path / "run", *flags) == 0
    shown = capsys.readouterr()
    assert re.search(r"^accuracy +\d+\.\d$", shown.out, re.M)
    assert (
        "note: the paper starts rte from a model fine-tuned on mnli: --model may be such a run"
        in shown.err
    )
    assert (
        f"the checkpoint is {tmp_path / 'run' / 'final'}, the curves: litebert report "
        f"{tmp_path / 'run'}" in shown.err
    )
    assert list((tmp_path / "run" / "tensorboard").iterdir())
    written = tmp_path / "run" / "recipe.json"
    assert (
        finetune("rte", model, rte, tmp_path / "again", "--recipe", str(written), "--seed", "0")
        == 0
    )
    weights = [
        (tmp_path / name / "final" / "model.safetensors").read_bytes() for name in ("run", "again")
    ]
    assert weights[0] == weights[1]


def test_a_run_a_hugging_face_folder_and_random_weights_can_be_started_from(
    model: Path, rte: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tiny_task(tmp_path / "mnli", "mnli")
    assert finetune("mnli", model, data, tmp_path / "first", "--epochs", "1") == 0
    capsys.readouterr()
    assert (
        finetune(
            "rte",
            tmp_path / "first",
            rte,
            tmp_path / "second",
            "--steps",
            "1",
            "--learning-rate",
            "0",
        )
        == 0
    )
    assert "the paper starts rte" not in capsys.readouterr().err
    first, second = (
        Checkpoint.load(tmp_path / name / "final").model.encoder.state_dict()
        for name in ("first", "second")
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    torch.manual_seed(0)
    post = ModelConfig(encoder=replace(source().model.config.encoder, norm="post", init_std=0.02))
    Checkpoint(model=Model(post), tokenizer=source().tokenizer).save(tmp_path / "ours")
    convert_folder(tmp_path / "ours", tmp_path / "theirs")
    for name in ("ours", "theirs"):
        assert finetune("rte", tmp_path / name, rte, tmp_path / f"from-{name}", "--steps", "3") == 0
    ours, theirs = (
        Checkpoint.load(tmp_path / f"from-{name}" / "final").model.state_dict()
        for name in ("ours", "theirs")
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert (
        finetune(
            "rte",
            model,
            rte,
            tmp_path / "fresh",
            "--random-weights",
            "--steps",
            "1",
            "--learning-rate",
            "0",
        )
        == 0
    )
    fresh = Checkpoint.load(tmp_path / "fresh" / "final").model.encoder.embedding.token.weight
    assert not torch.equal(fresh, source().model.encoder.embedding.token.weight)


def test_another_batch_size_keeps_the_epochs_and_the_part_of_warmup(
    model: Path, rte: Path, tmp_path: Path
) -> None:
    """48 pairs: batches of 8 and the 10.3 epochs of the paper are 62 steps, of which a quarter
    warms up."""
    for name, flags in {"8": [], "4": ["--batch-size", "4"], "epochs": ["--epochs", "2"]}.items():
        assert (
            finetune(
                "rte",
                model,
                rte,
                tmp_path / name,
                *flags,
                "--learning-rate",
                "0",
                "--patience",
                "1",
            )
            == 0
        )
    record = [
        json.loads((tmp_path / name / "recipe.json").read_text())["recipe"]
        for name in ("8", "4", "epochs")
    ]
    assert [(each["steps"], each["epochs"], each["optimizer"]["warmup"]) for each in record] == [
        (62, None, 16),
        (124, None, 16 / 62),
        (None, 2.0, 16 / 62),
    ]


def test_several_seeds(
    model: Path, rte: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert finetune("rte", model, rte, tmp_path / "run", "--seeds", "2", "--epochs", "1") == 0
    shown = capsys.readouterr()
    assert re.search(
        r"^accuracy +\d+\.\d   median of 2 seeds, \d+\.\d to \d+\.\d$", shown.out, re.M
    )
    assert "seed 1, 2 of 2" in shown.err
    assert f"the curves: litebert report {tmp_path / 'run' / 'seed-*'}" in shown.err
    assert (
        cli.run(
            [
                "report",
                *map(str, (tmp_path / "run").glob("seed-*")),
                "--out",
                str(tmp_path / "page.html"),
            ]
        )
        == 0
    )
    assert (tmp_path / "run" / "seed-1" / "result.json").exists()
    assert (
        finetune(
            "stsb",
            tmp_path / "run",
            tiny_task(tmp_path / "stsb", "stsb"),
            tmp_path / "next",
            "--steps",
            "1",
        )
        == 0
    )


def test_one_seed_and_several_do_not_share_a_folder(
    model: Path, rte: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each would replace the other's final, and leave its result beside it."""
    assert finetune("rte", model, rte, tmp_path / "one", "--steps", "1") == 0
    assert finetune("rte", model, rte, tmp_path / "two", "--steps", "1", "--seeds", "2") == 0
    kept = {
        name: (tmp_path / name / "final" / "model.safetensors").read_bytes()
        for name in ("one", "two")
    }
    assert finetune("rte", model, rte, tmp_path / "one", "--steps", "1", "--seeds", "2") == 2
    assert (
        f"{tmp_path / 'one'} holds a run of one seed; choose another --out for several"
        in capsys.readouterr().err
    )
    assert finetune("rte", model, rte, tmp_path / "two", "--steps", "1", "--seed", "1") == 2
    assert (
        f"{tmp_path / 'two'} holds runs of several seeds; choose another --out for one"
        in capsys.readouterr().err
    )
    assert kept == {
        name: (tmp_path / name / "final" / "model.safetensors").read_bytes()
        for name in ("one", "two")
    }


def test_a_benchmark_with_dev_alone_is_cut_once(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tiny_task(tmp_path / "data", "squad2")
    for train in (tmp_path / "data").rglob("train*"):
        train.unlink()
    assert finetune("squad2", model, data, tmp_path / "none") == 3
    assert re.search(
        r"no train .*; --split-dev 0.2 trains on a part of dev", capsys.readouterr().err
    )
    flags = ["--split-dev", "0.25", "--null-search", "train", "--epochs", "1", "--json"]
    assert finetune("squad2", model, data, tmp_path / "run", *flags) == 0
    shown = capsys.readouterr()
    assert re.search(
        r"note: there is no train split: dev was cut by title, .* the score is not the official "
        r"one",
        shown.err,
    )
    assert json.loads(shown.out)["null_threshold"] is not None


def test_a_signal_saves_and_the_same_command_goes_on(model: Path, tmp_path: Path) -> None:
    data = tiny_task(tmp_path / "data", "sst2", scale=4)
    args = [
        "finetune",
        "sst2",
        "--model",
        str(model),
        "--data",
        str(data),
        *QUICK,
        "--steps",
        "150",
        "--evaluations",
        "20",
    ]
    args += ["--save-every", "40", "--patience", "0"]
    out, whole = tmp_path / "run", tmp_path / "whole"
    process = start_command([*args, "--out", str(out)], out)
    assert wait_for_step(out, 20, process)
    process.terminate()
    assert finish(process) == 75
    assert state(out) == "interrupted"
    assert "interrupted at step" in out.with_name("run.log").read_text()
    assert finish(start_command([*args, "--out", str(out)], out)) == 0
    assert finish(start_command([*args, "--out", str(whole)], whole)) == 0
    assert (out / "final" / "model.safetensors").read_bytes() == (
        whole / "final" / "model.safetensors"
    ).read_bytes()
    assert (out / "dev_predictions.jsonl").read_bytes() == (
        whole / "dev_predictions.jsonl"
    ).read_bytes()


WRONG: dict[str, tuple[int, str]] = {
    "rts": (2, r"there is no task 'rts'; did you mean 'rte'\? known: cola"),
    "rte --seeds 0": (2, r"seeds is a number of runs from 1; got 0"),
    "rte --steps 3 --epochs 2": (2, r"a run has steps or epochs, the other none"),
    "rte --max-length 500": (2, r"the model reads at most 64 tokens; lower it"),
    "rte --recipe nowhere.json": (
        2,
        r"nowhere.json cannot be read: No such file or directory; a recipe file is what a run",
    ),
    "rte --model nowhere": (
        3,
        r"there is no nowhere; expected the folder of a checkpoint, a run or a Hugging Face model",
    ),
    "rte --data nowhere": (3, r"nowhere: no such file or folder; expected the data of rte"),
    "rte --batch-size 0": (2, r"batch_size is a whole number from 1"),
    "rte --device tpu9": (2, r"there is no device 'tpu9' here"),
}


def test_what_is_not_above_chance_is_said(
    model: Path, rte: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seeds, said in {
        "1": "the run did not beat the majority baseline",
        "2": "2 of 2 runs did not beat the majority baseline",
    }.items():
        flags = ["--steps", "2", "--learning-rate", "0", "--seeds", seeds]
        assert finetune("rte", model, rte, tmp_path / seeds, *flags) == 0
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("wish", WRONG)
def test_wrong_wishes_are_answered_in_one_sentence(
    wish: str,
    model: Path,
    rte: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, message = WRONG[wish]
    task, *flags = wish.split()
    assert finetune(task, model, rte, tmp_path / "run", *flags) == code
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize("seeds", ["1", "2"])
@pytest.mark.parametrize("name", ["final/notes.txt", "snapshots/photo.jpg", "metrics.jsonl"])
def test_files_that_no_run_wrote_are_not_replaced(
    name: str,
    seeds: str,
    model: Path,
    rte: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    assert finetune("rte", model, rte, tmp_path, "--steps", "1", "--seeds", seeds) == 2
    expected = f"holds {Path(name).parts[0]} and no recipe.json of a run, so nothing there"
    assert expected in capsys.readouterr().err
    assert (tmp_path / name).read_text() == "mine"


def test_a_folder_of_another_run_is_refused(
    model: Path, rte: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert finetune("rte", model, rte, tmp_path / "run", "--steps", "2") == 0
    assert finetune("rte", model, rte, tmp_path / "run", "--steps", "3") == 2
    assert "holds another run, so it cannot be resumed" in capsys.readouterr().err
    before = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert before["inputs"].keys() == {
        *("tokenizer", "model", "train", "dev", "labels", "cut", "exit texts")
    }
    (tmp_path / "recipe.json").write_text("[1]")
    assert (
        finetune("rte", model, rte, tmp_path / "other", "--recipe", str(tmp_path / "recipe.json"))
        == 2
    )
    assert "holds no recipe" in capsys.readouterr().err


def test_exits_are_calibrated_on_rows_without_labels(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, more = tmp_path / "data", tmp_path / "more.csv"
    data.mkdir()
    labeled = [f"the ship {n},the sea {n},{'ab'[n % 2]}\n" for n in range(60)]
    for split, rows in (("train", labeled[:40]), ("dev", labeled[40:])):
        (data / f"{split}.csv").write_text("".join(["note,story,label\n", *rows]))
    more.write_text("".join(["note,story\n", *(f"{n},the whale sails {n}\n" for n in range(700))]))
    flags, texts = ["--steps", "4", "--text", "story"], ["--exit-texts", str(more)]
    exits = ["--exits", "each"]
    assert finetune("classify", model, data, tmp_path / "run", *flags, *exits, *texts) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["train_examples"], result["exits"]["confidence"]["rows"]) == (40, 700)
    assert finetune("classify", model, data, tmp_path / "few", *flags, *exits) == 0
    assert json.loads((tmp_path / "few" / "result.json").read_text())["train_examples"] == 36
    assert "(598 are needed, --exit-texts gives more)" in capsys.readouterr().err
    assert finetune("classify", model, data, tmp_path / "no", *flags, *texts) == 2
    assert "the run has no exits; add --exits each" in capsys.readouterr().err


def test_columns_and_cut_are_remembered(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "mail.csv"
    rows = "".join(f"mail {n},{'spam' if n % 8 == 0 else 'ham'},x,{n}\n" for n in range(80))
    table.write_text("subject line,kind,text,label\n" + rows)
    flags = ("--text", "subject line", "--label", "kind", "--steps", "2")
    assert finetune("classify", model, table, tmp_path / "run", *flags) == 0
    assert "dev is 8 of the 80 rows, cut from train, with its share of every label" in (
        capsys.readouterr().err
    )
    command = ["evaluate", "classify", "--model", str(tmp_path / "run"), "--data", str(table)]
    assert cli.run([*command, "--device", "cpu", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["notes"][0] == (
        "mail.csv: columns as in training: label is 'kind', text is 'subject line'"
    )
    assert sum(result["confusion"]["spam"].values()) == 1
    ran = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["scores"] == ran["scores"]
    assert cli.run([*command, "--device", "cpu", "--json", "--text", "label"]) == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert notes[0] == "mail.csv: columns as in training: label is 'kind'"


def test_class_weights_change_the_training_and_what_the_checkpoint_is_chosen_by(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "mail.csv"
    rows = "".join(f"mail {n},{'spam' if n % 8 == 0 else 'ham'}\n" for n in range(80))
    table.write_text("text,label\n" + rows)
    losses = {}
    for name, flags in {
        "plain": [],
        "balanced": ["--class-weights", "balanced"],
        "named": ["--class-weights", "spam=7", "ham=1"],
    }.items():
        run = tmp_path / name
        assert (
            finetune("classify", model, table, run, "--steps", "4", "--retries", "0", *flags) == 0
        )
        lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        losses[name] = [line["loss"] for line in lines if line["kind"] == "step"]
        card = Checkpoint.load(run / "final").task
        assert card is not None
        assert card["task"]["scores"][0] == ("accuracy" if name == "plain" else "macro_f1")
    assert losses["balanced"] == pytest.approx(losses["named"], rel=1e-5)  # 7 of 8 are ham
    assert losses["balanced"] != pytest.approx(losses["plain"], rel=1e-3)
    flags = ["--steps", "4", "--class-weights", "eggs=7"]
    assert finetune("classify", model, table, tmp_path / "wrong", *flags) == 2
    assert "there is no label 'eggs' for a class weight" in capsys.readouterr().err


def test_evaluation_cuts_the_dev_that_training_had(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "mail.csv"
    rows = "".join(f"mail {n},{'spam' if n % 3 == 0 else 'ham'}\n" for n in range(80))
    table.write_text("text,label\n" + rows)
    run = tmp_path / "run"
    flags = ("--dev-fraction", "0.3", "--cut-seed", "5", "--test-fraction", "0.1", "--steps", "2")
    assert finetune("classify", model, table, run, *flags) == 0
    ran = json.loads((run / "result.json").read_text())
    command = ["evaluate", "classify", "--model", str(run), "--data", str(table), "--json"]
    command += ["--device", "cpu"]
    capsys.readouterr()
    assert cli.run(command) == 0
    evaluated = json.loads(capsys.readouterr().out)
    assert (evaluated["num_examples"], evaluated["scores"]) == (24, ran["scores"])
    assert cli.run([*command, "--split", "test"]) == 0
    assert json.loads(capsys.readouterr().out)["num_examples"] == 8
    assert cli.run([*command, "--dev-fraction", "0.5"]) == 0
    assert json.loads(capsys.readouterr().out)["num_examples"] == 40


def test_a_run_begun_before_cuts_knew_labels_resumes_with_its_dev(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its recipe.json has no `cut`, its task.json neither."""
    table = tmp_path / "mail.csv"
    rows = "".join(f"mail {n},{'spam' if n % 8 == 0 else 'ham'}\n" for n in range(80))
    table.write_text("text,label\n" + rows)
    run = tmp_path / "run"
    flags = ("--no-stratify", "--steps", "2")
    assert finetune("classify", model, table, run, *flags) == 0
    assert finetune("classify", model, table, run, "--steps", "2") == 2
    assert "cut: none in the run, stratified now" in capsys.readouterr().err
    record = json.loads((run / "recipe.json").read_text())
    del record["inputs"]["cut"]
    (run / "recipe.json").write_text(json.dumps(record))
    assert finetune("classify", model, table, run, "--steps", "2") == 0
    card = Checkpoint.load(run / "final").task
    assert card is not None
    assert "stratified" not in card
    command = ["evaluate", "classify", "--model", str(run), "--data", str(table)]
    capsys.readouterr()
    assert cli.run([*command, "--device", "cpu", "--json"]) == 0
    ran = json.loads((run / "result.json").read_text())
    assert json.loads(capsys.readouterr().out)["scores"] == ran["scores"]


def test_a_disk_without_room_for_a_snapshot_is_refused_before_the_first_step(
    model: Path,
    rte: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100_000))
    assert finetune("rte", model, rte, tmp_path / "run", "--epochs", "1") == 3
    assert "a snapshot and the checkpoints of this run need" in capsys.readouterr().err


def test_bad_rows_are_copied_into_the_runs_own_folder(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A quarantine.jsonl in the current folder may be the user's own."""
    data = tiny_task(tmp_path / "data", "classify")
    table = data if data.is_file() else next(data.glob("train*"))
    table.write_text(table.read_text() + "a row,with,too,many,cells,for,it\n")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quarantine.jsonl").write_text("mine")
    flags = ("--steps", "2", "--bad-rows", "quarantine")
    assert finetune("classify", model, data, tmp_path / "run", *flags) == 0
    assert (tmp_path / "quarantine.jsonl").read_text() == "mine"
    assert len((tmp_path / "run" / "quarantine.jsonl").read_text().splitlines()) == 1
    command = ["evaluate", "classify", "--model", str(tmp_path / "run"), "--data", str(data)]
    assert cli.run([*command, "--device", "cpu", "--bad-rows", "quarantine"]) == 2
    assert "add --quarantine FILE" in capsys.readouterr().err
    assert (tmp_path / "quarantine.jsonl").read_text() == "mine"


@pytest.mark.parametrize(
    "example",
    [
        TextExample(key="0", first="the sailor ☃☃", second="home"),
        ChoiceExample(key="0", context="the sailor", question="☃☃", options=("home", "sea")),
        AnswerExample(key="0", question="the sailor", context="sails ☃☃ home"),
        TagExample(key="0", words=("the", "sailor", "☃☃")),
    ],
)
def test_many_unknown_tokens_are_named(model: Path, example: TaskExample) -> None:
    tokenizer = Checkpoint.load(model).tokenizer
    assert tokenizer is not None
    (note,) = unknown_tokens([example] * 1200, tokenizer)
    assert re.search(
        r"^\d+\.\d% of the tokens .* are unknown to the model, most often '☃☃': .*language", note
    )
    known = TextExample(key="0", first="the sailor sails home")
    assert unknown_tokens([known] * 1200, tokenizer) == []
    assert unknown_tokens([], tokenizer) == []


def test_one_of_several_ranks_says_the_notes(
    model: Path,
    rte: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for rank, count in (("0", 1), ("1", 0)):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(ConfigError, match="batch_size is a whole number from 1"):
            run_finetuning("rte", model, rte, tmp_path / "run", settings={"batch_size": 0})
        assert capsys.readouterr().err.count("note: the paper starts rte") == count
