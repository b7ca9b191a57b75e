"""Windows cover a text, and every token belongs to the window that shows the most around it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.tasks.encode.windows import windows

SHAPES = st.lists(st.tuples(st.integers(0, 80), st.integers(1, 30)), min_size=1, max_size=5)


def test_a_worked_example() -> None:
    actual = windows(np.array([10, 3]), np.array([6, 6]), 2)
    assert actual.texts.tolist() == [0, 0, 0, 1]
    assert actual.starts.tolist() == [0, 2, 4, 0]
    assert actual.stops.tolist() == [6, 8, 10, 3]
    assert actual.cores.tolist() == [[0, 4], [4, 6], [6, 10], [0, 3]]


@settings(deadline=None)
@given(SHAPES, st.integers(1, 40))
def test_every_token_belongs_to_one_window_and_stands_in_it(
    shapes: list[tuple[int, int]], stride: int
) -> None:
    lengths, rooms = np.array(shapes).T
    actual = windows(lengths, rooms, stride)
    for text, (length, room) in enumerate(shapes):
        mine = np.flatnonzero(actual.texts == text)
        owned = [token for window in mine for token in range(*actual.cores[window])]
        assert owned == list(range(length))
        for window in mine:
            start, stop, core = actual.starts[window], actual.stops[window], actual.cores[window]
            assert stop - start <= room
            assert start <= core[0] <= core[1] <= stop
            assert stop == length or stop - start == room
            for token in range(*core):
                assert around(token, start, stop) == max(
                    around(token, *ends(actual, other)) for other in mine
                )


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(8, 60), st.integers(1, 60))
def test_behind_a_token_of_the_core_comes_half_an_overlap(
    length: int, room: int, stride: int
) -> None:
    actual = windows(np.array([length]), np.array([room]), stride)
    overlap = room - min(stride, room // 2)
    for window, (_, last) in enumerate(actual.cores):
        assert actual.stops[window] == length or actual.stops[window] - last >= overlap // 2


def ends(found: object, window: int) -> tuple[int, int]:
    return found.starts[window], found.stops[window]  # type: ignore[attr-defined]


def around(token: int, start: int, stop: int) -> int:
    """Tokens on the poorer side, -1 where it does not stand in the window."""
    return min(token - start, stop - 1 - token) if start <= token < stop else -1
