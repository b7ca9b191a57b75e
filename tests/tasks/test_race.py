"""RACE's folders: passages by number, "_" as it stands, levels, and what is wrong told with its
file."""

import json
from pathlib import Path
from typing import Any

import pytest

from litebert.errors import DataError
from litebert.tasks.examples import ChoiceExample
from litebert.tasks.registry import TableOptions, open_task
from litebert.testing import TINY_SPLITS, tiny_task


def passage(path: Path, **changes: Any) -> Path:
    content = {
        "answers": ["D", "A"],
        "options": [["one", "a  much longer option, with a comma", "", "four"], ["x", "y"]],
        "questions": ["He was _ and _ .", "Which?"],
        "article": "A text.\nOf two lines.",
        "id": path.name,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**content, **changes}))
    return path


def read(data: Path, split: str = "dev", **options: Any) -> list[ChoiceExample]:
    actual = open_task("race", data, options=TableOptions(**options)).splits[split]
    return [example for example in actual if isinstance(example, ChoiceExample)]


def test_the_official_layout(tmp_path: Path) -> None:
    data = open_task("race", tiny_task(tmp_path / "RACE", "race").parent)
    assert {split: len(examples) for split, examples in data.splits.items()} == TINY_SPLITS
    assert {example.slice for example in data.splits["train"]} == {"middle", "high"}
    assert (
        len(
            {
                id(example.context)
                for example in data.splits["train"]
                if isinstance(example, ChoiceExample)
            }
        )
        == 12
    )
    assert data.task.head == "choose"


def test_a_passage_word_for_word(tmp_path: Path) -> None:
    passage(tmp_path / "dev/high/7.txt")
    first, second = read(tmp_path)
    assert first == ChoiceExample(
        key="high7-0",
        context="A text.\nOf two lines.",
        question="He was _ and _ .",  # each option takes the place of every "_" later, in encode
        options=("one", "a  much longer option, with a comma", "", "four"),
        label=3,
        slice="high",
        where="high/7.txt:1",
    )
    assert (second.key, second.label, len(second.options)) == ("high7-1", 0, 2)
    assert second.context is first.context


def test_levels_and_order_by_number(tmp_path: Path) -> None:
    for name in ("high/10", "high/9", "middle/2", "middle/1"):
        passage(tmp_path / f"dev/{name}.txt")
    assert [example.key for example in read(tmp_path)][::2] == [
        "middle1-0",
        "middle2-0",
        "high9-0",
        "high10-0",
    ]
    assert {example.slice for example in read(tmp_path, level="high")} == {"high"}
    assert {example.slice for example in read(tmp_path, level="middle")} == {"middle"}


def test_a_test_split_without_answers(tmp_path: Path) -> None:
    path = passage(tmp_path / "test/high/1.txt")
    path.write_text(
        json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "answers"})
    )
    assert [example.label for example in read(tmp_path, "test")] == [None, None]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"answers": ["D", "C"]},
            r"high/3\.txt, question 2: the answer is 'C', expected one of A, B; .*--bad-rows skip",
        ),
        ({"answers": ["D"]}, r"high/3\.txt, line 1: 2 questions, 2 lists of options, 1 answers"),
        (
            {"options": [["a", "b", "c", "d"], ["x"]]},
            "question 2: there are 1 options, expected two or more",
        ),
        (
            {"options": [["a", "b", "c", 4], ["x", "y"]]},
            "question 1: the question or an option is no text",
        ),
        ({"article": None}, "line 1: the article is no text"),
        ({"questions": 3}, "no passage of RACE"),
    ],
)
def test_what_is_wrong_is_said_and_the_rest_can_be_read(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    passage(tmp_path / "dev/high/3.txt", **changes)
    passage(tmp_path / "dev/high/4.txt")
    with pytest.raises(DataError, match=message):
        read(tmp_path)
    assert [example.key for example in read(tmp_path, bad_rows="skip")][-2:] == [
        "high4-0",
        "high4-1",
    ]


def test_files_and_folders_that_are_no_passages(tmp_path: Path) -> None:
    (passage(tmp_path / "dev/high/3.txt")).write_text("{")
    with pytest.raises(DataError, match=r"high/3\.txt, line 1: not readable as JSON"):
        read(tmp_path)
    (tmp_path / "dev/high/3.txt").unlink()
    with pytest.raises(DataError, match=r"dev/high holds no passage; expected N.txt files"):
        read(tmp_path)
    (tmp_path / "dev/high").rmdir()
    with pytest.raises(DataError, match=r"RACE's layout is dev/middle/N.txt and dev/high/N.txt"):
        read(tmp_path)
    (tmp_path / "dev").rmdir()
    with pytest.raises(
        DataError, match=r"holds no train \(train\); dev \(dev\); test \(test\) of race"
    ):
        read(tmp_path)
