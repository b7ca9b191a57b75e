"""A pipe, device, folder, socket or symlink loop where a file is expected is refused by its type,
before it is opened: none of these hangs or grows."""

import os
import shutil
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from litebert.config import PRESETS, HeadConfig, ModelConfig
from litebert.convert.bundle import Bundle
from litebert.convert.folder import convert_folder
from litebert.data.bad_rows import BadRows, Location
from litebert.data.corpus import read_documents
from litebert.data.shards import Shards
from litebert.demo.corpus import read_speeches
from litebert.errors import ConversionError, DataError, LitebertError
from litebert.files import check_own
from litebert.infer.predictor import load
from litebert.lab.pack import unpack_studies
from litebert.model.model import Model
from litebert.recipes import PretrainRecipe
from litebert.report.run import read_run
from litebert.serve.access import read_key
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.predictions import load_predictions
from litebert.tasks.tables.pairs import open_teacher
from litebert.tasks.tables.rows import read_rows
from litebert.testing import tiny_shards, tiny_tokenizer
from litebert.text.tokenizer import Tokenizer
from litebert.text.vocabulary import describe
from litebert.train.folder import read_record
from litebert.train.log import read_records
from tests.helpers.bundles import table


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's path is short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": make_pipe,
    "socket": make_socket,
    "endless device": lambda path: path.symlink_to("/dev/zero"),
    "empty device": lambda path: path.symlink_to("/dev/null"),
    "folder": Path.mkdir,
    "symlink to a folder": lambda path: path.symlink_to(path.parent),
    "symlink loop": lambda path: path.symlink_to(path.name),
    "symlink to nothing": lambda path: path.symlink_to("nowhere"),
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("originals")
    tokenizer = Tokenizer.load(tiny_tokenizer(folder / "tokenizer"))
    encoder = replace(PRESETS["tiny"], vocab_size=tokenizer.vocab_size)
    config = ModelConfig(encoder=encoder, heads=(HeadConfig(kind="masked"),))
    Checkpoint(model=Model(config), tokenizer=tokenizer).save(folder / "model")
    convert_folder(folder / "model", folder / "foreign")
    (folder / "foreign" / "manifest.json").unlink()
    tiny_shards(folder / "built")
    return folder


def documents(path: Path) -> None:
    list(read_documents([str(path)]))


def rows(path: Path) -> None:
    list(read_rows(path))


def shards(path: Path) -> None:
    Shards.open(path.parent, verify=True)


def unverified(path: Path) -> None:
    load(path.parent, unverified=True)


READERS: list[tuple[str, Callable[[Path], object]]] = [
    ("model/config.json", lambda path: load(path.parent)),
    ("model/manifest.json", lambda path: load(path.parent)),
    ("model/model.safetensors", lambda path: load(path.parent)),
    ("model/model.safetensors", unverified),
    ("model/spiece.model", lambda path: Tokenizer.load(path.parent)),
    ("model/tokenizer_config.json", lambda path: Tokenizer.load(path.parent)),
    ("foreign/config.json", lambda path: load(path.parent)),
    ("foreign/model.safetensors", lambda path: load(path.parent)),
    ("shards/index.json", shards),
    ("shards/00000.tokens.npy", shards),
    ("corpus.txt", documents),
    ("corpus.txt.gz", documents),
    ("table.csv", rows),
    ("table.jsonl.gz", rows),
    ("recipe.json", PretrainRecipe.load),
    ("1790-speech.txt", lambda path: read_speeches(path.parent)),
]


@pytest.mark.parametrize("kind", KINDS)
def test_special_files_are_refused_by_every_reader(
    kind: str, originals: Path, tmp_path: Path
) -> None:
    for number, (name, read) in enumerate(READERS):
        path = tmp_path / str(number) / name
        folder = (
            originals / "built" / "shards" if "shards/" in name else originals / name.split("/")[0]
        )
        if "/" in name:
            shutil.copytree(folder, path.parent)
            path.unlink()
        else:
            path.parent.mkdir()
        KINDS[kind](path)
        if name.startswith("corpus") and "folder" in kind:
            continue  # a corpus may be a folder
        if name.endswith("tokenizer_config.json") and kind in (
            "symlink loop",
            "symlink to nothing",
        ):
            continue  # as if it were absent
        with pytest.raises(LitebertError):
            read(path)


def quarantine(path: Path) -> None:
    with BadRows("quarantine", path) as bad:
        bad.add(Location("a.csv", 1), "no row")


def report(path: Path) -> None:
    (path.parent / "recipe.json").write_text("{}")
    read_run(path.parent)


MORE_READERS: list[tuple[str, Callable[[Path], object]]] = [
    ("recipe.json", read_record),
    ("metrics.jsonl", lambda path: list(read_records(path))),
    ("status.json", report),
    ("dev_predictions.jsonl", load_predictions),
    ("key", lambda path: read_key(str(path))),
    ("vectors.npy", lambda path: open_teacher(path, path)),
    ("results.tar.gz", lambda path: unpack_studies(path, path.parent / "out")),
    ("quarantine.jsonl", quarantine),
    ("curves.json", lambda path: check_own(path, '"score_name"', "a file of curves")),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "read"), MORE_READERS, ids=[name for name, _ in MORE_READERS])
def test_files_of_runs_and_those_to_replace(
    name: str, read: Callable[[Path], object], kind: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    KINDS[kind](path)
    if name in ("status.json", "quarantine.jsonl", "curves.json") and (
        kind == "symlink to nothing" or (kind == "symlink loop" and name == "quarantine.jsonl")
    ):
        read(path)  # as if it were absent
        return
    with pytest.raises(LitebertError):
        read(path)


def test_a_vocabulary_of_more_tokens_than_any_language_needs_is_refused_at_once() -> None:
    piece = b"\x0a\x08\x0a\x01a\x15\x00\x00\x00\x00"  # text "a", score 0
    began = time.process_time()
    with pytest.raises(DataError, match="it ends early or is not a SentencePiece model"):
        describe(b"\x40\x00" * 30_000_000, "spiece.model")  # a field of no meaning, again and again
    with pytest.raises(DataError, match="it holds more than 524,288 tokens"):
        Tokenizer(piece * 600_000)
    assert time.process_time() - began < 20


def test_a_spiece_model_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "spiece.model").open("wb") as file:
        file.truncate(2**40)  # sparse: it takes no space
    with pytest.raises(DataError, match="it is larger than 67108864 bytes"):
        Tokenizer.load(tmp_path)


def test_an_index_of_too_many_tensors_is_refused(tmp_path: Path) -> None:
    few = {f"{number:05}".encode(): b"" for number in range(10_001)}
    many = {f"{number:06}/name/of/a/weight".encode(): b"x" * 20 for number in range(40_000)}
    for pairs, message in ((few, "lists more than 10,000 tensors"), (many, "more than any")):
        (tmp_path / "model.ckpt.index").write_bytes(table(pairs, per_block=1000))
        with pytest.raises(ConversionError, match=message):
            Bundle(tmp_path / "model.ckpt")
