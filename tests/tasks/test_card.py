"""A task card comes back as it was, refuses what contradicts itself, and lies beside the weights it
belongs to."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from litebert.errors import CheckpointError, ConfigError
from litebert.files import MANIFEST
from litebert.storage.checkpoint import TASK, Checkpoint
from litebert.tasks.task import TaskCard
from litebert.text.tokenizer import Tokenizer
from tests.helpers.task_examples import CASES, made_card, made_model


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_a_card_comes_back_through_json(kind: Any, head: Any) -> None:
    card = made_card(
        kind, head, stride=9, max_question=5, max_answer=3, beam=2, null_threshold=-1.5
    )
    assert TaskCard.from_dict(json.loads(json.dumps(card.to_dict()))) == card


def test_columns_and_cut_come_back_and_are_absent_where_there_are_none() -> None:
    card = made_card("classify")
    assert not {"columns", "stratified", "cut"} & card.to_dict().keys()
    card = replace(
        card,
        columns={"text": ("body",), "options": ("a", "b")},
        stratified=True,
        cut={"dev_fraction": 0.2, "cut_seed": 3},
    )
    assert TaskCard.from_dict(json.loads(json.dumps(card.to_dict()))) == card


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_length": 4}, r"max_length is a whole number from 8 to 1048576; got 4"),
        ({"stride": 0}, r"stride is a whole number from 1"),
        ({"beam": 2.5}, r"beam is a whole number"),
        ({"max_length": True}, r"max_length is a whole number"),
        (
            {"null_threshold": float("nan")},
            r"null_threshold is a number from -1e\+06 to 1e\+06, or none; got nan",
        ),
        ({"columns": ["text"]}, r"columns are lists of names by role; got \['text'\]"),
        ({"columns": {"text": [3]}}, r"columns are lists of names by role"),
        (
            {"cut": {"rows": 3}},
            r"cut is numbers by option, such as dev_fraction; got .*rows",
        ),
        ({"cut": {"cut_seed": "3"}}, r"cut is numbers by option"),
        ({"stratified": 1}, r"stratified is true or false; got 1"),
        ({"strides": 3}, r"there is no TaskCard setting 'strides'; did you mean 'stride'\?"),
        ({"task": None}, r"task is an object that describes a task; got None"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TaskCard.from_dict(made_card("classify").to_dict() | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"kind": "guess"},
            r"kind is one of classify, pair, regress, choose, answer, tag; got 'guess'",
        ),
        ({"head": "tag"}, r"a task of kind classify is answered by a classify head; got tag"),
        ({"labels": []}, r"a task of kind classify needs labels; got 0"),
        ({"labels": ["a", "a"]}, r"labels are all different; got 'a', 'a'"),
        ({"labels": [1, 2]}, r"labels is a list of strings; got \[1, 2\]"),
        ({"scores": "accuracy"}, r"scores is a list of strings; got 'accuracy'"),
        ({"name": 3}, r"name is a string; got 3"),
        ({"has_null": 1}, r"has_null is true or false; got 1"),
        ({"color": 1}, r"there is no Task setting 'color'"),
    ],
)
def test_a_task_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    data = made_card("classify").to_dict()
    with pytest.raises(ConfigError, match=message):
        TaskCard.from_dict(data | {"task": data["task"] | change})


def test_what_is_missing_is_named() -> None:
    data = made_card("classify").to_dict()
    with pytest.raises(ConfigError, match="TaskCard needs task, max_length; max_length is missing"):
        TaskCard.from_dict({"task": data["task"]})
    with pytest.raises(
        ConfigError, match="Task needs name, kind, scores, head; scores, head is missing"
    ):
        TaskCard.from_dict(data | {"task": {"name": "x", "kind": "tag"}})


def test_mutated_cards_are_read_or_refused_and_never_more() -> None:
    draw = random.Random(0)
    junk = [
        None,
        True,
        -1,
        0,
        1e300,
        float("inf"),
        "",
        "x" * 100,
        [],
        {},
        [[]],
        {"task": {}},
        [None],
        2**70,
    ]
    for _ in range(500):
        data = made_card(*draw.choice(CASES)).to_dict()
        part = data["task"] if draw.random() < 0.6 else data
        part[draw.choice([*part, "other"])] = draw.choice(junk)
        try:
            TaskCard.from_dict(data)
        except ConfigError:
            continue


def test_a_model_that_does_not_fit_is_refused(tokenizer: Tokenizer) -> None:
    card = made_card("classify")
    config = made_model(card, tokenizer).config
    card.check_fits(config)
    with pytest.raises(
        ConfigError,
        match="pair are 'no', 'maybe', 'yes', the model's are 'no', 'yes'; they do not belong",
    ):
        made_card("pair").check_fits(config)
    with pytest.raises(
        ConfigError, match="tag is answered by a tag head, the model has: classify; fine-tune it"
    ):
        made_card("tag").check_fits(config)
    with pytest.raises(
        ConfigError, match="max_length is 65, the model reads at most 64 tokens; lower it"
    ):
        replace(card, max_length=65).check_fits(config)


def test_a_card_lies_beside_the_weights(tokenizer: Tokenizer, tmp_path: Path) -> None:
    card = made_card("answer", "joint_span", null_threshold=0.25)
    model = made_model(card, tokenizer)
    plain = Checkpoint.load(Checkpoint(model=model).save(tmp_path / "plain"))
    assert plain.task is None
    folder = Checkpoint(model=model, tokenizer=tokenizer, task=card.to_dict()).save(
        tmp_path / "model"
    )
    actual = Checkpoint.load(folder)
    assert actual.task is not None
    assert TaskCard.from_dict(actual.task) == card
    (folder / TASK).write_text((folder / TASK).read_text().replace("0.25", "0.35"))
    with pytest.raises(CheckpointError, match=r"task\.json"):
        Checkpoint.load(folder)
    (folder / MANIFEST).unlink()
    (folder / TASK).write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match=r"task\.json cannot be read as JSON"):
        Checkpoint.load(folder, unverified=True)
