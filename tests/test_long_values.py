"""A value of 100,000 characters is echoed by its beginning: of flags, config keys and columns."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import litebert
from litebert import cli
from litebert.config import EXPORT_FORMAT, EncoderConfig, HeadConfig, ModelConfig
from litebert.convert.folder import convert_folder
from litebert.data.build import BuildOptions
from litebert.data.shards import PARTS, Shards
from litebert.data.spec import ExampleSpec
from litebert.errors import LitebertError
from litebert.files import verify_folder
from litebert.infer.exported import VERSION, read_export
from litebert.recipes import EmbedRecipe, FinetuneRecipe, PretrainRecipe
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.tables.table import open_table
from litebert.tasks.task import TaskCard
from litebert.testing import tiny_tokenizer
from litebert.train.folder import differences
from tests.helpers.models import save_model

LONG = "x" * 100_000
MOST = 4_000
"""Characters of the longest error, with its list of what is known."""


def length_of_error(call: Callable[[], object]) -> int:
    """0 without an error; a required field that is missing is Python's own TypeError."""
    try:
        call()
    except LitebertError as wrong:
        return len(str(wrong))
    except TypeError:
        pass
    return 0


def error_of(call: Callable[[], object]) -> str:
    with pytest.raises(LitebertError) as wrong:
        call()
    return str(wrong.value)


def flags() -> Iterator[tuple[str, str]]:
    """Flags, one of each type and each that takes a text, beside a command that has it."""
    seen = set()
    for line in (Path(__file__).parent / "command_line.txt").read_text().splitlines():
        if line.startswith("litebert "):
            command = line.removeprefix("litebert ")
        elif line.strip().startswith("--"):
            flag, _, kind = line.strip().partition(" ")
            look = flag if "STR" in kind else kind
            if look not in seen and command not in ("demo", "lab run", "serve"):
                seen.add(look)
                yield command, flag.rstrip(",")


def test_every_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checked = 0
    for command, flag in flags():
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            code = cli.run([*command.split(), flag, LONG])
        assert code in (1, 2, 3), (command, flag)
        assert len(printed.getvalue()) < MOST, (command, flag)
        checked += 1
    assert checked > 60


def test_every_positional_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = save_model(tmp_path / "model", "masked", "classify")
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("a sentence\n")
    commands = [
        [LONG],
        ["info", LONG],
        ["report", LONG],
        ["convert", LONG, "out"],
        ["fill", LONG, "--model", str(model)],
        ["classify", "a", "--model", LONG],
        ["predict", LONG, "--model", str(model), "--out", "out.csv"],
        ["predict", str(corpus), "--model", str(model), "--out", f"{LONG}.csv"],
        ["finetune", LONG, "--model", str(model), "--data", str(corpus), "--out", "run"],
        ["finetune", "rte", "--model", str(model), "--data", LONG, "--out", "run"],
        ["evaluate", LONG, "--model", str(model), "--data", str(corpus)],
        ["tokenizer", "train", LONG, "--out", "tokenizer"],
        ["tokenizer", "train", str(corpus), "--out", LONG],
        ["data", "build", LONG, "--tokenizer", "t", "--out", "shards"],
        ["data", "show", LONG],
        ["pretrain", "--data", LONG, "--out", "run"],
    ]
    for command in commands:
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            code = cli.run(command)
        assert code in (1, 2, 3), command[0]
        assert len(printed.getvalue()) < MOST, command[0]


@pytest.mark.parametrize(
    "settings",
    [
        EncoderConfig,
        HeadConfig,
        ModelConfig,
        TaskCard,
        ExampleSpec,
        BuildOptions,
        TableOptions,
        PretrainRecipe,
        FinetuneRecipe,
        EmbedRecipe,
    ],
)
def test_every_setting(settings: Any) -> None:
    reads_json = hasattr(settings, "from_dict")
    build = settings.from_dict if reads_json else lambda data: settings(**data)
    values = (LONG, [LONG], {LONG: LONG}) if reads_json else (LONG,)
    names = [field.name for field in fields(settings)] + [LONG] * reads_json
    lengths = {
        (name[:40], type(value).__name__): length_of_error(partial(build, {name: value}))
        for name in names
        for value in values
    }
    assert not {name: length for name, length in lengths.items() if length > MOST}
    assert any(lengths.values())


@pytest.mark.parametrize("converted", [False, True])
def test_every_key_of_a_models_config(converted: bool, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", "masked", "classify")
    if converted:
        convert_folder(save_model(tmp_path / "source", "masked"), tmp_path / "theirs")
        folder = tmp_path / "theirs"
    path = folder / "config.json"
    before = json.loads(path.read_text())
    lengths = {}
    for name in [*before, LONG]:
        path.write_text(json.dumps(before | {name: LONG}))
        lengths[name[:40]] = length_of_error(
            lambda: litebert.load(folder, device="cpu", unverified=True)
        )
    assert not {name: length for name, length in lengths.items() if length > MOST}
    assert sum(map(bool, lengths.values())) > 3


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_every_key_of_a_tokenizer(name: str, tmp_path: Path) -> None:
    folder = tiny_tokenizer(tmp_path / "tokenizer")
    path = folder / name
    before = json.loads(path.read_text()) if path.exists() else {}
    for key in [*before, "lowercase", LONG]:
        path.write_text(json.dumps(before | {key: LONG}))
        assert length_of_error(lambda: litebert.Tokenizer.load(folder)) < MOST, key[:40]


TABLES: dict[str, list[dict[str, str]]] = {
    "classify": [{"text": "a", "label": LONG}] * 4,
    "regress": [{"text": "a", "label": LONG}, {"text": "b", "label": "1"}],
    "choose": [{"question": "a", "a": "b", "options": LONG, "answer": LONG}],
    "answer": [{"question": "a", "context": "b", "answer": LONG}],
    "tag": [{"words": LONG, "tags": "a b"}],
    "pair": [{"sentence1": "a", LONG: "b", f"{LONG}2": "same"}],
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_every_table(kind: Any, suffix: str, tmp_path: Path) -> None:
    rows, path = TABLES[kind], tmp_path / f"train.{suffix}"
    with path.open("w", newline="") as file:
        if suffix == "jsonl":
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    assert len(error_of(lambda: open_table(kind, path, TableOptions(), None))) < MOST
    wanted = TableOptions(label=LONG, key=LONG)
    assert len(error_of(lambda: open_table(kind, path, wanted, None))) < MOST


def renamed(folder: Path, name: str) -> None:
    """One of the files in the folder's manifest is called `name`."""
    entries = {"x": {"bytes": 0, "sha256": ""}, name: {"bytes": 0, "sha256": ""}}
    record = {"format": "litebert-folder", "version": 1, "files": entries}
    text = json.dumps(record, indent=1, sort_keys=True)
    (folder / "manifest.json").write_text(text + "\n")


@pytest.mark.parametrize("name", [LONG, "a\0b", "a\ud800"])
def test_every_name_in_a_manifest(name: str, tmp_path: Path) -> None:
    renamed(tmp_path, name)
    assert len(error_of(lambda: verify_folder(tmp_path))) < MOST


@pytest.mark.parametrize(
    "changes",
    [
        {"version": LONG},
        {"export": LONG},
        {"export": {LONG: 1}},
        {"export": {"runtime": LONG}},
    ],
)
def test_every_key_of_an_export(changes: dict[str, Any], tmp_path: Path) -> None:
    config = {"format": EXPORT_FORMAT, "version": VERSION} | changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert len(error_of(lambda: read_export(tmp_path))) < MOST


@pytest.mark.parametrize(
    "changes",
    [
        {"vocab_size": LONG},
        {"vocab_size": 10**4000},
        {"shards": [{"name": "1" * 100_000}]},
        {"shards": [{"name": "1", "tokens": LONG}]},
    ],
)
def test_every_key_of_an_index(changes: dict[str, Any], tmp_path: Path) -> None:
    shard = {"sha256": dict.fromkeys(PARTS, ""), "documents": 0, "sentences": 0, "tokens": 0}
    index = {"format": "litebert-shards", "version": 1, "dtype": "uint16", "tokenizer": ""}
    index |= {"vocab_size": 9} | changes
    index["shards"] = [shard | each for each in changes.get("shards", [])]
    (tmp_path / "index.json").write_text(json.dumps(index))
    assert len(error_of(lambda: Shards.open(tmp_path))) < MOST


def test_every_input_of_a_run() -> None:
    recipe = FinetuneRecipe(task="rte", steps=1)
    record = {"recipe": recipe.to_dict(), "inputs": {"model": LONG}}
    lines = differences(record, recipe, {"model": LONG + "x"})
    assert max(map(len, lines)) < MOST
