"""One input, a list or an iterator: results keep form and order, and one window is read ahead."""

from collections.abc import Iterator

import pytest

from litebert.errors import ConfigError, DataError
from litebert.infer import streaming
from litebert.infer.streaming import (
    is_text,
    is_texts,
    map_windows,
    to_form,
    to_rows,
    windows,
)


def test_windows_hold_every_item_once_in_order_and_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streaming, "WINDOW_ITEMS", 3)
    monkeypatch.setattr(streaming, "WINDOW_CHARACTERS", 10)
    items = ["a", "b", "c", "d" * 9, "e", "f" * 50, "g"]
    result = list(windows(items, len))
    assert result == [["a", "b", "c"], ["d" * 9, "e"], ["f" * 50], ["g"]]
    assert list(windows([], len)) == []


def test_an_iterator_is_read_one_window_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "WINDOW_ITEMS", 4)
    taken: list[int] = []

    def stream() -> Iterator[str]:
        for number in range(100):
            taken.append(number)
            yield str(number)

    answers = map_windows(stream(), len, lambda window: [text + "!" for text in window])
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
    assert to_rows({"texts": (value, is_text)})[0] == expected


def test_options_of_one_question_are_one() -> None:
    for value, expected in (
        (["a", "b"], "one"),
        ([["a", "b"]], "many"),
        (iter([["a", "b"]]), "stream"),
    ):
        assert to_rows({"options": (value, is_texts)})[0] == expected


def test_results_have_the_form_of_the_input() -> None:
    assert to_form("one", iter([7])) == 7
    assert to_form("many", iter([7, 8])) == [7, 8]
    stream = iter([7, 8])
    assert to_form("stream", stream) is stream


def test_fields_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(
        ConfigError, match="first is one, second is a list; give all of them in the same form"
    ):
        to_rows({"first": ("a", is_text), "second": (["b"], is_text)})
    with pytest.raises(DataError, match="expected as many of each; got 2 of first, 1 of second"):
        to_rows({"first": (["a", "b"], is_text), "second": (["c"], is_text)})
    with pytest.raises(
        DataError,
        match=r"expected a text, a list or an iterator of texts; got dict: \{'text': 'a'\}",
    ):
        to_rows({"texts": ({"text": "a"}, is_text)})  # not its keys
    with pytest.raises(
        DataError, match="expected a text, a list or an iterator of texts; got int: 3"
    ):
        to_rows({"texts": (3, is_text)})
    form, rows = to_rows({"first": (iter("ab"), is_text), "second": (iter("abc"), is_text)})
    assert form == "stream"
    with pytest.raises(DataError, match="one of the iterators ended first"):
        list(rows)
