"""One, many or a stream: forms are kept, order is kept, and no more is read than is needed."""

from collections.abc import Iterator

import pytest

from litebert.errors import ConfigError, DataError
from litebert.infer import ahead
from litebert.infer.ahead import answered, form_of, in_form, is_text, is_texts, rows, windows


def test_windows_hold_every_item_once_in_order_and_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ahead, "WINDOW_ITEMS", 3)
    monkeypatch.setattr(ahead, "WINDOW_CHARACTERS", 10)
    items = ["a", "b", "c", "d" * 9, "e", "f" * 50, "g"]
    found = list(windows(items, len))
    assert found == [["a", "b", "c"], ["d" * 9, "e"], ["f" * 50], ["g"]]
    assert list(windows([], len)) == []


def test_a_stream_is_read_one_window_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "WINDOW_ITEMS", 4)
    taken: list[int] = []

    def stream() -> Iterator[str]:
        for number in range(100):
            taken.append(number)
            yield str(number)

    answers = answered(stream(), len, lambda window: [text + "!" for text in window])
    assert [next(answers) for _ in range(5)] == ["0!", "1!", "2!", "3!", "4!"]
    assert len(taken) == 8


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", "one"),
        (["a"], "many"),
        (("a", "b"), "many"),
        ({"a": 1}.keys(), "many"),
        (iter(["a"]), "stream"),
    ],
)
def test_forms(value: object, expected: str) -> None:
    assert form_of(value, is_text) == expected


def test_options_of_one_question_are_one() -> None:
    assert form_of(["a", "b"], is_texts) == "one"
    assert form_of([["a", "b"]], is_texts) == "many"
    assert form_of(iter([["a", "b"]]), is_texts) == "stream"


def test_answers_come_in_the_form_of_the_question() -> None:
    assert in_form("one", iter([7])) == 7
    assert in_form("many", iter([7, 8])) == [7, 8]
    stream = iter([7, 8])
    assert in_form("stream", stream) is stream


def test_fields_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(
        ConfigError, match="first is one, second is a list; give all of them in the same way"
    ):
        rows({"first": ("a", is_text), "second": (["b"], is_text)})
    with pytest.raises(DataError, match="expected as many of each; got 2 of first, 1 of second"):
        rows({"first": (["a", "b"], is_text), "second": (["c"], is_text)})
    with pytest.raises(
        DataError,
        match=r"expected a text, a list or an iterator of texts; got dict: \{'text': 'a'\}",
    ):
        rows({"texts": ({"text": "a"}, is_text)})  # not its keys
    with pytest.raises(
        DataError, match="expected a text, a list or an iterator of texts; got int: 3"
    ):
        rows({"texts": (3, is_text)})
    form, questions = rows({"first": (iter("ab"), is_text), "second": (iter("abc"), is_text)})
    assert form == "stream"
    with pytest.raises(DataError, match="one of these streams ended first"):
        list(questions)
