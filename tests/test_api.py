"""litebert.pretrain, finetune and evaluate: what the commands do, with typed results."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import litebert
from litebert import cli
from litebert.testing import tiny_recipe, tiny_shards, tiny_task

ROWS = [
    {"text": f"{word} {thing}", "label": label}
    for label, words in {"no": ("dull", "slow", "old"), "yes": ("warm", "great", "new")}.items()
    for word in words
    for thing in ("story", "film", "cast", "ending")
]
QUICK: dict[str, Any] = {"epochs": 1, "retries": 0, "progress": False, "device": "cpu"}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_shards(tmp_path_factory.mktemp("shards"))


@pytest.fixture(scope="module")
def pretrained(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> litebert.RunResult:
    out = tmp_path_factory.mktemp("runs") / "pretrained"
    return litebert.pretrain(
        tiny_recipe(), data=shards, out=out, device="cpu", workers=0, progress=False
    )


def test_pretraining_returns_its_scores_and_is_done_once(
    pretrained: litebert.RunResult, shards: Path
) -> None:
    assert pretrained.checkpoint.is_dir()
    assert {"masked_loss", "masked_accuracy"} <= pretrained.scores.keys()
    assert pretrained.details["steps"] == 12
    again = litebert.pretrain(
        tiny_recipe(), data=shards, out=pretrained.folder, device="cpu", workers=0, progress=False
    )
    assert again.scores == pretrained.scores
    assert litebert.load(pretrained, device="cpu").verbs == ("fill", "embed")


def test_settings_and_init_change_the_recipe(
    pretrained: litebert.RunResult, shards: Path, tmp_path: Path
) -> None:
    run = litebert.pretrain(
        tiny_recipe(),
        data=str(shards),
        out=str(tmp_path / "more"),
        init=pretrained,
        steps=2,
        learning_rate=1e-4,
        overrides={"max_positions": 80},
        device="cpu",
        workers=0,
        progress=False,
    )
    assert run.details["steps"] == 2
    recipe = json.loads((run.folder / "recipe.json").read_text())["recipe"]
    assert recipe["optimizer"]["learning_rate"] == 1e-4
    assert (recipe["overrides"]["hidden_size"], recipe["overrides"]["max_positions"]) == (32, 80)
    with pytest.raises(
        litebert.ConfigError, match="there is no setting 'stpes'; did you mean 'steps'"
    ):
        litebert.pretrain(tiny_recipe(), data=shards, out=tmp_path / "wrong", stpes=3)
    with pytest.raises(litebert.ConfigError, match="there is no recipe 'afordable'"):
        litebert.pretrain("afordable", data=shards, out=tmp_path / "wrong")


def test_rows_in_memory_and_their_file_give_the_same_run(
    pretrained: litebert.RunResult, tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    in_memory = litebert.finetune(
        "classify", model=pretrained, data=ROWS, out=tmp_path / "memory", **QUICK
    )
    from_file = litebert.finetune(
        "classify", model=pretrained, data=file, out=tmp_path / "file", **QUICK
    )
    assert in_memory.scores == from_file.scores
    weights = [
        (run.checkpoint / "model.safetensors").read_bytes() for run in (in_memory, from_file)
    ]
    assert weights[0] == weights[1]
    assert any("columns recognized" in note for note in in_memory.notes)
    # the content counts, not where it is: the file resumes the run that rows began
    again = litebert.finetune(
        "classify", model=pretrained, data=file, out=in_memory.folder, **QUICK
    )
    assert again.scores == in_memory.scores
    with pytest.raises(litebert.ConfigError, match=r"holds another run.*train: [0-9a-f]+… in the"):
        litebert.finetune(
            "classify", model=pretrained, data=ROWS[::-1], out=in_memory.folder, **QUICK
        )


def test_evaluation_is_that_of_the_run_and_of_the_command(
    pretrained: litebert.RunResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {"train": ROWS, "validation": ROWS[::2]}
    run = litebert.finetune("classify", model=pretrained, data=data, out=tmp_path / "run", **QUICK)
    actual = litebert.evaluate("classify", model=run, data=data, samples=50, device="cpu")
    assert actual.scores == run.scores
    assert actual.num_examples == 12
    assert {"accuracy"} <= set(actual.intervals) <= set(actual.scores)  # none for a flat bootstrap
    for name, rows in (("train", ROWS), ("dev", ROWS[::2])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["evaluate", "classify", "--model", str(run.folder), "--data", str(tmp_path)]
    assert cli.run([*command, "--json", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == actual.scores
    unlabeled = [{"text": row["text"]} for row in ROWS]
    with pytest.raises(
        litebert.ConfigError,
        match="test of classify has no labels to score by; `litebert evaluate classify` with --out",
    ):
        litebert.evaluate("classify", model=run, data=unlabeled, split="test", device="cpu")


def test_several_seeds_give_medians(pretrained: litebert.RunResult, tmp_path: Path) -> None:
    run = litebert.finetune(
        "classify", model=pretrained, data=ROWS, out=tmp_path / "run", seeds=3, **QUICK
    )
    each = sorted(seed["scores"]["accuracy"] for seed in run.details["seeds"])
    assert run.scores["accuracy"] == each[1]
    assert run.load(device="cpu").verbs == ("embed", "classify")
    with pytest.raises(litebert.ConfigError, match="seeds is a number of runs from 1; got 0"):
        litebert.finetune(
            "classify", model=pretrained, data=ROWS, out=tmp_path / "none", seeds=0, **QUICK
        )


def test_a_benchmark_and_a_recipe(pretrained: litebert.RunResult, tmp_path: Path) -> None:
    data = tiny_task(tmp_path / "data", "rte")
    recipe = replace(
        litebert.FinetuneRecipe(task="rte", steps=2), batch_size=8, max_length=32, retries=0
    )
    run = litebert.finetune(
        "rte",
        model=pretrained,
        data=data,
        out=tmp_path / "run",
        recipe=recipe,
        device="cpu",
        progress=False,
    )
    assert set(run.scores) == {"accuracy"}
    assert any("the paper starts rte from a model fine-tuned on mnli" in note for note in run.notes)
    with pytest.raises(litebert.DataError, match="rte is read from its official files"):
        litebert.finetune("rte", model=pretrained, data=ROWS, out=tmp_path / "rows", **QUICK)
