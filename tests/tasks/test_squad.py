"""SQuAD's files: answers stand where they say, no answer is told from an unknown one, and what is
wrong is told."""

import json
import lzma
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import DataError
from litebert.tasks.examples import Answer, AnswerExample
from litebert.tasks.registry import TableOptions, open_task
from litebert.testing import TINY_SPLITS, tiny_task

CONTEXT = "Denver  beat\nCarolina 24–10. Denver won."


def squad(*questions: dict[str, Any], context: str = CONTEXT, title: str = "T") -> dict[str, Any]:
    return {
        "data": [{"title": title, "paragraphs": [{"context": context, "qas": list(questions)}]}]
    }


def ask(key: str, *answers: tuple[str, int], **more: Any) -> dict[str, Any]:
    actual = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": key, "question": "Who?", "answers": actual, **more}


def read(
    folder: Path, content: object, name: str = "squad1", split: str = "dev", **options: Any
) -> list[AnswerExample]:
    (folder / f"{split}.json").write_text(json.dumps(content))
    actual = open_task(name, folder, options=TableOptions(**options)).splits[split]
    return [example for example in actual if isinstance(example, AnswerExample)]


@pytest.mark.parametrize("name", ["squad1", "squad2"])
def test_files_read_and_contexts_are_shared(tmp_path: Path, name: str) -> None:
    data = open_task(name, tiny_task(tmp_path, name))
    assert {split: len(examples) for split, examples in data.splits.items()} == {
        s: TINY_SPLITS[s] for s in ("train", "dev")
    }
    train = [example for example in data.splits["train"] if isinstance(example, AnswerExample)]
    assert len({id(example.context) for example in train}) == len(train) // 4
    assert all(
        example.context[a.start :].startswith(a.text)
        for example in train
        for a in example.answers or ()
    )
    assert any(example.answers == () for example in train) == (name == "squad2")
    assert (data.task.head, data.task.has_null) == (
        ("span", False) if name == "squad1" else ("joint_span", True)
    )


@pytest.mark.parametrize(
    ("text", "start", "found"),
    [
        ("Denver", 0, (0, "Denver")),
        ("Denver", 29, (29, "Denver")),
        ("Denver", 27, (29, "Denver")),  # off by the white space before it
        ("Denver", 12, (0, "Denver")),  # the nearer of two
        ("Denver", 30, (29, "Denver")),
        (" Denver ", 28, (29, "Denver")),  # blanks of its own
        (
            "Denver beat Carolina",
            0,
            (0, "Denver  beat\nCarolina"),
        ),  # one blank for two, and for a line feed
        ("beat Carolina", 900, (8, "beat\nCarolina")),
        ("Carolina\u00a024–10", -3, (13, "Carolina 24–10")),
        ("Denver", None, (0, "Denver")),
        ("24–10.", None, (22, "24–10.")),
        ("denver", 0, None),
        ("", 0, None),
        ("Oslo", 3, None),
    ],
)
def test_answers_are_moved_to_where_the_context_has_them(
    text: str, start: int | None, found: tuple[int, str] | None
) -> None:
    assert Answer.find(CONTEXT, text, start) == (
        None if found is None else Answer(text=found[1], start=found[0])
    )


@given(st.data(), st.text("ab.( \n\u00a0é", max_size=40), st.integers(-5, 50))
@settings(max_examples=300, deadline=None)
def test_an_answer_cut_out_of_the_context_is_found_whatever_its_white_space(
    data: st.DataObject, context: str, wrong: int
) -> None:
    low = data.draw(st.integers(0, len(context)))
    text = re.sub(r"\s+", " ", context[low : data.draw(st.integers(low, len(context)))])
    actual = Answer.find(context, text, wrong)
    if text.strip():
        assert actual is not None
        assert context[actual.start :].startswith(actual.text)
        assert actual.text.split() == text.split()
        exact = Answer.find(context, actual.text, actual.start)
        assert exact == actual
    else:
        assert actual is None


def test_answers_come_once_each_in_their_order(tmp_path: Path) -> None:
    (example,) = read(
        tmp_path, squad(ask("a", ("Denver", 29), ("Carolina", 13), ("Denver", 28), ("Denver", 0)))
    )
    assert example.answers == (
        Answer(text="Denver", start=29),
        Answer(text="Carolina", start=13),
        Answer(text="Denver", start=0),
    )
    assert (example.key, example.slice, example.where) == ("a", "T", "dev.json:1")


def test_no_answer_and_an_unknown_answer_are_two_things(tmp_path: Path) -> None:
    unknown = {"id": "d", "question": "Who?"}
    impossible = ask(
        "b", is_impossible=True, plausible_answers=[{"text": "Denver", "answer_start": 0}]
    )
    blank = ask("c", ("", 0))
    actual = read(
        tmp_path, squad(ask("a", is_impossible=False), impossible, blank, unknown), "squad2"
    )
    assert [example.answers for example in actual] == [(), (), (), None]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            squad(ask("a", ("Oslo", 0))),
            r"dev\.json, question 1: the answer 'Oslo' is not in the context; .*--bad-rows skip",
        ),
        (
            squad(ask("a", ("Denver", 0)), ask("a", ("Denver", 0))),
            r"question 2: the id 'a' was there before",
        ),
        (
            squad(ask("a")),
            r"question 1: the question has no answer, and in SQuAD 1 each has one; the task "
            r"squad2 reads such",
        ),
        (squad({"id": "a"}), "the question has no text or no id"),
        (
            squad({"id": "a", "question": "?", "answers": ["x"]}),
            "the answers are not a list of objects with text and answer_start",
        ),
        (
            squad({"id": "a", "question": "?", "answers": [{"text": 3}]}),
            "an answer is 3 from None, expected a text and a whole",
        ),
        ({"data": [{"title": "x"}]}, r"there is no 'paragraphs'; expected SQuAD's \{data: "),
        ([1], "expected SQuAD's"),
        (
            {"data": [{"paragraphs": [{"context": 3, "qas": []}]}]},
            "a context is int; expected SQuAD's",
        ),
        ({"data": []}, r"dev\.json: there is no usable example for dev of squad1"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, content)


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    full = json.dumps(squad(ask("a", ("Denver", 0)))).encode()
    (tmp_path / "dev.json").write_bytes(full[:-7])
    with pytest.raises(
        DataError, match=r"dev\.json: not readable as JSON .* expected a whole file in UTF-8"
    ):
        open_task("squad1", tmp_path)
    (tmp_path / "dev.json").unlink()
    (tmp_path / "dev.json.xz").write_bytes(lzma.compress(full)[:-20])
    with pytest.raises(DataError, match=r"dev\.json\.xz: cannot be read further"):
        open_task("squad1", tmp_path)
    (tmp_path / "dev.json.xz").write_bytes(lzma.compress(full))
    assert len(open_task("squad1", tmp_path).splits["dev"]) == 1


def test_train_needs_answers_and_bad_questions_can_be_left_out(tmp_path: Path) -> None:
    content = squad(
        ask("a", ("Denver", 0)),
        {"id": "b", "question": "?"},
        ask("c", ("Oslo", 0)),
        ask("d", ("won", 36)),
    )
    with pytest.raises(
        DataError,
        match=(
            r"train\.json, question 2: the question has no answers, from which a model could "
            r"learn"
        ),
    ):
        read(tmp_path, content, split="train")
    assert [example.key for example in read(tmp_path, content, split="train", bad_rows="skip")] == [
        "a",
        "d",
    ]


def test_one_folder_holds_both_versions_and_questions_of_ones_own(tmp_path: Path) -> None:
    tiny_task(tmp_path / "squad", "squad1")
    tiny_task(tmp_path / "squad", "squad2")
    one, two = open_task("squad1", tmp_path), open_task("squad2", tmp_path)
    assert {example.where.split(":")[0] for example in one.splits["dev"]} == {"dev-v1.1.json"}
    assert {example.where.split(":")[0] for example in two.splits["dev"]} == {"dev-v2.0.json"}
    (tmp_path / "squad/train-v1.1.json").unlink()
    for name in ("reddit", "amazon"):
        (tmp_path / f"squad/train-{name}.json").write_text(
            json.dumps(squad(ask(name, ("Denver", 0))))
        )
    assert [example.key for example in open_task("squad1", tmp_path).splits["train"]] == [
        "amazon",
        "reddit",
    ]
    given = open_task("squad1", tmp_path / "squad/train-reddit.json")
    assert {split: len(examples) for split, examples in given.splits.items()} == {"train": 1}


def test_dev_alone_is_cut_by_title(tmp_path: Path) -> None:
    tiny_task(tmp_path, "squad2", scale=10)
    (tmp_path / "train-v2.0.json").unlink()
    data = open_task("squad2", tmp_path, options=TableOptions(split_dev=0.2))
    titles = {
        split: {example.slice for example in examples} for split, examples in data.splits.items()
    }
    assert not titles["train"] & titles["dev"]
    assert (len(data.splits["train"]), len(data.splits["dev"])) == (128, 32)
    assert "dev was cut by title, 128 examples to train on and 32 to score on" in data.notes[0]
