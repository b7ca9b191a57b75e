"""Protocol buffers: a worked example, and every way in which a message can be cut off."""

import pytest

from litebert.protobuf import read_fields, read_varint

MESSAGE = b"\x08\x96\x01" + b"\x12\x03abc" + b"\x25\x01\x00\x00\x00" + b"\x31" + bytes(7) + b"\x01"


def test_a_worked_example() -> None:
    assert read_varint(b"\xac\x02", 0) == (300, 2)
    assert list(read_fields(MESSAGE)) == [(1, 150), (2, slice(5, 8)), (4, 1), (6, 1 << 56)]
    assert list(read_fields(MESSAGE, 3, 8)) == [(2, slice(5, 8))]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"\x08", "a number runs past its end"),
        (b"\x08" + b"\x80" * 10 + b"\x01", "a number runs past its end"),
        (MESSAGE[:6], "a field runs past its end"),
        (MESSAGE[:-1], "a field runs past its end"),
        (b"\x0b", "unknown wire type 3"),
    ],
)
def test_damaged_messages(message: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        list(read_fields(message))
