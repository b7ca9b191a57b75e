"""Laws of packing: what is packed can be unpacked, positions restart, bounds rise, truncation keeps
as many tokens as fit, and shapes are few."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import ConfigError, DataError
from litebert.packing import (
    HostBatch,
    SpecialIds,
    assemble,
    bucket,
    budget_batches,
    frame_rows,
    keep_longest_first,
    length_bucket,
    needed_positions,
    pad_to,
    padding_rows,
    ranges,
    row_bounds,
    row_bucket,
    row_lengths,
    row_positions,
    truncated_lengths,
    unpack_indices,
)

lengths = st.lists(st.integers(0, 40), max_size=12).map(lambda sizes: np.array(sizes, np.int64))
filled_lengths = st.lists(st.integers(1, 40), min_size=1, max_size=12).map(
    lambda sizes: np.array(sizes, np.int64)
)
SPECIAL = SpecialIds(cls=2, sep=3, pad=0)


# ---- rows end to end


@given(lengths)
def test_bounds_rise_and_positions_restart_in_every_row(sizes: np.ndarray) -> None:
    bounds = row_bounds(sizes)
    assert bounds[0] == 0
    assert np.array_equal(np.diff(bounds), sizes)
    expected = [position for size in sizes.tolist() for position in range(size)]
    assert row_positions(bounds).tolist() == expected


@given(filled_lengths)
def test_what_is_packed_can_be_unpacked(sizes: np.ndarray) -> None:
    width = int(sizes.max())
    mask = np.arange(width) < sizes[:, None]
    rows = np.where(mask, np.random.default_rng(0).integers(1, 99, mask.shape), 0)
    unpacked = rows[mask][unpack_indices(row_bounds(sizes), width)]
    assert np.array_equal(np.where(mask, unpacked, 0), rows)
    last = rows[np.arange(len(sizes)), sizes - 1]
    assert np.array_equal(
        np.where(mask, last[:, None], unpacked), np.repeat(last[:, None], width, 1)
    )


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 9)), max_size=9))
def test_ranges_are_pythons_ranges(parts: list[tuple[int, int]]) -> None:
    starts, sizes = np.array(parts, np.int64).reshape(-1, 2).T
    expected = [number for start, size in parts for number in range(start, start + size)]
    assert ranges(starts, sizes).tolist() == expected


@given(st.integers(0, 64), st.integers(1, 50))
def test_padding_rows_add_what_is_missing_in_as_many_rows(missing: int, longest: int) -> None:
    rows = padding_rows(missing, longest=longest, most=64)
    assert rows.sum() == missing
    assert rows.max(initial=0) <= longest
    assert len(rows) == len(padding_rows(0, longest=longest, most=64))


@given(st.lists(st.sets(st.integers(1, 19)), min_size=1, max_size=8), st.integers(0, 3))
def test_needed_tokens_are_each_rows_first_and_the_chosen_ones(
    columns: list[set[int]], spare: int
) -> None:
    row = np.array([number for number, chosen in enumerate(columns) for _ in chosen], np.int64)
    column = np.array([place for chosen in columns for place in sorted(chosen)], np.int64)
    starts = np.arange(len(columns)) * 20
    most = max(map(len, columns)) + spare
    needed, chosen = needed_positions(starts, row, column, most=most)
    assert needed.shape == (len(columns), most + 1)
    assert np.array_equal(needed.reshape(-1)[chosen], starts[row] + column)
    rest = np.delete(needed.reshape(-1), chosen)
    assert set(rest.tolist()) == set(starts.tolist())
    if row.size:
        with pytest.raises(AssertionError, match="more masked positions"):
            needed_positions(starts, row, column, most=max(map(len, columns)) - 1)


# ---- one row


pairs = st.lists(
    st.tuples(st.integers(0, 9), st.none() | st.integers(0, 9)), min_size=1, max_size=9
)


@given(pairs, st.integers(0, 5))
def test_rows_of_a_batch_are_assembled_as_one_row_is(
    texts: list[tuple[int, int | None]], more: int
) -> None:
    sizes_a = np.array([a for a, _ in texts])
    sizes_b = np.array([b or 0 for _, b in texts])
    is_pair = np.array([b is not None for _, b in texts])
    longest = int(row_lengths(sizes_a, sizes_b, is_pair).max())
    framed = frame_rows(sizes_a, sizes_b, is_pair, SPECIAL, width=longest + more)
    framed.token_ids[framed.is_text()] = 7
    for row, (a, b) in enumerate(texts):
        token_ids, segment_ids = assemble(
            [7] * a, None if b is None else [7] * b, cls_id=2, sep_id=3
        )
        real = framed.mask[row]
        assert framed.token_ids[row][real].tolist() == token_ids
        assert framed.is_second[row][real].tolist() == [bool(each) for each in segment_ids]
        assert real.tolist() == [True] * len(token_ids) + [False] * (len(real) - len(token_ids))
        assert (framed.token_ids[row][~real] == SPECIAL.pad).all()
        assert not framed.is_second[row][~real].any()


@given(st.integers(0, 30), st.none() | st.integers(0, 30), st.integers(4, 40))
def test_longest_truncation_pops_from_the_longer(a: int, b: int | None, limit: int) -> None:
    left, right = [a, b or 0]
    while left + right + (2 if b is None else 3) > limit:
        left, right = (left - 1, right) if left > right else (left, right - 1)
    sizes = np.array([a]), None if b is None else np.array([b])
    actual = truncated_lengths(*sizes, max_length=limit, truncate="longest")
    assert [int(size[0]) for size in actual] == [left, right]


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 40))
def test_truncation_keeps_as_many_tokens_as_fit(a: int, b: int, room: int) -> None:
    sizes_a, sizes_b = keep_longest_first(np.array([a]), np.array([b]), room)
    assert int(sizes_a[0] + sizes_b[0]) == min(a + b, room)
    assert 0 <= sizes_a[0] <= a
    assert 0 <= sizes_b[0] <= b
    for truncate, other in (("first", b), ("second", a)):
        limit = room + 3
        if other > room:
            with pytest.raises(DataError, match=f"cutting the {truncate} text alone"):
                truncated_lengths(
                    np.array([a]),
                    np.array([b]),
                    max_length=limit,
                    truncate=truncate,
                )
        else:
            kept = truncated_lengths(
                np.array([a]),
                np.array([b]),
                max_length=limit,
                truncate=truncate,
            )
            assert int(kept[0][0] + kept[1][0]) == min(a + b, room)


def test_a_limit_that_cannot_hold_a_row_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_length is 2, but 2 special tokens alone need more"):
        truncated_lengths(np.array([1]), None, max_length=2, truncate="longest")
    with pytest.raises(DataError, match="pair has 13 tokens with its special tokens, the model"):
        truncated_lengths(np.array([5]), np.array([5]), max_length=12, truncate="error")


# ---- few shapes


@given(st.integers(1, 10**6))
def test_at_most_an_eighth_of_a_bucket_is_padding(tokens: int) -> None:
    assert 0 <= bucket(tokens) - tokens < max(128, tokens / 8)
    assert bucket(bucket(tokens)) == bucket(tokens)


def test_buckets_are_few() -> None:
    assert len({bucket(tokens) for tokens in range(1, 65536)}) <= 80
    assert {row_bucket(rows) for rows in range(1, 65)} == {8, 16, 32, 64}
    assert {length_bucket(longest, 512) for longest in range(257, 513)} == {512}
    assert length_bucket(500, 480) == 500  # what a row has it has


def test_padding_keeps_the_dtype() -> None:
    for dtype in (np.int64, np.float32):
        padded = pad_to(np.ones((2, 3), dtype), 5, 0)
        assert padded.dtype == dtype
        assert padded.sum(1).tolist() == [3, 3, 0, 0, 0]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(2, 60), st.integers(1, 5)), max_size=60), st.integers(1, 300))
def test_a_budget_is_kept_and_used(units: list[tuple[int, int]], tokens: int) -> None:
    lengths, sizes = np.array(units, np.int64).reshape(-1, 2).T
    batches = budget_batches(lengths, tokens=tokens, sizes=sizes)
    assert sorted(number for batch in batches for number in batch.tolist()) == list(
        range(len(units))
    )
    for batch in batches:
        assert len(batch) == 1 or sizes[batch].sum() * lengths[batch].max() <= tokens
    for longer, shorter in pairwise(batches):
        assert lengths[longer].min() >= lengths[shorter].max()
        first = longer[0]  # it no longer fitted into the batch of shorter ones
        assert (sizes[shorter].sum() + sizes[first]) * lengths[first] > tokens


def test_a_budget_without_sizes_counts_rows() -> None:
    batches = budget_batches(np.array([4, 9, 4, 5]), tokens=10)
    assert [batch.tolist() for batch in batches] == [[1], [3], [0, 2]]


# ---- what travels to a device


def test_a_flat_buffer_holds_every_array_with_its_dtype() -> None:
    arrays = {
        "token_ids": np.arange(10).reshape(2, 5),
        "bounds": np.arange(3, dtype=np.int32),
        "allowed": np.array([[True, False, True]]),
        "targets": np.array([0.1, -2.5, 3e30], np.float32),
        "empty": np.zeros((0, 2), np.int64),
    }
    host = HostBatch(arrays=arrays, longest=5)
    flat = host.flat()
    for name, array in arrays.items():
        part = flat[host.slices[name]]
        assert host.slices[name].start % 16 == 0
        assert np.array_equal(part.view(array.dtype).reshape(array.shape), array)
    assert host.shapes == ((2, 5), (3,), (1, 3), (3,), (0, 2), (5,))
    assert host.is_static
    assert not HostBatch(arrays=arrays | {"mask": np.ones((2, 5), bool)}, longest=5).is_static
