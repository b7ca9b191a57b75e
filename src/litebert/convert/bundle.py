"""TensorFlow checkpoints without TensorFlow: a prefix in, numpy arrays out.

The files are PREFIX.index and PREFIX.data-00000-of-00001, or several data files.

Three formats are nested. The .index file is LevelDB's table: blocks of key-value pairs, each
followed by one byte for its compression and a masked CRC-32C, an index block that lists them, and a
footer of 48 bytes that locates the index block. A key is a tensor's name; its value is a protocol
buffer with dtype, shape, position and checksum of the tensor's bytes in a .data file. The empty key
holds the header. The file is not trusted: every length is checked before anything is sliced or
allocated, and every array has passed its CRC-32C.
"""

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.checks import shorten
from litebert.convert.crc32c import crc32c, masked
from litebert.errors import ConversionError
from litebert.protobuf import read_fields, read_varint

MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_MAX_INDEX_BYTES = 1 << 20
"""The index of the largest ALBERT with its optimizer state has 10 kB."""
_MAX_TENSORS = 10_000
_MAX_NAME_BYTES = 1000
_FOOTER_BYTES = 48
_TRAILER_BYTES = 5
_DTYPES: dict[int, str] = {
    1: "<f4", 2: "<f8", 3: "<i4", 4: "<u1", 5: "<i2", 6: "<i1", 9: "<i8", 10: "|b1",
    17: "<u2", 19: "<f2", 22: "<u4", 23: "<u8",
}  # fmt: skip
"""TensorFlow's numbers of the dtypes that numpy has."""
_OTHER_DTYPES = {
    7: "string",
    8: "complex64",
    14: "bfloat16",
    18: "complex128",
    20: "resource",
    21: "variant",
}
_Fields = dict[int, list[int | bytes]]
"""Values of a protocol buffer by field number: numbers as int, the rest as bytes."""


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """Where a tensor is stored."""

    dtype: int
    """TensorFlow's number."""
    shape: tuple[int, ...]
    shard: int
    """Number of the data file."""
    offset: int
    """First byte in that file."""
    size: int
    """In bytes."""
    checksum: int
    """Masked CRC-32C of the bytes."""
    sliced: bool
    """Whether it is a partitioned variable, stored under other names."""


class Bundle(Mapping[str, npt.NDArray[Any]]):
    """The tensors of a checkpoint by name; each is read, checked and copied on access."""

    def __init__(self, prefix: str | Path) -> None:
        self.prefix = Path(prefix)
        index = _read_index(self.prefix.with_name(self.prefix.name + ".index"))
        try:
            table = _read_table(index)
            self._num_shards = _num_shards(table.pop(b"", None))
            self._entries = {
                key.decode("utf-8", errors="backslashreplace"): _entry(value)
                for key, value in table.items()
            }
        except ValueError as error:
            raise ConversionError(f"the checkpoint index is damaged: {error}") from error
        self._shards: dict[int, npt.NDArray[np.uint8]] = {}
        # of unused tensors too: a truncated file is a bad copy
        for name, entry in self._entries.items():
            self._check_extent(name, entry)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        entry = self._entries[name]
        if entry.sliced:
            raise ConversionError(
                f"tensor {shorten(name)} is stored in slices (a partitioned variable), which is "
                "not read here"
            )
        if entry.dtype not in _DTYPES:
            kind = _OTHER_DTYPES.get(entry.dtype, f"number {entry.dtype}")
            raise ConversionError(
                f"tensor {shorten(name)} is of type {kind}; weights must be numbers that numpy "
                "knows"
            )
        dtype = np.dtype(_DTYPES[entry.dtype])
        if math.prod(entry.shape) * dtype.itemsize != entry.size:
            raise ConversionError(
                f"tensor {shorten(name)} of shape {list(entry.shape)} and {dtype} takes "
                f"{entry.size} bytes: damaged"
            )
        stored = self._shard(entry.shard)[entry.offset : entry.offset + entry.size]
        if masked(crc32c(stored)) != entry.checksum:
            raise ConversionError(
                f"tensor {shorten(name)} fails its checksum: {self._shard_path(entry.shard).name} "
                "is damaged"
            )
        return np.array(stored).view(dtype).reshape(entry.shape)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a tensor, from the index alone."""
        return self._entries[name].shape

    def dtype(self, name: str) -> str:
        """As safetensors spells it: F32, I64, … where numpy has it, else TensorFlow's name."""
        number = self._entries[name].dtype
        if number in _DTYPES:
            return _DTYPES[number][1].upper() + str(8 * int(_DTYPES[number][2]))
        return _OTHER_DTYPES.get(number, f"type {number}")

    def _check_extent(self, name: str, entry: _Entry) -> None:
        end, size = entry.offset + entry.size, len(self._shard(entry.shard))
        if end > size:
            file = self._shard_path(entry.shard).name
            raise ConversionError(
                f"tensor {shorten(name)} ends at byte {end} of {file}, which has {size}: the file "
                "is truncated"
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
    """The prefix that `path` means: a prefix, one of its files, or a folder of one checkpoint."""
    path = Path(path)
    if os.path.isdir(path):  # not Path.is_dir, which raises where a name is too long
        indexes = sorted(path.glob("*.index"))
        if len(indexes) > 1:
            names = ", ".join(index.stem for index in indexes[:5])
            raise ConversionError(
                f"{path} holds {len(indexes)} checkpoints ({names}); name one, as "
                f"{path / indexes[0].stem}"
            )
        return indexes[0].with_suffix("") if indexes else None
    prefix = path.with_name(re.sub(r"\.(index|meta|data-\d{5}-of-\d{5})$", "", path.name))
    return prefix if os.path.isfile(f"{prefix}.index") else None


def _read_index(path: Path) -> bytes:
    if not path.is_file():
        raise ConversionError(
            f"there is no {path}; a TensorFlow checkpoint is a PREFIX.index beside its PREFIX.data "
            "files"
        )
    size = path.stat().st_size
    if size > _MAX_INDEX_BYTES:
        raise ConversionError(
            f"{path} has {size} bytes, more than any checkpoint index ({_MAX_INDEX_BYTES})"
        )
    return path.read_bytes()


def _num_shards(message: bytes | None) -> int:
    """The number of data files, from the header."""
    if message is None:
        raise ConversionError("the checkpoint index has no header: damaged, or of another kind")
    fields = _fields(message)
    if _integer(fields, 2) != 0:
        raise ConversionError(
            "the checkpoint was written on a big-endian machine, which is not read here"
        )
    return _integer(fields, 1)


def _entry(message: bytes) -> _Entry:
    fields = _fields(message)
    return _Entry(
        dtype=_integer(fields, 1),
        shape=tuple(
            _integer(size, 1) for shape in _messages(fields, 2) for size in _messages(shape, 2)
        ),
        shard=_integer(fields, 3),
        offset=_integer(fields, 4),
        size=_integer(fields, 5),
        checksum=_integer(fields, 6),
        sliced=7 in fields,
    )


def _read_table(data: bytes) -> dict[bytes, bytes]:
    """All keys and values of a LevelDB table, in order."""
    if len(data) < _FOOTER_BYTES or data[-len(MAGIC) :] != MAGIC:
        raise ConversionError(
            f"a checkpoint index ends in {_FOOTER_BYTES} bytes with a signature; "
            f"these {len(data)} bytes do not: the file is truncated or of another kind"
        )
    footer = data[-_FOOTER_BYTES:]
    meta_handle, position = _block_handle(footer, 0)
    index_handle, _ = _block_handle(footer, position)
    _block(data, meta_handle)  # empty here, but its checksum counts
    table: dict[bytes, bytes] = {}
    handles = [_block_handle(handle, 0)[0] for _, handle in _pairs(_block(data, index_handle))]
    if sum(size for _, size in handles) > len(data):
        raise ConversionError("blocks of the checkpoint index overlap: damaged")
    for handle in handles:
        for key, value in _pairs(_block(data, handle)):
            table[key] = value
            if len(table) > _MAX_TENSORS:
                raise ConversionError(
                    f"the checkpoint index lists more than {_MAX_TENSORS:,} tensors; it is of no "
                    "BERT"
                )
    return table


def _block_handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = read_varint(data, position)
    size, position = read_varint(data, position)
    return (offset, size), position


def _block(data: bytes, handle: tuple[int, int]) -> bytes:
    """The contents of a block, after checking checksum and compression."""
    offset, size = handle
    end = offset + size
    if end + _TRAILER_BYTES > len(data):
        raise ConversionError(
            f"a block of the checkpoint index ends at byte {end}, the file has {len(data)}: damaged"
        )
    stored = int.from_bytes(data[end + 1 : end + _TRAILER_BYTES], "little")
    if masked(crc32c(data[offset : end + 1])) != stored:
        raise ConversionError(
            f"the block at byte {offset} of the checkpoint index fails its checksum: damaged"
        )
    if data[end] != 0:
        name = "snappy" if data[end] == 1 else f"number {data[end]}"
        raise ConversionError(
            f"the checkpoint index is compressed ({name}); TensorFlow's own writer never "
            "compresses it, write the checkpoint again with tf.compat.v1.train.Saver"
        )
    return data[offset:end]


def _pairs(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a block. A key is stored as the length it shares with the one before
    and the rest; the restart points at the end serve binary search only."""
    if len(block) < 4:
        raise ConversionError("a block of the checkpoint index is empty: damaged")
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    key = b""
    position = 0
    while position < end:
        shared, position = read_varint(block, position)
        unshared, position = read_varint(block, position)
        value_size, position = read_varint(block, position)
        if shared > len(key) or position + unshared + value_size > end:
            raise ConversionError("a key of the checkpoint index runs past its block: damaged")
        if shared + unshared > _MAX_NAME_BYTES:  # each may repeat almost all of the one before
            raise ConversionError(
                f"a name in the checkpoint index has {shared + unshared:,} bytes, at most "
                f"{_MAX_NAME_BYTES:,} are read: damaged"
            )
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + value_size]
        position += value_size
    if position != end:
        raise ConversionError("a block of the checkpoint index does not end where it says: damaged")


def _fields(message: bytes) -> _Fields:
    fields: _Fields = {}
    for number, value in read_fields(message):
        fields.setdefault(number, []).append(message[value] if isinstance(value, slice) else value)
    return fields


def _integer(fields: _Fields, number: int) -> int:
    """The number in a field: 0 if absent, the last of several."""
    value = fields.get(number, [0])[-1]
    if not isinstance(value, int):
        raise ConversionError(
            f"field {number} of the checkpoint index should hold a number: the file is damaged"
        )
    return value


def _messages(fields: _Fields, number: int) -> list[_Fields]:
    """The messages nested in a field."""
    values = fields.get(number, [])
    if not all(isinstance(value, bytes) for value in values):
        raise ConversionError(
            f"field {number} of the checkpoint index should hold a message: the file is damaged"
        )
    return [_fields(value) for value in values if isinstance(value, bytes)]
