"""Counted randomness: a draw is a pure function of what it is for, never of what was drawn before.

In: a seed, a purpose, and counters (epoch, where an example begins, number of the draw). Out: 64
random bits each, for whole arrays at once. No generator is carried, so the order in which examples
are made, the number of workers and the number of ranks cannot change them, and a stream's position
is two integers.

The mixer is the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014); draws of one key are
its stream.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

_WORD = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_BLOCK = 1 << 13
"""Places of a permutation that are computed together."""


class Purpose(IntEnum):
    """What a draw decides. The numbers are part of the data's definition: never reuse one."""

    CUT = 1
    ORDER = 2
    OTHER = 3
    CHOOSE = 4
    REPLACE = 5
    SHUFFLE = 6
    SPLIT = 7
    SAMPLE = 8


def mix(words: UInt64[np.ndarray, "*shape"]) -> UInt64[np.ndarray, "*shape"]:
    """Spread every bit of a word over all of its bits; one to one."""
    words = words ^ (words >> np.uint64(30))
    words *= np.uint64(_FIRST)
    words ^= words >> np.uint64(27)
    words *= np.uint64(_SECOND)
    words ^= words >> np.uint64(31)
    return words


def seeded(seed: int, purpose: Purpose, *counters: int) -> int:
    """One key for one purpose: seeded(1, Purpose.CUT, epoch)."""
    key = np.zeros(1, np.uint64)
    for number in (seed, int(purpose), *counters):
        key = mix(key ^ mix(np.array([(number + _STEP) & _WORD], np.uint64)))
    return int(key[0])


def keys(key: int, counters: Int[np.ndarray, "*shape"]) -> UInt64[np.ndarray, "*shape"]:
    """A key for each counter, all different where the counters are."""
    return mix(mix(counters.astype(np.uint64) + np.uint64(_STEP)) ^ np.uint64(key))


def bits(
    keys: UInt64[np.ndarray, "*keys"], draws: int | Int[np.ndarray, "*draws"]
) -> UInt64[np.ndarray, "..."]:
    """64 random bits for draw number `draws` of each key (broadcast against each other)."""
    steps = np.atleast_1d(draws).astype(np.uint64)  # arrays wrap around in silence, scalars warn
    return mix(keys + (steps + np.uint64(1)) * np.uint64(_STEP))


def uniform(words: UInt64[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """In [0, 1), from the upper 53 bits."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(
    words: UInt64[np.ndarray, "*shape"], limit: int | Int[np.ndarray, "..."]
) -> Int[np.ndarray, "*shape"]:
    """A whole number in [0, limit), limit < 2**32, from the upper 32 bits."""
    return (
        ((words >> np.uint64(32)) * np.asarray(limit).astype(np.uint64)) >> np.uint64(32)
    ).astype(np.int64)


def coin(words: UInt64[np.ndarray, "*shape"]) -> Bool[np.ndarray, "*shape"]:
    """True for half of the words, from the lowest bit, which the others here do not use."""
    return (words & np.uint64(1)).astype(bool)


@dataclass(frozen=True, kw_only=True)
class Permutation:
    """A random order of 0 … size - 1 that is computed, not stored: a Feistel network over the
    fewest bits that hold `size`; what falls outside walks on until it is inside, which stays one to
    one."""

    size: int
    """How many numbers are put in order."""
    key: int
    """From `seeded`."""

    def __call__(self, positions: Int[np.ndarray, " places"]) -> Int[np.ndarray, " places"]:
        """Which number stands at each position."""
        numbers = self._turn(positions.astype(np.uint64))
        outside = np.flatnonzero(numbers >= self.size)
        while outside.size:
            numbers[outside] = self._turn(numbers[outside])
            outside = outside[numbers[outside] >= self.size]
        return numbers.astype(np.int64)

    def span(self, start: int, stop: int) -> Int[np.ndarray, " span"]:
        """Places start … stop - 1; a block of neighbors is computed at once and remembered."""
        first, last = start // _BLOCK, -(-stop // _BLOCK)
        numbers = np.concatenate([_block(self, number) for number in range(first, last)])
        return numbers[start - first * _BLOCK : stop - first * _BLOCK]

    def _turn(self, words: UInt64[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
        """Six rounds; the halves may differ by a bit, so that they swap with their widths."""
        num_bits = max(2, (self.size - 1).bit_length())
        low, high = num_bits // 2, num_bits - num_bits // 2
        left, right = words >> np.uint64(low), words & np.uint64((1 << low) - 1)
        for number in range(6):
            step = np.uint64((self.key + number * _STEP) & _WORD)
            left, right = (
                right,
                left ^ (mix(right * np.uint64(_FIRST) ^ step) & np.uint64((1 << high) - 1)),
            )
            low, high = high, low
        return (left << np.uint64(low)) | right


@lru_cache(maxsize=4)
def _block(order: Permutation, number: int) -> Int[np.ndarray, " block"]:
    return order(np.arange(number * _BLOCK, min((number + 1) * _BLOCK, order.size)))
