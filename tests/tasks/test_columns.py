"""Columns are recognized or taken as named, and rows become examples or say why they cannot."""

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.data.bad_rows import BadRowError
from litebert.errors import ConfigError, DataError
from litebert.tasks.examples import Answer, AnswerExample, Kind, TagExample, TextExample
from litebert.tasks.tables.columns import Columns, TableOptions, find_columns
from litebert.tasks.tables.example import row_to_example


@pytest.mark.parametrize(
    ("kind", "names", "columns"),
    [
        ("classify", "Review Sentiment", Columns(text="Review", label="Sentiment")),
        ("classify", "id text label", Columns(text="text", label="label", key="id")),
        ("classify", "blurb label", Columns(text="blurb", label="label")),  # the only one left
        ("classify", "sentence mood", Columns(text="sentence", label="mood")),
        ("classify", "id blurb label", Columns(text="blurb", label="label", key="id")),
        (
            "pair",
            "premise hypothesis gold_label",
            Columns(text="premise", second="hypothesis", label="gold_label"),
        ),
        (
            "pair",
            "question sentence label",
            Columns(text="question", second="sentence", label="label"),
        ),
        (
            "pair",
            "#1-String #2-String Quality",
            Columns(text="#1-String", second="#2-String", label="Quality"),
        ),
        ("regress", "text score", Columns(text="text", label="score")),
        (
            "regress",
            "sentence1 sentence2 score",
            Columns(text="sentence1", second="sentence2", label="score"),
        ),
        (
            "choose",
            "article question options answer",
            Columns(context="article", question="question", options=("options",), label="answer"),
        ),
        (
            "choose",
            "question option_b option_a answer",
            Columns(question="question", options=("option_a", "option_b"), label="answer"),
        ),
        (
            "choose",
            "ctx ending0 ending1 ending2 label",
            Columns(context="ctx", options=("ending0", "ending1", "ending2"), label="label"),
        ),
        (
            "choose",
            "question A B C D answer",
            Columns(question="question", options=("A", "B", "C", "D"), label="answer"),
        ),
        (
            "choose",
            "question choice1 choice2 choice10 label",
            Columns(question="question", options=("choice1", "choice2", "choice10"), label="label"),
        ),
        (
            "answer",
            "id title context question answers",
            Columns(key="id", context="context", question="question", answer="answers"),
        ),
        (
            "answer",
            "question passage answer answer_start",
            Columns(
                context="passage", question="question", answer="answer", answer_start="answer_start"
            ),
        ),
        ("tag", "id tokens ner_tags", Columns(key="id", words="tokens", tags="ner_tags")),
    ],
)
def test_columns_are_recognized(kind: Kind, names: str, columns: Columns) -> None:
    found, told = find_columns(kind, names.split(), labeled=True)
    assert found == columns
    assert told.startswith("columns recognized: ")
    assert all(repr(name) in told for name in names.split() if name not in ("title",))


@pytest.mark.parametrize(
    ("kind", "names", "options", "error", "message"),
    [
        (
            "classify",
            "txt lbl",
            {},
            DataError,
            r"f\.csv: no column is recognized as the label of classify \(by names such as label,"
            r".*; the table has: 'txt', 'lbl'; say which one it is with --label NAME, or give the "
            r"table a header line",
        ),
        ("classify", "text kind_of label2", {}, DataError, "recognized as the label of classify"),
        (
            "pair",
            "sentence1 label",
            {},
            DataError,
            "no column is recognized as the second of pair .*--second NAME",
        ),
        ("choose", "options answer", {}, DataError, "recognized as the question of choose"),
        (
            "choose",
            f"question option{'1' * 5000} label z",
            {},
            DataError,
            "as the options of choose",
        ),
        (
            "answer",
            "question answer_start context",
            {},
            DataError,
            "recognized as the answer of answer .*--answer NAME",
        ),
        (
            "classify",
            "text label",
            {"label": "lable"},
            DataError,
            "there is no column 'lable' for label; did you mean 'label'",
        ),
        (
            "classify",
            "text label",
            {"text": "body"},
            DataError,
            "there is no column 'body' for text; the table has: 'text', 'label'",
        ),
        (
            "classify",
            "text label",
            {"second": "b"},
            ConfigError,
            "classify has no column for second; it has: label, text",
        ),
    ],
)
def test_missing_columns_are_said(
    kind: Kind, names: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        find_columns(kind, names.split(), TableOptions(**options), where="f.csv", labeled=True)


def test_a_test_split_may_have_no_labels() -> None:
    named = TableOptions(text="blurb", label="mood")
    assert find_columns("classify", ["blurb", "x", "y"], named)[0] == Columns(text="blurb")
    assert find_columns("classify", ["blurb"])[0] == Columns(text="blurb")  # the only one left
    assert find_columns("classify", ["text"])[0] == Columns(text="text")
    assert find_columns("answer", ["question", "context"])[0] == Columns(
        question="question", context="context"
    )
    assert row_to_example("classify", {"text": "x"}, Columns(text="text")) == TextExample(
        key="", first="x"
    )
    assert row_to_example("tag", {"text": "x y"}, Columns(words="text")) == TagExample(
        key="", words=("x", "y")
    )
    unknown = row_to_example("answer", {"q": "?", "c": "x"}, Columns(question="q", context="c"))
    assert isinstance(unknown, AnswerExample)
    assert unknown.answers is None


T, L = Columns(text="t", label="l"), Columns(text="t", second="s", label="l")
C = Columns(context="c", question="q", options=("o",), label="l")
A = Columns(context="c", question="q", answer="a", answer_start="s")
W = Columns(words="w", tags="t")
ABC = {"c": "x", "q": "y", "o": ["one", "2", "b"]}
TEXT = "one two one"


@pytest.mark.parametrize(
    ("kind", "columns", "row", "truth"),
    [
        ("classify", T, {"t": "x", "l": " yes "}, "yes"),
        ("classify", T, {"t": "x", "l": 3}, "3"),
        ("classify", T, {"t": "x", "l": 3.0}, "3"),  # of a column with gaps
        ("classify", T, {"t": "x", "l": True}, "true"),
        ("classify", T, {"t": "x", "l": None}, None),
        ("classify", T, {"t": "x", "l": float("nan")}, None),
        ("regress", T, {"t": "x", "l": "3.5"}, 3.5),
        ("regress", T, {"t": "x", "l": -2}, -2.0),
        ("regress", T, {"t": "x", "l": ""}, None),
        ("choose", C, {**ABC, "l": "A"}, 0),
        ("choose", C, {**ABC, "l": "c"}, 2),
        ("choose", C, {**ABC, "l": 1}, 1),
        ("choose", C, {**ABC, "l": 2}, 2),  # a number is a place, also where it is an option
        ("choose", C, {**ABC, "l": "0"}, 0),
        ("choose", C, {**ABC, "l": "one"}, 0),
        ("choose", C, {**ABC, "o": '["x", "y"]', "l": "y"}, 1),  # a list in a CSV file
        ("choose", C, {**ABC, "l": None}, None),
        ("answer", A, {"c": TEXT, "q": "?", "a": "one", "s": None}, (Answer(text="one", start=0),)),
        ("answer", A, {"c": TEXT, "q": "?", "a": "one", "s": "8"}, (Answer(text="one", start=8),)),
        ("answer", A, {"c": TEXT, "q": "?", "a": "one", "s": 7.0}, (Answer(text="one", start=8),)),
        (
            "answer",
            A,
            {"c": TEXT, "q": "?", "a": ["two", "one"], "s": [4, 8]},
            (Answer(text="two", start=4), Answer(text="one", start=8)),
        ),
        (
            "answer",
            A,
            {"c": TEXT, "q": "?", "a": {"text": ["one"], "answer_start": [8]}},
            (Answer(text="one", start=8),),
        ),
        (
            "answer",
            A,
            {"c": TEXT, "q": "?", "a": [{"text": "one", "answer_start": 8}]},
            (Answer(text="one", start=8),),
        ),
        ("answer", A, {"c": "a [1] b", "q": "?", "a": "[1] b"}, (Answer(text="[1] b", start=2),)),
        (
            "answer",
            A,
            {"c": TEXT, "q": "?", "a": '{"text": ["two"], "answer_start": [4]}'},
            (Answer(text="two", start=4),),
        ),
        ("answer", A, {"c": TEXT, "q": "?", "a": "", "s": ""}, ()),
        ("answer", A, {"c": TEXT, "q": "?", "a": None}, ()),
        ("answer", A, {"c": TEXT, "q": "?", "a": {"text": [], "answer_start": []}}, ()),
        ("tag", W, {"w": "a b", "t": "X O"}, ("X", "O")),
        ("tag", W, {"w": ["a", "b c"], "t": [1, 0]}, ("1", "0")),
        ("tag", W, {"w": '["a", "b"]', "t": '["X", "O"]'}, ("X", "O")),
        ("tag", W, {"w": "[1] a [2]", "t": "X O X"}, ("X", "O", "X")),
        ("tag", W, {"w": "a b", "t": ""}, None),
    ],
)
def test_rows_become_examples(
    kind: Kind, columns: Columns, row: dict[str, Any], truth: Any
) -> None:
    example = row_to_example(kind, row, columns)
    actual = (
        example.answers
        if isinstance(example, AnswerExample)
        else example.tags
        if isinstance(example, TagExample)
        else example.label
    )
    assert actual == truth
    assert type(actual) is type(truth)
    if truth is None:
        with pytest.raises(BadRowError, match=r"the row has no (label|tags)"):
            row_to_example(kind, row, columns, labeled=True)


@pytest.mark.parametrize(
    ("kind", "columns", "row", "message"),
    [
        ("classify", T, {"l": "x"}, "the row has no field 't'; it has: l"),
        ("classify", T, {"t": "x"}, "the row has no field 'l'; it has: t"),
        ("classify", T, {"t": " ", "l": "x"}, "the field 't' is empty"),
        ("classify", T, {"t": None, "l": "x"}, "the field 't' is null"),
        ("classify", T, {"t": 3, "l": "x"}, "the field 't' holds int, expected text"),
        ("classify", T, {"t": "a\0b", "l": "x"}, "the field 't' holds a NUL character"),
        ("classify", T, {"t": "a\ud800", "l": "x"}, "the field 't' holds half of a surrogate pair"),
        (
            "classify",
            T,
            {"t": "a", "l": [["x"]]},
            "the field 'l' holds list, expected a word or a number",
        ),
        ("pair", L, {"t": "a", "s": "", "l": "x"}, "the field 's' is empty"),
        (
            "regress",
            T,
            {"t": "a", "l": "many"},
            "the field 'l' is 'many', expected a finite number",
        ),
        ("regress", T, {"t": "a", "l": float("inf")}, "'inf', expected a finite number"),
        (
            "choose",
            C,
            {**ABC, "l": "D"},
            "the right option is 'D', expected a letter A to C, a number 0 to 2, or an option",
        ),
        ("choose", C, {**ABC, "l": 3}, "the right option is '3'"),
        ("choose", C, {**ABC, "l": "9" * 5000}, r"the right option is '999.*\(5,000 characters\)"),
        (
            "choose",
            C,
            {**ABC, "o": ["x", "y"] * 20, "l": 40},
            "expected a letter A to Z, a number 0",
        ),
        (
            "choose",
            C,
            {**ABC, "l": "2"},
            "the right option '2' may be option 1 or 2, counted from 0",
        ),
        ("choose", C, {**ABC, "l": "b"}, "the right option 'b' may be option 1 or 2"),
        ("choose", C, {**ABC, "o": ["x"], "l": "A"}, "there are 1 options, expected two or more"),
        ("choose", C, {**ABC, "o": "x, y", "l": "A"}, "the field 'o' is no list of texts"),
        (
            "answer",
            A,
            {"c": TEXT, "q": "?", "a": "three"},
            "the answer 'three' is not in the context",
        ),
        (
            "answer",
            A,
            {"c": TEXT, "q": "?", "a": "one", "s": "x"},
            "the answer's start is 'x', expected a whole number",
        ),
        ("answer", A, {"c": TEXT, "q": "?", "a": 3}, "an answer is int, expected text"),
        ("tag", W, {"w": "a b", "t": "X"}, "there are 2 words and 1 tags"),
        ("tag", W, {"w": "", "t": "X"}, "there are no words"),
        ("tag", W, {"w": ["a", " "], "t": "X O"}, "word 2 is empty"),
        ("tag", W, {"w": ["a", "b"], "t": ["X", ""]}, "tag 2 is empty"),
        ("tag", W, {"w": {"a": 1}, "t": "X"}, "the field 'w' is no list of texts"),
        (
            "tag",
            W,
            {"w": "['a', 'b']", "t": "['X', 'O']"},
            r"the field 'w' is a list that is no JSON; expected it written as \[",
        ),
        (
            "tag",
            W,
            {"w": "['a' \"b's\"]", "t": "['X' 'O']"},
            "the field 'w' is a list that is no JSON",
        ),
        ("tag", W, {"w": "a b", "t": "['X', 'O']"}, "the field 't' is a list that is no JSON"),
        ("tag", W, {"w": "a b", "t": "[1 0]"}, "the field 't' is a list that is no JSON"),
    ],
)
def test_rows_that_cannot_be_used(
    kind: Kind, columns: Columns, row: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadRowError, match=message):
        row_to_example(kind, row, columns)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["x", "[", "{", '["a"]', "1"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["text", "answer_start"]), inner)
    ),
)


@given(
    st.sampled_from(
        [("classify", T), ("pair", L), ("regress", T), ("choose", C), ("answer", A), ("tag", W)]
    ),
    st.data(),
)
@settings(max_examples=150, deadline=None)
def test_no_value_makes_anything_but_an_example_or_a_reason(
    case: tuple[Kind, Columns], data: st.DataObject
) -> None:
    kind, columns = case
    row = {name: data.draw(VALUES) for name in "tslcqoaw"}
    for name in data.draw(st.sets(st.sampled_from("tcq"))):
        row[name] = "x y"
    with contextlib.suppress(BadRowError):
        example = row_to_example(kind, row, columns, labeled=True)
        if isinstance(example, AnswerExample):
            assert all(
                example.context[answer.start :].startswith(answer.text)
                for answer in example.answers or ()
            )
