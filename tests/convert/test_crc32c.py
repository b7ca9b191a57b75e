"""The checksum: equal to the byte-by-byte definition, and to the polynomial facts it rests on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.convert.crc32c import POLYNOMIAL, TABLE, TERMS, crc32c, masked


def by_bytes(data: bytes, crc: int = 0) -> int:
    state = crc ^ 0xFFFFFFFF
    for byte in data:
        state = TABLE[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state ^ 0xFFFFFFFF


def test_known_values():
    # RFC 3720, B.4
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(b"") == 0


def test_shortening_polynomial_is_a_multiple_of_the_checksum_polynomial():
    modulus = 1 << 32 | int(f"{POLYNOMIAL:032b}"[::-1], 2)
    remainder = sum(1 << term for term in TERMS)
    while remainder.bit_length() > 32:
        remainder ^= modulus << (remainder.bit_length() - 33)
    assert remainder == 0


@pytest.mark.parametrize(
    "size", [1, 5684, 5685, 5686, 45480, 45481, 45489, 50003, 363840, 363841, 700001]
)
def test_equals_the_definition_at_every_edge_of_the_stages(size):
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    assert crc32c(data) == by_bytes(data.tobytes())


@settings(deadline=None, max_examples=30)
@given(st.binary(max_size=20), st.integers(0, 60_000), st.integers(0, 2**32 - 1))
def test_continues_from_an_earlier_checksum(head, size, seed):
    tail = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    assert (
        crc32c(tail, crc32c(head))
        == crc32c(head + tail.tobytes())
        == by_bytes(tail.tobytes(), by_bytes(head))
    )


def test_input_is_not_changed():
    data = np.arange(100_000, dtype=np.int64).view(np.uint8)
    before = data.copy()
    crc32c(data)
    assert np.array_equal(data, before)


def test_masked_form_of_tensorflow():
    assert masked(0) == 0xA282EAD8
    assert masked(0xE3069283) == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF
