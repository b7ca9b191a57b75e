"""Shards on the disk, opened for reading: memory-mapped, checked, never pickled.

In: a folder written by `litebert data build`. Out: Shards, with the token ids of each shard and
the bounds of its sentences and documents. Layout and index: docs/data.md.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt

from litebert.checks import shorten
from litebert.errors import DataError
from litebert.files import check_regular, load_npy, sha256
from litebert.text.tokenizer import Tokenizer

FORMAT = "litebert-shards"
VERSION = 1
INDEX_FILE = "index.json"
TOKENIZER_FOLDER = "tokenizer"
PARTS = ("tokens", "sentences", "documents")
_MAX_INDEX_BYTES = 256 * 2**20
_REBUILD = "delete it and run the same `litebert data build` again"


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Sentence s is tokens[sentences[s]:sentences[s + 1]]; documents likewise, in sentences."""

    tokens: UInt[np.ndarray, " tokens"]
    sentences: UInt[np.ndarray, " sentences_and_one"]
    documents: UInt[np.ndarray, " documents_and_one"]


class Shards:
    """A folder of shards. Arrays are mapped on access."""

    def __init__(self, folder: Path, index: dict[str, Any]) -> None:
        self.folder = folder
        self.index = index

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = False) -> "Shards":
        """Open a folder; DataError says what is wrong. `verify`: also compare checksums."""
        folder = Path(folder)
        shards = cls(folder, read_index(folder))
        for number in range(len(shards)):
            shards.arrays(number)
        if verify:
            shards.verify()
        return shards

    def __len__(self) -> int:
        return len(self.index["shards"])

    @property
    def tokenizer_folder(self) -> Path:
        """The tokenizer that the shards were built with."""
        return self.folder / TOKENIZER_FOLDER

    def tokenizer(self) -> Tokenizer:
        """The same, loaded; another one in its place is refused."""
        tokenizer = Tokenizer.load(self.tokenizer_folder)
        if tokenizer.fingerprint != self.index["tokenizer"]:
            raise DataError(
                f"{self.tokenizer_folder} is not the one that {self.folder} was built with; "
                "run the same `litebert data build` again, it puts that back"
            )
        if tokenizer.vocab_size != self.index["vocab_size"]:
            raise DataError(
                f"{self.folder / INDEX_FILE} says {self.index['vocab_size']} tokens, its tokenizer "
                f"has {tokenizer.vocab_size}; the index is damaged, build the shards again"
            )
        return tokenizer

    @property
    def fingerprint(self) -> str:
        """A sha256, the same for folders with the same shards and vocabulary."""
        essence = [self.index["tokenizer"], *(record["sha256"] for record in self.index["shards"])]
        return hashlib.sha256(json.dumps(essence, sort_keys=True).encode()).hexdigest()

    def arrays(self, number: int) -> Shard:
        """Map shard `number` into memory."""
        record = self._record(number)
        shard = Shard(
            tokens=self._map(number, "tokens", record["tokens"], self.index["dtype"]),
            sentences=self._map(number, "sentences", record["sentences"] + 1, "uint64"),
            documents=self._map(number, "documents", record["documents"] + 1, "uint64"),
        )
        ends = (int(shard.sentences[-1]), int(shard.documents[-1]))
        starts = (shard.sentences[0], shard.documents[0])
        if ends != (record["tokens"], record["sentences"]) or any(starts):
            raise DataError(
                f"shard {record['name']} of {self.folder}: the bounds end at {ends[0]} tokens and "
                f"{ends[1]} sentences, "
                f"the index says {record['tokens']} and {record['sentences']}; build it again"
            )
        return shard

    def verify(self, verified: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Read every byte: checksums are those of the index, bounds rise, ids are inside of the
        vocabulary. The result describes each file by size, times and inode; files that `verified`,
        an earlier result, describes and that have not changed since are not read again."""
        known: Mapping[str, Any] = verified or {}
        marks: dict[str, Any] = {}
        for number in range(len(self)):
            before = {self.path(number, part).name: self._mark(number, part) for part in PARTS}
            if any(known.get(name) != mark for name, mark in before.items()):
                self._verify_shard(number)
            marks |= before
        return marks

    def _mark(self, number: int, array_name: str) -> list[Any]:
        """A file's checksum and what changes whenever it does: ctime cannot be set back."""
        path = self.path(number, array_name)
        try:
            stat = path.stat()
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        times = (stat.st_mtime_ns, stat.st_ctime_ns)
        facts = (stat.st_size, *times, stat.st_ino, stat.st_dev, self.index["vocab_size"])
        return [self._record(number)["sha256"][array_name], *facts]

    def _verify_shard(self, number: int) -> None:
        for array_name, expected in self._record(number)["sha256"].items():
            path = self.path(number, array_name)
            try:
                actual = sha256(path)
            except OSError as error:
                raise DataError(f"{path} cannot be read: {error.strerror}") from error
            if actual != expected:
                raise DataError(
                    f"{path} does not have the sha256 that the index says; it is damaged, "
                    f"{_REBUILD}"
                )
        shard, vocab_size = self.arrays(number), self.index["vocab_size"]
        for array_name, bounds in (("sentences", shard.sentences), ("documents", shard.documents)):
            if not (bounds[1:] > bounds[:-1]).all():
                raise DataError(
                    f"{self.path(number, array_name)} holds bounds that do not rise; {_REBUILD}"
                )
        if len(shard.tokens) and (largest := int(shard.tokens.max())) >= vocab_size:
            raise DataError(
                f"{self.path(number, 'tokens')} holds the token id {largest}, outside of the "
                f"vocabulary of {vocab_size}; {_REBUILD}"
            )

    def path(self, number: int, array_name: str) -> Path:
        """The file of one array of a shard."""
        return self.folder / f"{self._record(number)['name']}.{array_name}.npy"

    def _record(self, number: int) -> dict[str, Any]:
        record: dict[str, Any] = self.index["shards"][number]
        return record

    def _map(self, number: int, array_name: str, length: int, dtype: str) -> np.ndarray:
        path = self.path(number, array_name)
        try:
            # An empty file cannot be mapped; its array is as good.
            array: np.ndarray = load_npy(path, "r" if length else None)
        except FileNotFoundError as error:
            raise DataError(
                f"{path} is missing; run the same `litebert data build` again, it makes what is "
                "missing"
            ) from error
        except (OSError, ValueError) as error:
            raise DataError(
                f"{path} is damaged or cut off ({error}); delete it and run the same build again"
            ) from error
        if array.shape != (length,) or array.dtype != np.dtype(dtype):
            raise DataError(
                f"{path} holds {array.shape} {array.dtype}, the index says ({length},) {dtype}; "
                "delete it and run the same build again"
            )
        return array


def read_index(folder: Path) -> dict[str, Any]:
    """The index of a folder of shards, checked as far as it can be without the shards."""
    path = folder / INDEX_FILE
    try:
        if check_regular(path) > _MAX_INDEX_BYTES:
            raise DataError(
                f"{path} is larger than {_MAX_INDEX_BYTES} bytes; litebert did not write it"
            )
        index = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise DataError(
            f"{folder} has no {INDEX_FILE}: it holds no shards, or their build has not ended; "
            "run `litebert data build`, the same command resumes"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read ({error}); build the shards again") from error
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise DataError(f"{path} is no index of shards; expected the format {FORMAT!r}")
    if index.get("version") != VERSION:
        raise DataError(
            f"{path} has version {shorten(index.get('version'))}, this litebert reads {VERSION}; "
            "build the shards again"
        )
    try:
        _check_index(index)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(
            f"{path} is damaged ({type(error).__name__}: {error}); build the shards again"
        ) from error
    return index


def _check_index(index: dict[str, Any]) -> None:
    if index["dtype"] not in ("uint16", "uint32"):
        raise ValueError(f"dtype is {shorten(index['dtype'])}, expected uint16 or uint32")
    if not isinstance(index["tokenizer"], str):
        raise ValueError("tokenizer is not a fingerprint")
    if type(index["vocab_size"]) is not int or not 0 < index["vocab_size"] <= 2**32:
        raise ValueError(f"vocab_size is {shorten(index['vocab_size'])}")
    for record in index["shards"]:
        name = str(record["name"])
        is_name = name.isdecimal() and len(name) < 20
        if not is_name or record["sha256"].keys() != set(PARTS):
            raise ValueError(f"shard {shorten(record['name'])} is not described as expected")
        sizes = [record[array_name] for array_name in ("documents", "sentences", "tokens")]
        are_whole = all(type(size) is int for size in sizes)
        if not are_whole or not 0 <= sizes[0] <= sizes[1] <= sizes[2]:
            raise ValueError(f"shard {name} has {shorten(sizes)} documents, sentences, tokens")
