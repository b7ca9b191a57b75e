"""An evaluation says what its parts say, and its slices are all of the examples."""

import json

import pytest

from litebert.errors import DataError
from litebert.tasks.examples import AnswerExample, TagExample, TextExample
from litebert.tasks.scores.evaluation import evaluate, worst
from litebert.tasks.scores.score import by_slice, intervals, score
from tests.helpers.predictions import TASKS, made


@pytest.mark.parametrize("kind", sorted(TASKS))
def test_the_whole_is_its_parts(kind: str) -> None:
    task, examples, predictions = made(kind)
    actual = evaluate(task, examples, predictions, samples=20, count=3)
    assert actual.scores == score(task, examples, predictions)
    assert actual.intervals == intervals(task, examples, predictions, samples=20)
    assert actual.slices["slice"] == by_slice(task, examples, predictions)
    assert actual.worst == worst(task, examples, predictions, count=3)
    for parts in actual.slices.values():
        assert sum(part.num_examples for part in parts) == actual.num_examples == len(examples)
    assert json.loads(json.dumps(actual.to_dict()))["num_examples"] == len(examples)


def test_slices_by_truth_by_length_and_by_what_is_asked() -> None:
    task, examples, predictions = made("pair")
    assert {part.name for part in evaluate(task, examples, predictions).slices["truth"]} == {
        "x",
        "y",
        "z",
    }
    task, _, predictions = made("answer", 3)
    asked = ["In WHICH year?", "Name it.", "How and why?"]
    questions = [
        AnswerExample(key="", question=question, context="a " * size, answers=())
        for size, question in enumerate(asked)
    ]
    slices = evaluate(task, questions, predictions).slices
    assert {part.name for part in slices["question"]} == {"which", "other", "how"}
    assert [part.name for part in slices["length"]] == ["3 to 4 words", "over 4 words"] or len(
        slices["length"]
    ) >= 2
    assert "slice" not in slices


def test_whether_the_truth_is_known() -> None:
    assert TextExample(key="", first="", label=0.0).is_labeled
    assert AnswerExample(key="", question="", context="", answers=()).is_labeled
    unknown = TagExample(key="7", words=())
    assert not unknown.is_labeled
    with pytest.raises(DataError, match="example 7 has no label"):
        unknown.truth()
