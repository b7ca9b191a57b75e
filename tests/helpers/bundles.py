"""A small writer of TensorFlow checkpoints, for the cases that TensorFlow itself would never
write."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from litebert.convert.bundle import MAGIC
from litebert.convert.crc32c import crc32c, masked

NUMBERS = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "float16": 19}


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def block(pairs: dict[bytes, bytes]) -> bytes:
    """Keys share what they have in common with the key before, as the real writer's do."""
    out, before = b"", b""
    for key, value in pairs.items():
        shared = 0
        while shared < min(len(key), len(before)) and key[shared] == before[shared]:
            shared += 1
        out += (
            varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        )
        before = key
    return out + (0).to_bytes(4, "little") + (1).to_bytes(4, "little")


def table(pairs: dict[bytes, bytes], *, compression: int = 0, per_block: int = 7) -> bytes:
    out, handles = b"", {}

    def add(contents: bytes) -> bytes:
        nonlocal out
        handle = varint(len(out)) + varint(len(contents))
        contents += bytes([compression])
        out += contents + masked(crc32c(contents)).to_bytes(4, "little")
        return handle

    keys = list(pairs)
    for start in range(0, len(keys), per_block):
        chosen = keys[start : start + per_block]
        handles[chosen[-1]] = add(block({key: pairs[key] for key in chosen}))
    meta, index = add(block({})), add(block(handles))
    return out + (meta + index).ljust(40, b"\0") + MAGIC


def entry(
    array: npt.NDArray[np.generic], place: dict[str, int], other: dict[str, int | bytes]
) -> bytes:
    shape = b"".join(field(2, field(1, size)) for size in array.shape)
    raw = array.tobytes()
    values = {"dtype": NUMBERS[str(array.dtype)], "shape": shape, **place, "size": len(raw)} | other
    out = b"".join(field(i, v) for i, v in enumerate(list(values.values())[:5], start=1) if v != 0)
    out += varint(6 << 3 | 5) + masked(crc32c(raw)).to_bytes(4, "little")
    return out + (field(7, other["slices"]) if "slices" in other else b"")


def write_bundle(
    prefix: Path,
    arrays: dict[str, npt.NDArray[np.generic]],
    *,
    shards: int = 1,
    compression: int = 0,
    per_block: int = 7,
    **other: int | bytes,
) -> Path:
    """Write `arrays`, dealt out over `shards` data files; `other` replaces fields of every entry,
    to tell lies."""
    data = [b""] * shards
    pairs = {b"": field(1, shards) + field(3, field(1, 1))}
    for position, name in enumerate(sorted(arrays)):
        shard, array = position % shards, np.asarray(arrays[name])
        pairs[name.encode()] = entry(array, {"shard": shard, "offset": len(data[shard])}, other)
        data[shard] += array.tobytes()
    prefix.with_name(prefix.name + ".index").write_bytes(
        table(pairs, compression=compression, per_block=per_block)
    )
    for shard, contents in enumerate(data):
        prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{shards:05d}").write_bytes(contents)
    return prefix
