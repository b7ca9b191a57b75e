"""Fine-tuning with exits learns at every depth, stores its heads in every kind of checkpoint, and
scores each depth on dev."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from litebert.errors import ConfigError
from litebert.infer.predictor import load
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.examples import TextExample
from litebert.tasks.task import TaskData
from litebert.train.finetune.prepare import prepare, share_aside
from litebert.train.finetune.run import Finetuning
from tests.helpers.finetuning import TASKS, example, ready, recipe, source, tune
from tests.helpers.pretraining import CPU

SIZES = {"train": 6400, "dev": 60}


@pytest.mark.parametrize("exits", ["one", "each"])
def test_every_depth_learns_and_is_stored(exits: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    wish = recipe(epochs=8, learning_rate=5e-3, exits=exits, exit_distillation=0.5)
    result = tune(wish, run).result.details  # type: ignore[attr-defined]
    scores = [each["accuracy"] for each in result["depth_scores"]]
    assert len(scores) == 2
    assert scores[-1] == result["score"]
    assert scores[0] > result["chance"] + 0.1
    stored = Checkpoint.load(run / "final")
    assert stored.model.config.heads[0].exits == exits
    assert len(stored.model.exits) == (exits == "each")
    stored.save(tmp_path / "int8", weights="int8")
    small = Checkpoint.load(tmp_path / "int8").model.state_dict()
    for name, weight in stored.model.state_dict().items():
        torch.testing.assert_close(small[name], weight, rtol=0.05, atol=0.02, msg=name)


def test_thresholds_are_calibrated_on_texts_kept_aside(tmp_path: Path) -> None:
    """Train, leave early, and the answers of other texts hardly change."""
    tokenizer = source().tokenizer
    assert tokenizer is not None
    wish = recipe(epochs=0.25, learning_rate=5e-3, exits="each", encoder_dropout=0.0)
    draw = random.Random(3)
    splits = {name: [numbered(draw, n) for n in range(count)] for name, count in SIZES.items()}
    prepared = prepare(wish, TaskData(task=TASKS["classify"], splits=splits), tokenizer)
    assert prepared.aside is not None
    kept = {example.first for example in prepared.aside.examples}  # type: ignore[union-attr]
    assert not kept & {example.first for example in prepared.train.examples}  # type: ignore[union-attr]
    assert len(prepared.train.examples) + len(prepared.aside.examples) == SIZES["train"]
    training = Finetuning(wish, prepared, source(), CPU, say=lambda message: None)
    result = training.train(tmp_path / "run", progress=False).details
    (name, *_) = result["exits"]
    numbers = result["exits"][name]
    assert numbers["bound"] <= 0.005
    assert numbers["dev_mean_depth"] < 2
    points = {each["mean_depth"]: each["score"] for each in result["exit_curves"][name]}
    assert points[numbers["dev_mean_depth"]] == numbers["dev_score"]
    low, high = numbers["dev_lost_interval"]
    assert low <= numbers["dev_lost"] <= high
    early = load(tmp_path / "run", device="cpu", exit=name)
    assert early.card is not None
    assert early.card.exits[name]["threshold"] == numbers["threshold"]
    rows = [numbered(draw, n) for n in range(400)]
    full = load(tmp_path / "run", device="cpu").predict(rows)
    both = list(zip(early.predict(rows), full, strict=True))
    changed = sum(here.label != there.label for here, there in both)  # type: ignore[union-attr]
    assert changed <= 6  # 2 of 400 are expected at most
    assert sum(here.depth for here, _ in both) < 800  # type: ignore[union-attr,misc]


def test_numbers_have_a_tolerance_where_too_few_texts_give_a_threshold(tmp_path: Path) -> None:
    wish, prepared = recipe("regress", exits="one"), ready("regress", exits="one")
    assert prepared.aside is not None
    Finetuning(wish, prepared, source(), CPU, say=lambda message: None).train(
        tmp_path / "run", progress=False
    )
    early = load(tmp_path / "run", device="cpu", exit="patience", threshold=1.0)
    assert early.card is not None
    assert early.engine.exit_rule is not None
    assert not early.card.exits
    assert early.engine.exit_rule.tolerance == early.card.exit_tolerance > 0


def test_ten_thousand_texts_calibrate_exits_where_there_are_that_many() -> None:
    for count, aside in ((1_000, 100), (40_000, 4_000), (50_000, 10_000), (67_000, 10_000)):
        assert round(count * share_aside(count, has_exits=True)) == aside
    for count, aside in ((1_000, 100), (67_000, 6_700), (400_000, 10_000)):
        assert round(count * share_aside(count, has_exits=False)) == aside


def numbered(draw: random.Random, number: int) -> TextExample:
    """One whose text is hardly ever drawn twice."""
    one = example("classify", draw, str(number))
    assert isinstance(one, TextExample)
    words = " ".join(draw.choice(("old", "sees", "the", "leaves", "then")) for _ in range(8))
    return replace(one, first=f"{one.first} {words}")


def test_a_head_without_exits_says_so() -> None:
    with pytest.raises(ConfigError, match="a tag head has none; got exits one"):
        Finetuning(recipe("tag", exits="one"), ready("tag"), source(), CPU)
