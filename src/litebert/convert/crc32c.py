"""CRC-32C (Castagnoli), the checksum of TensorFlow's files: bytes in, a 32-bit number out.

The checksum is the remainder of the message, read as a polynomial over GF(2), divided by P of
degree 32. Table code takes one Python step per byte. Here the message is first shortened by
exclusive-ors of arrays: P divides the four-term polynomial

    Q(x) = x^5685 + x^1362 + x^426 + 1

(found by search; below degree 5275 no multiple of P has so few terms) and, because squaring is
linear over GF(2), also Q(x)^(2^k) = x^(5685 n) + x^(1362 n) + x^(426 n) + 1 with n = 2^k. Adding a
multiple of Q does not change the remainder, so the first words of the message may be erased if they
are added at three later positions. With n a multiple of the word size no bit is ever shifted.
"""

import numpy as np
import numpy.typing as npt

POLYNOMIAL = 0x82F63B78
"""P without its leading term, lowest degree in the highest bit, as the checksum reads its bytes."""

TERMS = (5685, 1362, 426, 0)
"""Exponents of Q, a multiple of P."""

_STAGES = ((np.uint64, 8), (np.uint64, 1), (np.uint8, 1))
"""Word type and words for each unit of an exponent: Q^512, Q^64, then Q^8 for the last 45 kB."""

_PIECE_BYTES = 1 << 23
"""The message is copied piece by piece, to check a tensor of any size in constant memory."""


def _table() -> tuple[int, ...]:
    rows = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
        rows.append(value)
    return tuple(rows)


TABLE = _table()


def crc32c(data: bytes | memoryview | npt.NDArray[np.uint8], crc: int = 0) -> int:
    """The checksum of `data`, or of what gave `crc` with `data` after it: crc32c(b"123456789") ->
    0xE3069283."""
    message = data if isinstance(data, np.ndarray) else np.frombuffer(data, dtype=np.uint8)
    state = crc ^ 0xFFFFFFFF
    for start in range(0, len(message), _PIECE_BYTES):
        piece = np.array(message[start : start + _PIECE_BYTES])
        if len(piece) > TERMS[0]:
            piece[:4] ^= np.frombuffer(state.to_bytes(4, "little"), dtype=np.uint8)
            state = 0
            for word_type, unit in _STAGES:
                piece = _shorten(piece, word_type, unit)
        for byte in piece.tobytes():
            state = TABLE[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """The form in which TensorFlow stores a checksum: rotated by 15 bits, plus a constant."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _shorten(
    piece: npt.NDArray[np.uint8], word_type: type[np.unsignedinteger], unit: int
) -> npt.NDArray[np.uint8]:
    """Erase words from the front, down to the degree of Q^n; the remainder stays the same."""
    word_size = np.dtype(word_type).itemsize
    odd = len(piece) % word_size
    if odd:  # leading zeros do not change the remainder
        piece = np.concatenate([np.zeros(word_size - odd, dtype=np.uint8), piece])
    words = piece.view(word_type)
    degree, *terms = (term * unit for term in TERMS)
    # so far ahead that an erased word is never written again within its stride
    stride = degree - terms[0]
    start = 0
    while (count := min(stride, len(words) - degree - start)) > 0:
        erased = words[start : start + count]
        for term in terms:
            target = start + degree - term
            words[target : target + count] ^= erased
        start += count
    return words[start:].view(np.uint8)
