"""A column of a hundred thousand numbers into a few hundred points that hide nothing: bins with
their lowest and highest.
 Smoothed values are means over a window around each point, not a trailing average: a curve that
lags behind is a wrong one.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

WINDOW = 0.02
"""Width of the smoothing window, as a part of the run; in a short run it has a few records."""


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Consecutive records drawn as one point."""

    start: int
    stop: int
    at: int
    """The record whose place it takes: the first in the first bin, the last in the last, else the
    middle one."""


def bins(length: int, most: int) -> list[Bin]:
    """At most `most` bins of equal length over `length` records."""
    count = min(length, most)
    cuts = [length * i // count for i in range(count + 1)] if count else []
    made = [Bin(start=a, stop=b, at=(a + b) // 2) for a, b in pairwise(cuts)]
    if made:
        made[0] = Bin(start=made[0].start, stop=made[0].stop, at=0)
        made[-1] = Bin(start=made[-1].start, stop=made[-1].stop, at=length - 1)
    return made


def extremes(values: Sequence[float], parts: list[Bin]) -> list[tuple[float, float]]:
    """Lowest and highest finite value of each bin; NaN where there is none."""
    found = []
    for part in parts:
        finite = [value for value in values[part.start : part.stop] if math.isfinite(value)]
        found.append((min(finite), max(finite)) if finite else (math.nan, math.nan))
    return found


def window(length: int) -> int:
    """Records on each side of a point that its smoothed value is the mean of."""
    return max(int(length * WINDOW / 2), min(5, length // 20))


def smooth(values: Sequence[float], parts: list[Bin]) -> list[float]:
    """The mean around each bin's place, of finite values only; NaN where there is none.

    Early on, where a loss falls steeply, the window is as narrow on the right as the beginning
    makes it on the left, for a lopsided mean would be too low; at the end, where the loss is flat,
    it is cut on one side, for the level is asked there.
    """
    places = [i for i, value in enumerate(values) if math.isfinite(value)]
    sums = [0.0]
    for i in places:
        sums.append(sums[-1] + values[i])
    half, found = window(len(values)), []
    for part in parts:
        reach = min(half, part.at)
        left, right = bisect_left(places, part.at - reach), bisect_left(places, part.at + reach + 1)
        found.append((sums[right] - sums[left]) / (right - left) if right > left else math.nan)
    return found


def speeds(tokens: Sequence[float], seconds: Sequence[float], parts: list[Bin]) -> list[float]:
    """Tokens in a second over each bin, both columns counting from the run's beginning."""
    found = []
    for part in parts:
        before = part.start - 1
        time = seconds[part.stop - 1] - (seconds[before] if before >= 0 else 0.0)
        read = tokens[part.stop - 1] - (tokens[before] if before >= 0 else 0.0)
        found.append(read / time if time > 0 else math.nan)
    return found


def pick(length: int, most: int) -> list[int]:
    """At most `most` evenly spaced indices, the first and the last among them."""
    if length <= most:
        return list(range(length))
    return [round(i * (length - 1) / (most - 1)) for i in range(most)]
