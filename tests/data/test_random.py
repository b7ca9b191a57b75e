"""Draws are even, independent, and a matter of their counters alone."""

import numpy as np
import pytest

from litebert.data.random import (
    Permutation,
    Purpose,
    below,
    bits,
    coin,
    keys,
    mix,
    seeded,
    uniform,
)

N = 1 << 16


def test_worked_example_of_splitmix64() -> None:
    actual = bits(np.zeros(1, np.uint64), np.arange(3))
    assert [int(word) for word in actual] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


def test_a_draw_depends_on_its_counters_alone() -> None:
    some = keys(seeded(3, Purpose.CUT, 5), np.arange(100))
    again = keys(seeded(3, Purpose.CUT, 5), np.arange(99, -1, -1))[::-1]
    assert (some == again).all()
    assert (bits(some[:, None], np.arange(7))[:, 4] == bits(some, 4)).all()


@pytest.mark.parametrize(
    "words",
    [
        bits(keys(seeded(0, Purpose.CUT, 0), np.arange(N)), 0),
        bits(keys(seeded(0, Purpose.CUT, 0), np.arange(1)), np.arange(N)),
        np.concatenate(
            [bits(keys(seeded(seed, Purpose.CUT, 9), np.arange(16)), 1) for seed in range(N // 16)]
        ),
    ],
    ids=["examples", "draws", "seeds"],
)
def test_draws_are_even(words: np.ndarray) -> None:
    """Chi-squared over 64 cells and each single bit, at five standard deviations."""
    for numbers in (below(words, 64), (uniform(words) * 64).astype(np.int64)):
        counts = np.bincount(numbers, minlength=64)
        assert len(counts) == 64
        assert ((counts - N / 64) ** 2 / (N / 64)).sum() < 63 + 5 * np.sqrt(2 * 63)
    ones = ((words[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)).mean(axis=0)
    assert np.abs(ones - 0.5).max() < 5 * 0.5 / np.sqrt(N)


def test_draws_are_independent() -> None:
    """Neighboring counters, draws, epochs, purposes and seeds do not correlate."""
    examples = np.arange(N)
    base = uniform(bits(keys(seeded(0, Purpose.CUT, 0), examples), 0))
    others = {
        "next example": uniform(bits(keys(seeded(0, Purpose.CUT, 0), examples + 1), 0)),
        "next draw": uniform(bits(keys(seeded(0, Purpose.CUT, 0), examples), 1)),
        "next epoch": uniform(bits(keys(seeded(0, Purpose.CUT, 1), examples), 0)),
        "next purpose": uniform(bits(keys(seeded(0, Purpose.ORDER, 0), examples), 0)),
        "next seed": uniform(bits(keys(seeded(1, Purpose.CUT, 0), examples), 0)),
        "coin of the same draw": coin(bits(keys(seeded(0, Purpose.CUT, 0), examples), 0)).astype(
            float
        ),
    }
    for name, other in others.items():
        assert abs(np.corrcoef(base, other)[0, 1]) < 5 / np.sqrt(N), name


def test_one_changed_bit_changes_half() -> None:
    words = bits(keys(seeded(0, Purpose.CUT, 0), np.arange(2000)), 0)
    for bit in range(64):
        changed = mix(words) ^ mix(words ^ np.uint64(1 << bit))
        assert abs(np.bitwise_count(changed).mean() - 32) < 1


@pytest.mark.parametrize("limit", [1, 2, 3, 1000])
def test_below_stays_below(limit: int) -> None:
    numbers = below(bits(keys(1, np.arange(N)), 0), limit)
    assert numbers.min() == 0
    assert numbers.max() == limit - 1


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 17, 64, 1000, 4097])
def test_a_permutation_is_one_to_one(size: int) -> None:
    order = Permutation(size=size, key=seeded(0, Purpose.SHUFFLE, 1))
    assert sorted(order(np.arange(size))) == list(range(size))
    assert (order(np.arange(size))[::-1] == order(np.arange(size)[::-1])).all()


def test_a_span_is_a_part_of_the_order() -> None:
    """Also across the blocks that are computed together, and up to the end."""
    order = Permutation(size=2 * 8192 + 100, key=seeded(0, Purpose.SHUFFLE, 2))
    for start, stop in (
        (0, 5),
        (8192 - 3, 8192 + 3),
        (10, 2 * 8192 + 100),
        (2 * 8192 + 99, 2 * 8192 + 100),
    ):
        assert (order.span(start, stop) == order(np.arange(start, stop))).all()


def test_permutations_are_random() -> None:
    """Over many keys, each number stands at each place equally often, and neighbors are
    scattered."""
    actual = np.stack(
        [
            Permutation(size=10, key=seeded(7, Purpose.SHUFFLE, e))(np.arange(10))
            for e in range(1000)
        ]
    )
    for position in range(10):
        counts = np.bincount(actual[:, position], minlength=10)
        assert ((counts - 100) ** 2 / 100).sum() < 9 + 5 * np.sqrt(18)
    long = Permutation(size=100_000, key=seeded(7, Purpose.SHUFFLE, 0))(np.arange(100_000))
    assert abs(np.corrcoef(long[:-1], long[1:])[0, 1]) < 5 / np.sqrt(100_000)
    assert abs(np.corrcoef(long, np.arange(100_000))[0, 1]) < 5 / np.sqrt(100_000)
