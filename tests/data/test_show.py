"""`litebert data show` says what stands there, what was masked, and the order in words."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from litebert import cli
from litebert.commands.data import show
from litebert.data.batch import Batch
from litebert.data.show import describe
from litebert.errors import ConfigError
from tests.helpers.toy_shards import toy_shard, write_folder

TOKENS = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁the", "▁cat", "s", "▁sat", "▁", "▁dog"]


def worked_example(label: int) -> Batch:
    """[CLS] the cats [SEP] ␣ sat [SEP]: `cat` replaced by dog, `s` by [MASK], the space kept."""
    return Batch(
        token_ids=np.array([[2, 5, 10, 4, 3, 9, 8, 3, 0]], np.int32),
        segment_ids=np.array([[0, 0, 0, 0, 0, 1, 1, 1, 0]], np.uint8),
        mask=np.array([[True] * 8 + [False]]),
        masked_positions=np.array([2, 3, 5]),
        masked_labels=np.array([6, 7, 9], np.int32),
        order_labels=np.array([label], np.int32),
        indices=np.array([12]),
    )


def test_worked_example() -> None:
    [example] = describe(worked_example(1), TOKENS, mask_id=4, order="sop")
    assert example.render().plain == (
        "example 12 · 8 tokens, 3 masked · swapped: the text has b before a\n[CLS] the "
        "⟦cat→dog⟧⟦s⟧ [SEP] ⟨␣⟩ sat [SEP]"
    )
    assert example.to_dict() == {
        "number": 12,
        "tokens": 8,
        "order_label": 1,
        "order": "swapped: the text has b before a",
        "a": "the cats",
        "b": "sat",
        "hidden": [
            {"segment": "a", "place": 1, "was": "▁cat", "is": "▁dog", "how": "random"},
            {"segment": "a", "place": 2, "was": "s", "is": "[MASK]", "how": "mask"},
            {"segment": "b", "place": 0, "was": "▁", "is": "▁", "how": "kept"},
        ],
    }


@pytest.mark.parametrize(
    ("order", "label", "words"),
    [
        ("sop", 0, "in order"),
        ("nsp", 0, "b follows a"),
        ("nsp", 1, "from another document"),
        ("none", 0, "not predicted"),
    ],
)
def test_the_order_is_said_in_words(order: str, label: int, words: str) -> None:
    [example] = describe(worked_example(label), TOKENS, mask_id=4, order=order)  # type: ignore[arg-type]
    assert words in example.order


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("shards") / "data", toy_shard())


def test_json_is_one_object(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(str(folder), count=2, max_length=32, seed=3, json=True)
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["examples"]) == 2
    assert all(example["tokens"] <= 32 for example in shown["examples"])
    show(str(folder), count=2, max_length=32, seed=3, json=True)
    assert json.loads(capsys.readouterr().out) == shown
    show(str(folder), count=2, max_length=32, seed=4, json=True)
    assert json.loads(capsys.readouterr().out) != shown


def test_masking_is_shown_as_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(str(folder), count=8, max_length=32, mask_fraction=0.5, mask_share=0.0, json=True)
    shown = json.loads(capsys.readouterr().out)["examples"]
    hidden = [token["how"] for example in shown for token in example["hidden"]]
    assert len(hidden) > 0.3 * sum(example["tokens"] for example in shown)
    assert set(hidden) == {"random", "kept"}


def test_text_names_each_example(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(str(folder), count=4, max_length=32)
    printed = capsys.readouterr().out
    assert printed.count("[CLS]") == 4
    assert printed.count("masked ·") == 4


@pytest.mark.parametrize("part", ["tokens", "sentences", "documents"])
def test_damaged_shards_are_not_shown(
    part: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder, tmp_path / "shards")
    [path] = (tmp_path / "shards").glob(f"*.{part}.npy")
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    assert cli.run(["data", "show", str(tmp_path / "shards")]) == 3
    assert f".{part}.npy" in capsys.readouterr().err


def test_count_is_checked(folder: Path) -> None:
    with pytest.raises(ConfigError, match="count is at least 1"):
        show(str(folder), count=0)
