"""Tables in memory are read as files of the same rows are."""

import csv
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from litebert.errors import DataError
from litebert.tasks.examples import TaskExample
from litebert.tasks.registry import TableOptions, open_task
from litebert.tasks.task import TaskData

ROWS = [
    {"text": f"a story about {number}", "label": ("no", "yes")[number % 2]} for number in range(40)
]


class Frame:
    """What is used of a pandas DataFrame."""

    iloc = None

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def to_dict(self, orient: str) -> list[dict[str, Any]]:
        assert orient == "records"
        return self.rows


class Dataset:
    """What is used of a datasets.Dataset, whose classes are numbers with names beside them."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.features = {
            "text": SimpleNamespace(dtype="string"),
            "label": SimpleNamespace(names=["no", "yes"]),
        }

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)


def file_of(folder: Path) -> Path:
    path = folder / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["text", "label"])
        writer.writeheader()
        writer.writerows(ROWS)
    return path


def pyarrow_table(rows: list[dict[str, Any]]) -> Any:
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.Table.from_pylist(rows)


def pandas_frame(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("pandas").DataFrame(rows)


def content(data: TaskData) -> tuple[object, dict[str, list[TaskExample]]]:
    """The task and its examples, wherever their rows were read."""
    splits = data.splits.items()
    return data.task, {
        split: [replace(example, where="") for example in examples] for split, examples in splits
    }


@pytest.mark.parametrize(
    "wrap",
    [
        list,
        iter,
        Frame,
        pyarrow_table,
        pandas_frame,
        lambda rows: Dataset([row | {"label": int(row["label"] == "yes")} for row in rows]),
        lambda rows: {"train": rows},
    ],
)
def test_rows_in_memory_are_those_of_a_file(tmp_path: Path, wrap: Any) -> None:
    """The same splits too: dev is cut from train by the same hash."""
    expected = open_task("classify", file_of(tmp_path), splits=("train", "dev"))
    actual = open_task("classify", wrap(ROWS), splits=("train", "dev"))
    assert content(actual) == content(expected)
    assert actual.task.labels == ("no", "yes")
    assert any("columns recognized" in note for note in actual.notes)


def test_a_dict_has_splits_under_their_usual_names() -> None:
    data = open_task("classify", {"validation": ROWS[:10], "train": ROWS[10:], "test": ROWS[:3]})
    assert {split: len(examples) for split, examples in data.splits.items()} == {
        "train": 30,
        "dev": 10,
        "test": 3,
    }
    assert data.splits["dev"][0].where == "validation:1"


def test_a_single_table_can_be_scored_as_test() -> None:
    unlabeled = [{"text": row["text"]} for row in ROWS]
    options = TableOptions(labels=("no", "yes"))
    data = open_task("classify", unlabeled, options=options, splits=("test",))
    assert len(data.splits["test"]) == 40


def test_values_of_numpy_and_missing_ones_are_read() -> None:
    rows = [
        {"text": np.str_("one"), "label": np.int64(1), "note": math.nan},
        {"text": "two", "label": 2, "note": None},
    ]
    data = open_task("classify", {"train": rows, "dev": rows})
    assert [example.label for example in data.splits["train"]] == ["1", "2"]  # type: ignore[union-attr]
    words = [{"words": np.array(["a", "b"]), "tags": np.array(["O", "B-x"])}]
    tagged = open_task("tag", {"train": words, "dev": words})
    assert tagged.splits["train"][0].tags == ("O", "B-x")  # type: ignore[union-attr]
    with pytest.raises(DataError, match="rows, row 2: the field 'text' is null; fix it"):
        open_task("classify", [ROWS[0], {"text": math.nan, "label": "no"}])


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(DataError, match="a dict without splits; rows are a list of dicts"):
        open_task("classify", {})
    with pytest.raises(DataError, match=r"rows: expected a list of dicts, .*; got int"):
        open_task("classify", 3)
    with pytest.raises(DataError, match=r"has the splits .* as keys.*got: text, label; rows are"):
        open_task("classify", {"text": ["a"], "label": ["b"]})
    with pytest.raises(DataError, match="rows, row 1: the row is str, expected a dict"):
        open_task("classify", ["a text"])
    with pytest.raises(DataError, match="rte is read from its official files; data in memory are"):
        open_task("rte", ROWS)
    with pytest.raises(DataError, match="the data has no split 'test'; there is: train, dev"):
        open_task("classify", {"train": ROWS, "dev": ROWS}, splits=("test",))


def test_lists_of_class_numbers_are_several_labels() -> None:
    rows = [{"text": f"row {number}", "label": [0, 1][: number % 3]} for number in range(30)]
    data = Dataset(rows)
    data.features["label"] = SimpleNamespace(feature=SimpleNamespace(names=["no", "yes"]))
    task = open_task("classify", data)
    assert (task.task.head, task.task.labels) == ("multilabel", ("no", "yes"))
    assert {example.label for example in task.splits["train"]} == {(), ("no",), ("no", "yes")}  # type: ignore[union-attr]
