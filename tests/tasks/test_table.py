"""One's own files: labels found, splits cut without leaks, and clear words for what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from litebert.errors import DataError
from litebert.tasks.examples import ChoiceExample, TextExample
from litebert.tasks.registry import OWN, TableOptions, open_task
from litebert.testing import TINY_SPLITS, tiny_task

Table = list[dict[str, Any]]
MOVIES: Table = [
    {"review": f"film {number}", "sentiment": ("good", "bad")[number % 2]} for number in range(40)
]


def write(path: Path, table: Table) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        import pyarrow as arrow
        import pyarrow.parquet

        arrow.parquet.write_table(arrow.Table.from_pylist(table), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table))
    else:
        mark = {".csv": ",", ".tsv": "\t"}[path.suffix]
        path.write_text(
            "".join(
                mark.join(map(str, cells)) + "\n"
                for cells in [list(table[0]), *(row.values() for row in table)]
            )
        )
    return path


def plain(examples: Any) -> list[Any]:
    """All that does not depend on the kind of file."""
    return [
        example.__class__(
            **{name: getattr(example, name) for name in example.__slots__ if name != "where"}
        )
        for example in examples
    ]


@pytest.mark.parametrize("kind", OWN)
def test_every_kind_reads_and_is_cut(tmp_path: Path, kind: str) -> None:
    data = open_task(kind, tiny_task(tmp_path, kind))
    full = sum(TINY_SPLITS.values())
    assert {split: len(examples) for split, examples in data.splits.items()} == {
        "train": full - 7,
        "dev": 7,
    }
    assert data.notes[0].startswith(f"{kind}.")
    assert "columns recognized" in data.notes[0]
    how = ", with its share of every label" if kind in ("classify", "pair") else ""
    assert data.notes[1] == f"dev is 7 of the 72 rows, cut from train{how} (seed 0)"
    assert data.stratified == bool(how)
    assert bool(data.task.labels) == (kind in ("classify", "pair", "tag"))


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_kind_of_file_gives_the_same_examples(tmp_path: Path, suffix: str) -> None:
    data = open_task("classify", write(tmp_path / f"movies{suffix}", MOVIES))
    same = open_task("classify", write(tmp_path / "other.jsonl", MOVIES))
    for split in ("train", "dev"):
        assert plain(data.splits[split]) == plain(same.splits[split])
    assert data.task == same.task
    assert data.task.labels == ("bad", "good")


def test_columns_are_taken_as_named(tmp_path: Path) -> None:
    table = [
        {"a": "x y", "b": "1", "text": "no", "label": str(number), "when": "now"}
        for number in range(3)
    ]
    options = TableOptions(text="a", label="label", slice="when", key="b", dev_fraction=0)
    data = open_task("classify", write(tmp_path / "t.csv", table), options=options)
    assert plain(data.splits["train"])[0] == TextExample(
        key="1", first="x y", label="0", slice="now"
    )
    assert data.notes == ()


def test_a_folder_with_three_splits_of_different_kinds(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", MOVIES)
    write(
        tmp_path / "validation.jsonl",
        [{"text": "film x", "label": "bad"}, {"text": "film 3", "label": "bad"}],
    )
    write(tmp_path / "test.tsv", [{"text": "film y", "none": ""}, {"text": "film z", "none": ""}])
    data = open_task("classify", tmp_path)
    assert {split: len(examples) for split, examples in data.splits.items()} == {
        "train": 40,
        "dev": 2,
        "test": 2,
    }
    assert [example.label for example in plain(data.splits["test"])] == [None, None]
    assert data.notes[-1] == "1 of 2 examples of dev have their text in train, too"
    assert list(open_task("classify", tmp_path, splits=["dev"]).splits) == ["dev"]


def test_json_rows_need_not_all_have_every_field(tmp_path: Path) -> None:
    rows: Table = [
        {"label": "a"},
        *({"label": "ab"[number % 2], "text": f"x{number}"} for number in range(9)),
    ]
    path = write(tmp_path / "t.jsonl", rows)
    with pytest.raises(
        DataError, match=r"t\.jsonl, line 1: the row has no field 'text'; it has: label; fix it"
    ):
        open_task("classify", path)
    data = open_task("classify", path, options=TableOptions(bad_rows="skip"))
    assert sum(map(len, data.splits.values())) == 9


def test_a_large_table_in_parts(tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / f"train-0000{number}-of-00002.parquet", MOVIES[number * 20 :][:20])
    data = open_task("classify", tmp_path, options=TableOptions(dev_fraction=0))
    assert [example.first for example in plain(data.splits["train"])] == [
        row["review"] for row in MOVIES
    ]


def test_one_file_as_train_dev_and_test_or_as_test_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", MOVIES)
    options = TableOptions(dev_fraction=0.25, test_fraction=0.25)
    data = open_task("classify", path, options=options)
    assert {split: len(examples) for split, examples in data.splits.items()} == {
        "train": 20,
        "dev": 10,
        "test": 10,
    }
    assert len(open_task("classify", path, splits=["test"]).splits["test"]) == 40
    assert (
        open_task("classify", path, options=options, splits=["test"]).splits["test"]
        == data.splits["test"]
    )


def test_labels_in_order_and_as_given(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.csv", [{"text": f"x{number}", "label": number % 11} for number in range(44)]
    )
    assert open_task("classify", path).task.labels == tuple(map(str, range(11)))
    given = tuple(map(str, reversed(range(12))))
    assert open_task("classify", path, options=TableOptions(labels=given)).task.labels == given
    with pytest.raises(
        DataError, match=r"t\.csv, line 4: the label '2' is unknown; known are: 0, 1;"
    ):
        open_task("classify", path, options=TableOptions(labels=("0", "1")))


def test_a_label_called_nan_is_no_number(tmp_path: Path) -> None:
    """Nothing is larger or smaller than it: the labels had another order in every process."""
    labels = [*map(str, range(60)), "NAN", "NaN", "naN", "nan"]
    path = write(
        tmp_path / "t.csv",
        [{"text": f"x{number}", "label": labels[number % 64]} for number in range(128)],
    )
    assert open_task("classify", path).task.labels == tuple(labels)


def test_train_is_not_read_where_the_labels_are_known(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("broken")
    write(tmp_path / "test.csv", MOVIES)
    data = open_task(
        "classify", tmp_path, options=TableOptions(labels=("good", "bad")), splits=["test"]
    )
    assert len(data.splits["test"]) == 40


def test_a_split_that_is_not_asked_for_is_not_read(tmp_path: Path) -> None:
    """Many benchmarks' test files hold -1 where the label is kept back: nobody trains on them."""
    write(tmp_path / "train.csv", MOVIES)
    write(tmp_path / "dev.csv", MOVIES[:4])
    write(tmp_path / "test.csv", [{"review": "film", "sentiment": "-1"}])
    assert list(open_task("classify", tmp_path, splits=["train", "dev"]).splits) == ["train", "dev"]
    with pytest.raises(DataError, match=r"test\.csv, line 2: the label '-1' is unknown"):
        open_task("classify", tmp_path, splits=["test"])
    with pytest.raises(DataError, match=r"has no split 'other'; there is: train, dev, test;"):
        open_task("classify", tmp_path, splits=["other"])


def test_what_has_a_file_is_not_cut_where_it_is_not_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", MOVIES)
    write(tmp_path / "dev.csv", MOVIES[:4])
    write(tmp_path / "test.csv", MOVIES[:4])
    options = TableOptions(labels=("good", "bad"), test_fraction=0.5)
    for splits in (["train"], ["test", "train"], ["train", "dev"]):
        data = open_task("classify", tmp_path, options=options, splits=splits)
        assert len(data.splits["train"]) == 40
        assert not any("cut from train" in note for note in data.notes)


def test_answers_of_ones_own_may_be_missing_and_may_be_in_squads_layout(tmp_path: Path) -> None:
    rows = [
        {"question": "?", "context": f"one {number}", "answer": "one" if number % 2 else ""}
        for number in range(30)
    ]
    task = open_task("answer", write(tmp_path / "t.csv", rows)).task
    assert (task.has_null, task.head) == (True, "joint_span")
    task = open_task("answer", write(tmp_path / "u.csv", rows[1::2])).task
    assert (task.has_null, task.head) == (False, "span")
    tiny_task(tmp_path / "squad", "squad2")
    data = open_task("answer", tmp_path / "squad/train-v2.0.json")
    assert sum(map(len, data.splits.values())) == TINY_SPLITS["train"]


@pytest.mark.parametrize(
    ("kind", "table", "message"),
    [
        (
            "classify",
            [{"text": "a", "label": "x"}, {"text": "b", "label": "x"}],
            r"t\.csv: the only label is 'x', in 2 places; two or more are needed to learn",
        ),
        (
            "regress",
            [{"text": "a", "score": 1}, {"text": "b", "score": 1}],
            "the only number is 1.0, in 2 places",
        ),
        (
            "classify",
            [{"text": "a", "label": "x"}, {"text": "", "label": "y"}],
            r"t\.csv, line 3: the field 'text' is empty; .*--bad-rows",
        ),
        (
            "classify",
            [{"text": "a", "label": "x"}, {"text": "b", "label": ""}],
            r"t\.csv, line 3: the row has no label",
        ),
        (
            "classify",
            [{"text": "a", "label": f"l{number}"} for number in range(60)],
            "all 60 rows have labels of their own, such as 'l0'; name the label's column",
        ),
        (
            "classify",
            [{"text": "a", "label": "x"}, {"text": "a", "label": "y"}],
            "train has 2 rows, too few different ones to cut 10% off for dev; give a file for dev",
        ),
    ],
)
def test_tables_that_cannot_be_learned_from(
    tmp_path: Path, kind: str, table: Table, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        open_task(kind, write(tmp_path / "t.csv", table))


def test_files_and_folders_that_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,label\n")
    with pytest.raises(DataError, match=r"t\.csv: there is no row to train on$"):
        open_task("classify", tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("")
    with pytest.raises(DataError, match=r"t\.csv, line 1: the file is empty"):
        open_task("classify", tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("text,label\n,x\n,y\n")
    with pytest.raises(
        DataError,
        match=(
            r"no row to train on; 2 bad rows were left out, the first: .*, line 2: the field "
            r"'text' is empty"
        ),
    ):
        open_task("classify", tmp_path / "t.csv", options=TableOptions(bad_rows="skip"))
    with pytest.raises(
        DataError, match=r"holds no train, dev or test file; expected train\.csv, dev\.csv"
    ):
        open_task("classify", tmp_path)
    (tmp_path / "t.txt").write_text("x")
    with pytest.raises(
        DataError, match=r"t\.txt: the name does not say what table it is; expected \.csv, \.tsv"
    ):
        open_task("classify", tmp_path / "t.txt")
    write(tmp_path / "train.csv", MOVIES)
    with pytest.raises(
        DataError, match=r"has no split 'test'; there is: train, dev; expected a file test.csv"
    ):
        open_task("classify", tmp_path, splits=["test"])
    write(tmp_path / "train.jsonl", MOVIES)
    with pytest.raises(
        DataError, match=r"holds train\.csv and train\.jsonl; which of them is train\? Keep one"
    ):
        open_task("classify", tmp_path)


@pytest.mark.parametrize("kind", ["classify", "tag"])
def test_an_unknown_label_in_the_test_split(tmp_path: Path, kind: str) -> None:
    rows = [{"text": f"w{number}", "label": "ab"[number % 2]} for number in range(20)]
    write(tmp_path / "train.csv", rows)
    write(tmp_path / "test.csv", [{"text": "w", "label": "a"}, {"text": "v", "label": "c"}])
    with pytest.raises(
        DataError,
        match=(
            r"test\.csv, line 3: the label 'c' is unknown; known are: a, b; fix it, or leave it "
            r"out"
        ),
    ):
        open_task(kind, tmp_path)
    data = open_task(kind, tmp_path, options=TableOptions(bad_rows="skip"))
    assert len(data.splits["test"]) == 1
    assert "1 bad row was left out" in data.notes[-1]


def test_choices_about_one_context_stay_together(tmp_path: Path) -> None:
    rows = [
        {
            "article": f"text {number // 5}",
            "question": f"q{number}",
            "options": ["a", "b"],
            "answer": "A",
        }
        for number in range(100)
    ]
    data = open_task("choose", write(tmp_path / "t.jsonl", rows))
    contexts = {
        split: {example.context for example in examples if isinstance(example, ChoiceExample)}
        for split, examples in data.splits.items()
    }
    assert len(data.splits["dev"]) == 10
    assert not contexts["train"] & contexts["dev"]
