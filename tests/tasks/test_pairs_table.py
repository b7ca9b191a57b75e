"""Tables of related texts: what the columns say, NLI rows as pairs, scores as cosines, a teacher's
vectors; and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litebert.errors import DataError
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.tables.pairs import (
    EmbedData,
    open_pairs,
    open_scored_pairs,
    open_teacher,
)
from litebert.tasks.tables.units import Units


def units(train: Units) -> list[tuple[str, ...]]:
    return [
        tuple(train.texts[number] for number in train.numbers[start:end])
        for start, end in zip(train.bounds[:-1], train.bounds[1:], strict=True)
    ]


def read(rows: list[dict[str, Any]], **options: Any) -> EmbedData:
    return open_pairs(rows, options=TableOptions(**options))


def test_pairs_and_triplets() -> None:
    rows = [
        {"positive": "b", "anchor": "a", "negative": "c"},
        {"positive": "a", "anchor": "d", "negative": None},
    ]
    data = read(rows)
    assert units(data.train) == [("a", "b", "c"), ("d", "a")]
    assert data.train.relation == "contrast"
    assert not data.train.is_alone
    assert data.train.texts == ["a", "b", "c", "d"]  # equal texts have one number
    assert "text is 'anchor', second is 'positive', negative is 'negative'" in data.notes[0]


def test_several_negatives() -> None:
    rows = [{"query": "a", "pos": "b", "negative_1": "c", "negative_2": "d"}]
    assert units(read(rows).train) == [("a", "b", "c", "d")]
    rows = [{"query": "a", "pos": "b", "neg": ["c", "d"]}]
    assert units(read(rows).train) == [("a", "b", "c", "d")]


def test_nli_rows_are_pairs_with_hard_negatives(tmp_path: Path) -> None:
    lines = [
        "premise\thypothesis\tlabel",
        "p\te1\tentailment",
        "p\tn\tneutral",
        "p\tc\tcontradiction",
        "p\te2\tentailment",
        "q\tx\tcontradiction",  # no entailment, no pair
        "r\te3\tentailment",
        "r\tu\t-",
    ]
    path = tmp_path / "nli.tsv"
    path.write_text("\n".join(lines) + "\n")
    data = open_pairs(path)
    assert units(data.train) == [("p", "e1", "c"), ("p", "e2", "c"), ("r", "e3")]
    assert "3 pairs of 7 NLI rows, 2 with a hard negative" in data.notes[1]


def test_scored_pairs_are_cosines_from_0_to_1() -> None:
    rows = [{"text_a": "a", "text_b": "b", "score": score} for score in (1, 2.5, 4)]
    train = read(rows).train
    assert train.relation == "score"
    assert train.scores is not None
    assert train.scores.tolist() == [0, 0.5, 1]


def test_texts_alone_are_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("one\ntwo\n")
    train = open_pairs(path).train
    assert units(train) == [("one", "one"), ("two", "two")]
    assert train.is_alone


def test_named_columns() -> None:
    rows = [{"left": "a", "right": "b", "note": "x"}]
    assert units(read(rows, text="left", second="right").train) == [("a", "b")]


def test_a_folder_with_dev(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("anchor,positive\na,b\n")
    (tmp_path / "dev.csv").write_text("text_a,text_b,score\na,b,5\nc,d,1\n")
    dev = open_pairs(tmp_path).dev
    assert dev is not None
    assert [(pair.first, pair.second, pair.label) for pair in dev] == [("a", "b", 5), ("c", "d", 1)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"x": "a", "y": "b"}], "columns are not recognized"),
        ([{"anchor": "a", "positive": " "}], "positive is empty, expected a text"),
        (
            [{"premise": "a", "hypothesis": "b", "label": 3}],
            "the label is '3', expected entailment",
        ),
        ([{"text_a": "a", "text_b": "b", "score": "x"}], "score is 'x', expected a number"),
        ([{"text_a": "a", "text_b": "b", "score": 1}], "all scores are 1"),
        ([{"text_a": "a", "text_b": "b", "score": 10**400}], "score is 1000.*expected a number"),
        ([{"premise": "a", "hypothesis": "b", "label": "neutral"}], "no row to train on"),
    ],
)
def test_what_is_refused(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(rows)


def test_bad_rows_may_be_skipped() -> None:
    rows = [{"anchor": "a", "positive": ""}, {"anchor": "a", "positive": "b"}]
    data = read(rows, bad_rows="skip")
    assert units(data.train) == [("a", "b")]
    assert "1 bad row was left out" in data.notes[-1]


def test_scored_pairs_need_two_texts() -> None:
    with pytest.raises(DataError, match="second text of a scored pair"):
        open_scored_pairs([{"text": "a", "score": 1}])
    with pytest.raises(DataError, match="needs two scored pairs; got 1"):
        open_scored_pairs([{"text_a": "a", "text_b": "b", "score": 1}])


def test_scored_pairs_of_a_folder_are_those_of_dev(tmp_path: Path) -> None:
    for split, count in (("train", 9), ("dev", 4), ("test", 3)):
        rows = [f"a {number},b {number},{number}" for number in range(count)]
        (tmp_path / f"{split}.csv").write_text("\n".join(["text_a,text_b,score", *rows]))
    assert len(open_scored_pairs(tmp_path)[0]) == 4
    (tmp_path / "dev.csv").unlink()
    with pytest.raises(DataError, match="has train, test; name the file to score"):
        open_scored_pairs(tmp_path)
    (tmp_path / "train.csv").unlink()
    assert len(open_scored_pairs(tmp_path)[0]) == 3


def test_a_teacher(tmp_path: Path) -> None:
    vectors, texts = tmp_path / "vectors.npy", tmp_path / "texts.txt"
    np.save(vectors, np.eye(3, dtype=np.float16)[:2])
    texts.write_text("one\none\n")
    train = open_teacher(vectors, texts)
    assert (train.relation, units(train)) == ("teacher", [("one",), ("one",)])
    assert train.vectors is not None
    assert train.vectors.dtype == np.float32
    assert train.vectors.tolist() == [[1, 0, 0], [0, 1, 0]]


def test_a_teacher_that_does_not_fit(tmp_path: Path) -> None:
    vectors, texts = tmp_path / "vectors.npy", tmp_path / "texts.txt"
    texts.write_text("one\ntwo\n")
    with pytest.raises(DataError, match="no such file; expected a teacher's vectors"):
        open_teacher(vectors, texts)
    for content in (b"", b"PK\x03\x04 cut off"):
        vectors.write_bytes(content)
        with pytest.raises(DataError, match=r"vectors\.npy cannot be read as \.npy"):
            open_teacher(vectors, texts)
    np.save(vectors, np.ones((3, 2), np.float32))
    with pytest.raises(DataError, match=r"has 2 texts, .* 3 vectors; row n belongs to line n"):
        open_teacher(vectors, texts)
    np.save(vectors, np.ones((2, 2), np.int64))
    with pytest.raises(DataError, match="expected float16 or float32"):
        open_teacher(vectors, texts)
    np.save(vectors, np.array([[1, np.nan], [0, 1]], np.float32))
    with pytest.raises(DataError, match="some numbers are not finite"):
        open_teacher(vectors, texts)
    np.save(vectors, np.ones((2, 2), np.float32))
    texts.write_text("one\n\n")
    with pytest.raises(DataError, match="line 2 is empty"):
        open_teacher(vectors, texts)
    with pytest.raises(DataError, match=r"expected a \.txt file"):
        open_teacher(vectors, tmp_path / "texts.csv")
