"""Lines of a chart, and the table of their numbers that the page's pointer reads. A run and a name
in; a `Line` out."""

import json
import math
from dataclasses import dataclass, field
from typing import Any

from litebert.report.curve import Bin, bins, extremes, pick, smooth, speeds
from litebert.report.panels import PLANNED, SPEED
from litebert.report.run import Run


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve, at a few hundred places at most."""

    key: int
    """Its row in the table of numbers."""
    run: int
    held: bool
    """Measured on held-out text: drawn with dots."""
    places: dict[str, list[float]]
    """Where its points lie, by axis."""
    values: list[float]
    band: list[tuple[float, float]] | None = None
    """Lowest and highest record at each place; none where records are drawn as they are."""


@dataclass
class Lines:
    """Makes lines, and keeps their numbers once however often they are drawn."""

    most: int
    """Points of a line at most."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    _made: dict[tuple[int, str, bool], Line] = field(default_factory=dict)
    _bins: dict[int, list[Bin]] = field(default_factory=dict)
    _places: dict[tuple[int, bool], tuple[int, dict[str, list[float]]]] = field(
        default_factory=dict
    )

    def trained(self, run: Run, index: int, name: str) -> Line | None:
        """The curve of a column of step records, smoothed, with its lowest and highest; none where
        there is no such column."""
        key, axes = (index, name, False), run.axes
        wanted = {"tokens", "seconds"} <= axes.keys() if name == SPEED else name in run.columns
        if key in self._made or not run.done or not wanted:
            return self._made.get(key)
        parts = self._bins.setdefault(index, bins(len(run.done), self.most))
        if key[::2] not in self._places:
            self._place(
                key[::2],
                {axis: [column[part.at] for part in parts] for axis, column in axes.items()},
            )
        if name == SPEED:
            return self._keep(run, key, speeds(axes["tokens"], axes["seconds"], parts))
        column = run.columns[name]
        if name in PLANNED:  # no noise there: a mean would only round the corners
            return self._keep(run, key, [column[part.at] for part in parts])
        return self._keep(run, key, smooth(column, parts), extremes(column, parts))

    def held(self, run: Run, index: int, name: str) -> Line | None:
        """The points of an evaluation's measure; none where it was not measured."""
        key = (index, name, True)
        if key in self._made or not any(name in each.values for each in run.evaluations):
            return self._made.get(key)
        at = [run.evaluations[i] for i in pick(len(run.evaluations), self.most)]
        if key[::2] not in self._places:
            self._place(key[::2], run.places([each.step for each in at]))
        return self._keep(run, key, [each.values.get(name, math.nan) for each in at])

    def _place(self, key: tuple[int, bool], places: dict[str, list[float]]) -> None:
        self._places[key] = (len(self._places), places)

    def _keep(
        self,
        run: Run,
        key: tuple[int, str, bool],
        values: list[float],
        band: list[tuple[float, float]] | None = None,
    ) -> Line:
        index, name, held = key
        table, places = self._places[index, held]
        line = Line(
            key=len(self.rows), run=index, held=held, places=places, values=values, band=band
        )
        self.rows.append(
            {
                "run": index,
                "run_name": run.name,
                "name": name,
                "held": held,
                "places": table,
                "values": values,
            }
        )
        self._made[key] = line
        return line

    def to_json(self) -> str:
        """All numbers, safe inside a script element."""
        places = [
            {axis: _short(column, 8) for axis, column in each.items()}
            for _, each in self._places.values()
        ]
        lines = [row | {"values": _short(row["values"], 5)} for row in self.rows]
        made = json.dumps(
            {"places": places, "lines": lines}, separators=(",", ":"), allow_nan=False
        )
        return made.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _short(values: list[float], digits: int) -> list[float | int | None]:
    """Numbers of a few digits; null where there is none."""
    short = [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]
    return [
        int(value) if value is not None and value.is_integer() and abs(value) < 1e15 else value
        for value in short
    ]
