"""Opening shards: whatever is wrong with a folder is said before anything is read from it."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from litebert.data.shards import Shards
from litebert.data.spec import ExampleSpec
from litebert.data.stream import Stream
from litebert.errors import DataError
from litebert.files import sha256
from litebert.text.train import VocabularyConfig, train_tokenizer
from tests.helpers.building import (
    VOCAB_SIZE,
    made_documents,
    make_tokenizer,
    small_build,
    write_text,
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    corpus = write_text(folder / "a.txt", made_documents(120))
    small_build([corpus], make_tokenizer(folder / "tokenizer"), folder / "out")
    return folder / "out"


@pytest.fixture
def copied(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "copy"))


def test_what_is_built_opens(built: Path) -> None:
    shards = Shards.open(built, verify=True)
    arrays = [shards.arrays(number) for number in range(len(shards))]
    assert len(shards) > 1
    index = shards.index
    assert index["tokens"] == sum(len(each.tokens) for each in arrays)
    assert index["sentences"] == sum(len(each.sentences) - 1 for each in arrays)
    assert index["documents"] == sum(len(each.documents) - 1 for each in arrays) == 120
    assert (shards.tokenizer_folder / "spiece.model").exists()
    assert all(
        isinstance(each.tokens, np.memmap) and each.tokens.dtype == np.uint16 for each in arrays
    )


def test_another_tokenizer_in_its_place_is_refused_and_mended(built: Path, copied: Path) -> None:
    """Its ids would mean other pieces, and nothing else would tell."""
    assert Shards.open(built).tokenizer().fingerprint == Shards.open(built).index["tokenizer"]
    lines = [paragraph for paragraphs in made_documents(300, seed=5) for paragraph in paragraphs]
    train_tokenizer(lines, VocabularyConfig(vocab_size=VOCAB_SIZE))[0].save(copied / "tokenizer")
    for open_it in (Shards.tokenizer, lambda shards: Stream.open(shards.folder, ExampleSpec())):
        with pytest.raises(
            DataError,
            match=(
                r"tokenizer is not the one that .* was built with; run the same `litebert data "
                r"build`"
            ),
        ):
            open_it(Shards.open(copied))
    small_build([built.parent / "a.txt"], built.parent / "tokenizer", copied)
    Shards.open(copied).tokenizer()


def change_index(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        index = json.loads((folder / "index.json").read_text())
        (folder / "index.json").write_text(json.dumps(index | changes))

    return change


def change_record(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        index = json.loads((folder / "index.json").read_text())
        index["shards"][1] |= changes
        (folder / "index.json").write_text(json.dumps(index))

    return change


def write(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def cut(name: str, size: int) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def save(name: str, array: np.ndarray) -> Callable[[Path], object]:
    return lambda folder: np.save(folder / name, array)


def bounds(name: str, edit: Callable[[np.ndarray], None]) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        array = np.load(folder / name)
        edit(array)
        np.save(folder / name, array)

    return change


def set_last(array: np.ndarray) -> None:
    array[-1] += 1


def save_zipped(name: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        np.savez(folder / "x.npz", np.zeros(3))
        (folder / "x.npz").replace(folder / name)

    return change


HARM: list[tuple[Callable[[Path], object], str]] = [
    (
        lambda folder: (folder / "index.json").unlink(),
        "has no index.json: it holds no shards, or their build has not ended",
    ),
    (write("index.json", b"{"), "index.json cannot be read"),
    (write("index.json", b"[]"), "is no index of shards; expected the format 'litebert-shards'"),
    (change_index(format="other"), "is no index of shards"),
    (change_index(version=2), "has version 2, this litebert reads 1; build the shards again"),
    (change_index(dtype="float64"), "dtype is 'float64', expected uint16 or uint32"),
    (change_index(vocab_size=0), "vocab_size is 0"),
    (change_index(shards=[{"name": "00000"}]), "index.json is damaged .KeyError"),
    (change_record(name="../../x"), "shard '../../x' is not described as expected"),
    (change_record(tokens=-1), r"shard 00001 has .* documents, sentences, tokens"),
    (
        change_record(tokens=7, sentences=5, documents=1),
        r"00001\.tokens\.npy holds .* the index says \(7,\) uint16",
    ),
    (
        lambda folder: (folder / "00001.tokens.npy").unlink(),
        r"00001\.tokens\.npy is missing; run the same `litebert data build`",
    ),
    (cut("00001.tokens.npy", 500), r"00001\.tokens\.npy is damaged or cut off"),
    (cut("00001.tokens.npy", 20), r"00001\.tokens\.npy is damaged or cut off"),
    (cut("00001.documents.npy", 0), r"00001\.documents\.npy is damaged or cut off"),
    (write("00001.tokens.npy", b"PK\x03\x04"), r"tokens\.npy is damaged .*it is no \.npy file"),
    (
        save_zipped("00001.tokens.npy"),
        r"tokens\.npy is damaged .*it is no \.npy file",
    ),
    (
        save("00001.tokens.npy", np.zeros(3)),
        r"00001\.tokens\.npy holds \(3,\) float64, the index says",
    ),
    (
        save("00001.tokens.npy", np.array([{}], dtype=object)),
        r"00001\.tokens\.npy is damaged or cut off",
    ),
    (
        bounds("00001.sentences.npy", set_last),
        r"the bounds end at \d+ tokens and \d+ sentences, the index says",
    ),
]


@pytest.mark.parametrize(("harm", "message"), HARM)
def test_harm_is_told(harm: Callable[[Path], object], message: str, copied: Path) -> None:
    harm(copied)
    with pytest.raises(DataError, match=message):
        Shards.open(copied)


def test_one_changed_byte_is_found_when_looked_for(copied: Path) -> None:
    path = copied / "00001.tokens.npy"
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    Shards.open(copied)
    with pytest.raises(
        DataError, match=r"00001\.tokens\.npy does not have the sha256 that the index says"
    ):
        Shards.open(copied, verify=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("00001.sentences.npy", r"00001\.sentences\.npy holds bounds that do not rise; delete it"),
        ("00001.documents.npy", r"00001\.documents\.npy holds bounds that do not rise; delete it"),
        (
            "00001.tokens.npy",
            r"00001\.tokens\.npy holds the token id 60000, outside of the vocabulary of 80; delete",
        ),
    ],
)
def test_nonsense_with_a_right_checksum_is_detected(name: str, message: str, copied: Path) -> None:
    def edit(array: np.ndarray) -> None:
        array[1] = 60_000

    bounds(name, edit)(copied)
    index = json.loads((copied / "index.json").read_text())
    index["shards"][1]["sha256"][name.split(".")[1]] = sha256(copied / name)
    (copied / "index.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match=message):
        Shards.open(copied, verify=True)


def test_any_flipped_byte_is_detected_or_changes_nothing(built: Path, copied: Path) -> None:
    """In tokens, sentences, documents and index; never a traceback."""
    rng = random.Random(0)
    detected = 0
    for number in range(100):
        name = ("00001.tokens.npy", "00001.sentences.npy", "00001.documents.npy", "index.json")[
            number % 4
        ]
        original = (copied / name).read_bytes()
        place = rng.randrange(len(original))
        changed = bytearray(original)
        changed[place] ^= 1 << rng.randrange(8)
        (copied / name).write_bytes(changed)
        try:
            shards = Shards.open(copied, verify=True)
            shards.tokenizer()
            # notes about the corpus are no part of what is trained on
            assert name == "index.json"
            assert shards.fingerprint == Shards.open(built).fingerprint
        except DataError:
            detected += 1
        (copied / name).write_bytes(original)
    assert detected >= 75


def test_verified_files_are_read_again_only_after_a_change(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def recorded(path: Path) -> str:
        read.append(path.name)
        return sha256(path)

    monkeypatch.setattr("litebert.data.shards.sha256", recorded)
    shards = Shards.open(copied)
    verified = json.loads(json.dumps(shards.verify()))
    assert len(read) == 3 * len(shards)
    read.clear()
    shards.verify(verified)
    assert read == []
    path = copied / "00001.tokens.npy"
    before, data = path.stat(), bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # the time of change stays true
    with pytest.raises(DataError, match=r"00001\.tokens\.npy does not have the sha256"):
        shards.verify(verified)
