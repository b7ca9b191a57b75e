"""TensorFlow checkpoints without TensorFlow: a prefix in (PREFIX.index,
PREFIX.data-00000-of-00001), arrays out.
 The index is a table (sstable.py) from a tensor's name to a protocol buffer that says where its
bytes lie, of which type and shape they are, and their checksum; the empty name holds the header.
Only the few fields used are decoded. Nothing is trusted: sizes are compared with shapes and files
before anything is allocated, and every array that is handed out has passed its CRC-32C.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.convert.crc32c import crc32c, masked
from litebert.convert.sstable import read_table
from litebert.convert.wire import integer, messages, read_fields
from litebert.errors import ConversionError

MAX_INDEX_BYTES = 64 << 20
"""The index of the largest ALBERT with its optimizer state takes 10 kB; a larger file than this is
not one."""

DTYPES: dict[int, str] = {
    1: "<f4", 2: "<f8", 3: "<i4", 4: "<u1", 5: "<i2", 6: "<i1", 9: "<i8", 10: "|b1",
    17: "<u2", 19: "<f2", 22: "<u4", 23: "<u8",
}  # fmt: skip
"""TensorFlow's numbers for the types that numpy knows."""

OTHER_DTYPES = {
    7: "string",
    8: "complex64",
    14: "bfloat16",
    18: "complex128",
    20: "resource",
    21: "variant",
}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Where one tensor lies."""

    dtype: int
    """TensorFlow's number of the element type."""
    shape: tuple[int, ...]
    shard: int
    """Which data file."""
    offset: int
    """First byte in that file."""
    size: int
    """Bytes."""
    checksum: int
    """Masked CRC-32C of the bytes."""
    sliced: bool
    """Whether the tensor is stored in parts under other names, as partitioned variables are."""


class Bundle(Mapping[str, npt.NDArray[Any]]):
    """The tensors of one checkpoint by name; each is read, checked and copied when it is asked
    for."""

    def __init__(self, prefix: str | Path) -> None:
        self.prefix = Path(prefix)
        table = read_table(_read_index(self.prefix.with_name(self.prefix.name + ".index")))
        self._num_shards = _header(table.pop(b"", None))
        self.entries = {_name(key): _entry(value) for key, value in table.items()}
        self._shards: dict[int, npt.NDArray[np.uint8]] = {}
        for (
            name,
            entry,
        ) in (
            self.entries.items()
        ):  # also of those that nobody will ask for: a file cut short is a bad copy
            self._check_extent(name, entry)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        entry = self.entries[name]
        if entry.sliced:
            raise ConversionError(
                f"tensor {name!r} is stored in slices (a partitioned variable), which is not read "
                "here"
            )
        if entry.dtype not in DTYPES:
            kind = OTHER_DTYPES.get(entry.dtype, f"number {entry.dtype}")
            raise ConversionError(
                f"tensor {name!r} is of type {kind}; weights must be numbers that numpy knows"
            )
        dtype = np.dtype(DTYPES[entry.dtype])
        if math.prod(entry.shape) * dtype.itemsize != entry.size:
            raise ConversionError(
                f"tensor {name!r} of shape {list(entry.shape)} and {dtype} takes {entry.size} "
                "bytes: damaged"
            )
        stored = self._shard(entry.shard)[entry.offset : entry.offset + entry.size]
        if masked(crc32c(stored)) != entry.checksum:
            raise ConversionError(
                f"tensor {name!r} fails its checksum: {self._shard_path(entry.shard).name} is "
                "damaged"
            )
        return np.array(stored).view(dtype).reshape(entry.shape)

    def _check_extent(self, name: str, entry: Entry) -> None:
        end, size = entry.offset + entry.size, len(self._shard(entry.shard))
        if end > size:
            file = self._shard_path(entry.shard).name
            raise ConversionError(
                f"tensor {name!r} ends at byte {end} of {file}, which has {size}: the file is "
                "truncated"
            )

    def _shard_path(self, shard: int) -> Path:
        return self.prefix.with_name(
            f"{self.prefix.name}.data-{shard:05d}-of-{self._num_shards:05d}"
        )

    def _shard(self, shard: int) -> npt.NDArray[np.uint8]:
        if shard not in self._shards:
            path = self._shard_path(shard)
            if not path.is_file():
                raise ConversionError(
                    f"the checkpoint's data file {path.name} is not beside its index; copy it there"
                )
            empty = path.stat().st_size == 0  # which cannot be mapped
            self._shards[shard] = (
                np.zeros(0, np.uint8) if empty else np.memmap(path, dtype=np.uint8, mode="r")
            )
        return self._shards[shard]


def find_prefix(path: str | Path) -> Path | None:
    """The checkpoint prefix that `path` means: a prefix, its .index or .data file, or a folder of
    one checkpoint."""
    path = Path(path)
    if path.is_dir():
        indexes = sorted(path.glob("*.index"))
        if len(indexes) > 1:
            names = ", ".join(index.stem for index in indexes[:5])
            raise ConversionError(
                f"{path} holds {len(indexes)} checkpoints ({names}); name one, as "
                f"{path / indexes[0].stem}"
            )
        return indexes[0].with_suffix("") if indexes else None
    prefix = path.with_name(re.sub(r"\.(index|meta|data-\d{5}-of-\d{5})$", "", path.name))
    return prefix if prefix.with_name(prefix.name + ".index").is_file() else None


def _read_index(path: Path) -> bytes:
    if not path.is_file():
        raise ConversionError(
            f"there is no {path}; a TensorFlow checkpoint is a PREFIX.index beside its PREFIX.data "
            "files"
        )
    size = path.stat().st_size
    if size > MAX_INDEX_BYTES:
        raise ConversionError(
            f"{path} has {size} bytes, more than any checkpoint index ({MAX_INDEX_BYTES})"
        )
    return path.read_bytes()


def _name(key: bytes) -> str:
    return key.decode("utf-8", errors="backslashreplace")


def _header(message: bytes | None) -> int:
    """The number of data files."""
    if message is None:
        raise ConversionError("the checkpoint index has no header: damaged, or of another kind")
    fields = read_fields(message)
    if integer(fields, 2) != 0:
        raise ConversionError(
            "the checkpoint was written on a big-endian machine, which is not read here"
        )
    return integer(fields, 1)


def _entry(message: bytes) -> Entry:
    fields = read_fields(message)
    return Entry(
        dtype=integer(fields, 1),
        shape=tuple(
            integer(size, 1) for shape in messages(fields, 2) for size in messages(shape, 2)
        ),
        shard=integer(fields, 3),
        offset=integer(fields, 4),
        size=integer(fields, 5),
        checksum=integer(fields, 6),
        sliced=7 in fields,
    )
