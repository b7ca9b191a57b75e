"""A column of a hundred thousand numbers in; a line of a few hundred points out, with the lowest
and highest record of each.

Smoothed values are means over a window around each point, not a trailing average, which would lag.
"""

import json
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from litebert.report.charts import PLANNED_COLUMNS, SPEED
from litebert.report.run import RunData

_WINDOW = 0.02
"""Width of the smoothing window, as a fraction of the run; a short run has a few records."""


@dataclass(frozen=True, kw_only=True)
class _Bin:
    """Consecutive records drawn as one point."""

    start: int
    stop: int
    at: int
    """The record that it is drawn at: of the first bin the first, of the last the last."""


def _make_bins(length: int, most: int) -> list[_Bin]:
    """At most `most` bins of equal length over `length` records."""
    count = min(length, most)
    cuts = [length * i // count for i in range(count + 1)] if count else []
    middles = [(a + b) // 2 for a, b in pairwise(cuts)]
    if middles:
        middles[0], middles[-1] = 0, length - 1
    return [
        _Bin(start=a, stop=b, at=at) for (a, b), at in zip(pairwise(cuts), middles, strict=True)
    ]


def _extremes(values: Sequence[float], bins: list[_Bin]) -> list[tuple[float, float]]:
    """Lowest and highest finite value of each bin; NaN where there is none."""
    bounds = []
    for each in bins:
        finite = [value for value in values[each.start : each.stop] if math.isfinite(value)]
        bounds.append((min(finite), max(finite)) if finite else (math.nan, math.nan))
    return bounds


def half_window(length: int) -> int:
    """Records on each side of a point that its smoothed value is the mean of."""
    return max(int(length * _WINDOW / 2), min(5, length // 20))


def _smooth(values: Sequence[float], bins: list[_Bin]) -> list[float]:
    """The mean of finite values around each bin's position; NaN where there are none. At the start,
    where a loss falls steeply, the window is symmetric; at the end it is cut on the right."""
    finite = [i for i, value in enumerate(values) if math.isfinite(value)]
    sums = [0.0]
    for i in finite:
        sums.append(sums[-1] + values[i])
    half, means = half_window(len(values)), []
    for each in bins:
        reach = min(half, each.at)
        left = bisect_left(finite, each.at - reach)
        right = bisect_left(finite, each.at + reach + 1)
        means.append((sums[right] - sums[left]) / (right - left) if right > left else math.nan)
    return means


def _speeds(tokens: Sequence[float], seconds: Sequence[float], bins: list[_Bin]) -> list[float]:
    """Tokens per second in each bin, from two columns that count from the run's start."""
    rates = []
    for each in bins:
        before = each.start - 1
        time = seconds[each.stop - 1] - (seconds[before] if before >= 0 else 0.0)
        read = tokens[each.stop - 1] - (tokens[before] if before >= 0 else 0.0)
        rates.append(read / time if time > 0 else math.nan)
    return rates


def evenly_spaced(length: int, count: int) -> list[int]:
    """At most `count` evenly spaced indices, the first and the last among them."""
    if length <= count:
        return list(range(length))
    return [round(i * (length - 1) / (count - 1)) for i in range(count)]


def last_level(values: Sequence[float]) -> float:
    """The smoothed value at the end; NaN for an empty column."""
    return _smooth(values, _make_bins(len(values), 200))[-1] if values else math.nan


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve of a few hundred points at most."""

    key: int
    """Its row in the table of numbers that the page's script reads."""
    run: int
    is_heldout: bool
    """Measured on held-out text: drawn with dots."""
    xs: dict[str, list[float]]
    """Positions of its points, by axis."""
    values: list[float]
    band: list[tuple[float, float]] | None = None
    """Lowest and highest record of each point; None where records are drawn as they are."""


@dataclass
class LineTable:
    """Makes lines, and stores their numbers once however often they are drawn."""

    max_points: int
    """Of one line."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    _lines: dict[tuple[int, str, bool], Line] = field(default_factory=dict)
    _bins: dict[int, list[_Bin]] = field(default_factory=dict)
    _xs: dict[tuple[int, bool], tuple[int, dict[str, list[float]]]] = field(default_factory=dict)

    def train(self, run: RunData, index: int, name: str) -> Line | None:
        """A column of step records, smoothed, and its extremes; None where there is none."""
        key, axes = (index, name, False), run.axes
        exists = {"tokens", "seconds"} <= axes.keys() if name == SPEED else name in run.columns
        if key in self._lines or not run.steps_done or not exists:
            return self._lines.get(key)
        bins = self._bins.setdefault(index, _make_bins(len(run.steps_done), self.max_points))
        if key[::2] not in self._xs:
            xs = {axis: [column[each.at] for each in bins] for axis, column in axes.items()}
            self._add_xs(key[::2], xs)
        if name == SPEED:
            return self._add(run, key, _speeds(axes["tokens"], axes["seconds"], bins))
        column = run.columns[name]
        if name in PLANNED_COLUMNS:  # no noise there: a mean would only round the corners
            return self._add(run, key, [column[each.at] for each in bins])
        return self._add(run, key, _smooth(column, bins), _extremes(column, bins))

    def heldout(self, run: RunData, index: int, name: str) -> Line | None:
        """A measure of the evaluations; None where it was not measured."""
        key = (index, name, True)
        if key in self._lines or not any(name in each.values for each in run.evaluations):
            return self._lines.get(key)
        chosen = [run.evaluations[i] for i in evenly_spaced(len(run.evaluations), self.max_points)]
        if key[::2] not in self._xs:
            self._add_xs(key[::2], run.positions([each.step for each in chosen]))
        return self._add(run, key, [each.values.get(name, math.nan) for each in chosen])

    def _add_xs(self, key: tuple[int, bool], xs: dict[str, list[float]]) -> None:
        self._xs[key] = (len(self._xs), xs)

    def _add(
        self,
        run: RunData,
        key: tuple[int, str, bool],
        values: list[float],
        band: list[tuple[float, float]] | None = None,
    ) -> Line:
        index, name, is_heldout = key
        xs_number, xs = self._xs[index, is_heldout]
        line = Line(
            key=len(self.rows), run=index, is_heldout=is_heldout, xs=xs, values=values, band=band
        )
        self.rows.append(
            {
                "run": index,
                "run_name": run.name,
                "name": name,
                "held": is_heldout,
                "places": xs_number,
                "values": values,
            }
        )
        self._lines[key] = line
        return line

    def to_json(self) -> str:
        """All numbers, safe inside a script element."""
        places = [
            {axis: _round(column, 8) for axis, column in each.items()}
            for _, each in self._xs.values()
        ]
        lines = [row | {"values": _round(row["values"], 5)} for row in self.rows]
        numbers = json.dumps(
            {"places": places, "lines": lines}, separators=(",", ":"), allow_nan=False
        )
        return numbers.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _round(values: list[float], digits: int) -> list[float | int | None]:
    """Numbers of a few digits; None for one that is not finite."""
    rounded = [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]
    return [
        int(value) if value is not None and value.is_integer() and abs(value) < 1e15 else value
        for value in rounded
    ]
