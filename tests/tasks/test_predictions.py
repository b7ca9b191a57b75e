"""Predictions come back from their file as they were; a file that is none says where."""

from dataclasses import replace
from pathlib import Path

import pytest

from litebert.errors import DataError
from litebert.tasks.predictions import load_predictions, save_predictions
from tests.helpers.predictions import TASKS, made


@pytest.mark.parametrize("kind", sorted(TASKS))
def test_what_is_saved_is_loaded(kind: str, tmp_path: Path) -> None:
    task, examples, predictions = made(kind, 7)
    save_predictions(tmp_path / "dev.jsonl", task, examples, predictions)
    assert load_predictions(tmp_path / "dev.jsonl") == (task, examples, predictions)
    assert [path.name for path in tmp_path.iterdir()] == ["dev.jsonl"]


def test_any_text_is_kept(tmp_path: Path) -> None:
    """Line separators of Unicode end no line."""
    task, examples, predictions = made("classify", 2)
    examples = [replace(each, first="a\u2028b\x85\n\r\x00\ud800é") for each in examples]  # type: ignore[type-var, call-arg]
    save_predictions(tmp_path / "dev.jsonl", task, examples, predictions)
    assert load_predictions(tmp_path / "dev.jsonl")[1] == examples


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (1, "{}"),
        (1, "{"),
        (1, '{"task": {"name": "x"}}'),
        (3, "[]"),
        (3, '{"example": {"key": 1}, "prediction": {}}'),
        (2, ""),
    ],
)
def test_a_broken_file_names_its_line(line: int, text: str, tmp_path: Path) -> None:
    task, examples, predictions = made("classify", 4)
    path = tmp_path / "dev.jsonl"
    save_predictions(path, task, examples, predictions)
    lines = path.read_text().splitlines()
    lines[line - 1] = text
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=rf"dev\.jsonl:{line} is no line of a file of predictions"):
        load_predictions(path)
    with pytest.raises(DataError, match="cannot be read: No such file"):
        load_predictions(tmp_path / "absent.jsonl")
