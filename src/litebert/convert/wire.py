"""Protocol buffers, as far as a checkpoint index needs them: bytes in, numbers and byte strings by
field number out."""

from collections.abc import Mapping

from litebert.errors import ConversionError

Fields = Mapping[int, list[int | bytes]]

FIXED_SIZES = {1: 8, 5: 4}
"""Bytes of a value by wire type, for the two types of fixed length."""


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A base-128 number and the position after it: read_varint(b"\\xac\\x02", 0) -> (300, 2)."""
    value = 0
    for count in range(10):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
    raise ConversionError("a number in the checkpoint index runs past its end: the file is damaged")


def read_fields(message: bytes) -> dict[int, list[int | bytes]]:
    """The values of a message by field number: varints and fixed lengths as int, the rest as
    bytes."""
    fields: dict[int, list[int | bytes]] = {}
    position = 0
    while position < len(message):
        tag, position = read_varint(message, position)
        number, wire_type = tag >> 3, tag & 7
        value: int | bytes
        if wire_type == 0:
            value, position = read_varint(message, position)
        elif wire_type == 2 or wire_type in FIXED_SIZES:
            size = FIXED_SIZES.get(wire_type, 0)
            if not size:
                size, position = read_varint(message, position)
            if position + size > len(message):
                raise ConversionError(
                    "a field of the checkpoint index runs past its end: the file is damaged"
                )
            raw = message[position : position + size]
            position += size
            value = int.from_bytes(raw, "little") if wire_type in FIXED_SIZES else raw
        else:
            raise ConversionError(
                f"a field of the checkpoint index has the unknown wire type {wire_type}: damaged"
            )
        fields.setdefault(number, []).append(value)
    return fields


def integer(fields: Fields, number: int) -> int:
    """The number in a field; 0 where absent, and the last where there are several."""
    value = fields.get(number, [0])[-1]
    if not isinstance(value, int):
        raise ConversionError(
            f"field {number} of the checkpoint index should hold a number: the file is damaged"
        )
    return value


def messages(fields: Fields, number: int) -> list[dict[int, list[int | bytes]]]:
    """The messages nested in a field."""
    found = []
    for value in fields.get(number, []):
        if not isinstance(value, bytes):
            raise ConversionError(
                f"field {number} of the checkpoint index should hold a message: the file is damaged"
            )
        found.append(read_fields(value))
    return found
