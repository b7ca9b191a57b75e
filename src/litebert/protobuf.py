"""Protocol buffers, in which SentencePiece, TensorFlow and ONNX write files: a message's bytes in,
its fields out. ValueError says how a message is damaged."""

from collections.abc import Iterator

_FIXED_BYTES = {1: 8, 5: 4}
"""Size of a number by wire type, for the two types of fixed size."""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A base-128 number and the position after it: read_varint(b"\\xac\\x02", 0) -> (300, 2)."""
    value = 0
    for count, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at + count + 1
    raise ValueError("a number runs past its end")


def read_fields(
    message: bytes, at: int = 0, end: int | None = None
) -> Iterator[tuple[int, int | slice]]:
    """The number of each field between `at` and `end`, and its value: a number, or where its bytes
    are."""
    end = len(message) if end is None else end
    while at < end:
        key, at = read_varint(message, at)
        kind = key & 7
        value: int | slice
        if kind == 0:
            value, at = read_varint(message, at)
        elif kind == 2:
            size, start = read_varint(message, at)
            at = start + size
            value = slice(start, at)
        elif kind in _FIXED_BYTES:
            value = int.from_bytes(message[at : at + _FIXED_BYTES[kind]], "little")
            at += _FIXED_BYTES[kind]
        else:
            raise ValueError(f"a field has the unknown wire type {kind}")
        if at > end:
            raise ValueError("a field runs past its end")
        yield key >> 3, value
