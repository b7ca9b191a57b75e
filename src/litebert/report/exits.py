"""Early exit of a fine-tuning run: what fewer layers cost in score on dev, all criteria side by
side, as a chart and a table."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from litebert.report.draw import HEIGHT, WIDTH
from litebert.report.markup import cell, escape, number, row_head, table
from litebert.report.run import DevResults
from litebert.tasks.scores.score import printed, printed_interval

Points = list[tuple[float, float]]
"""Mean depths and scores."""


def exits_section(dev: DevResults) -> str:
    """Score against mean depth, and the calibrated thresholds; nothing for a run without exits."""
    name = dev.evaluation.task.scores[0]
    depths = dev.result.get("depth_scores")
    if not isinstance(depths, list) or len(depths) < 2:
        return ""
    fixed = _finite((depth, each.get(name)) for depth, each in enumerate(_dicts(depths), start=1))
    curves = {"a fixed depth": fixed} | {
        str(criterion): _finite((each.get("mean_depth"), each.get("score")) for each in points)
        for criterion, points in _lists(dev.result.get("exit_curves"))
    }
    curves = {label: points for label, points in curves.items() if points}
    if not curves:
        return ""
    rows = []
    exits = dev.result.get("exits")
    for criterion, each in exits.items() if isinstance(exits, dict) else ():
        if isinstance(each, dict) and all(_is_number(each.get(key)) for key in _COLUMNS):
            rows.append(_row(name, str(criterion), each))
    head = ["criterion", "threshold", "mean depth", "score", "lost", "95 % interval", "changed"]
    note = (
        "Each point of a criterion is one threshold. In the table are the calibrated ones; changed "
        "is the rate of answers that differ from the full depth's on texts kept aside, at most, "
        "with 95 % confidence."
    )
    return (
        _figure(name, curves, len(depths), _layers(len(depths)), ("mean depth", "layers"))
        + _times(name, dev.exits)
        + (table(head, rows) if rows else '<p class="quiet">No threshold was calibrated.</p>')
        + f'<p class="quiet">{escape(note)}</p>'
    )


_COLUMNS = ("threshold", "dev_mean_depth", "dev_score", "dev_lost", "bound")


def _row(name: str, criterion: str, each: dict[str, Any]) -> list[str]:
    ends = each.get("dev_lost_interval")
    interval = None
    if isinstance(ends, list) and len(ends) == 2 and all(map(_is_number, ends)):
        interval = (ends[0], ends[1])
    return [
        row_head(criterion),
        cell(f"{each['threshold']:.12g}"),
        cell(f"{each['dev_mean_depth']:.2f}"),
        cell(printed(name, each["dev_score"])),
        cell(printed(name, each["dev_lost"])),
        cell(printed_interval(name, interval)),
        cell(f"{100 * each['bound']:.2f} %"),
    ]


def _layers(depth: int) -> dict[float, str]:
    step = max(1, -(-depth // 12))
    return {float(each): str(each) for each in range(step, depth + 1, step)}


def _times(name: str, exits: dict[str, Any]) -> str:
    """Score against measured time, as `litebert evaluate --curve` wrote it beside the run."""
    seconds: Any = exits.get("seconds")
    if not _is_number(seconds) or seconds <= 0 or exits.get("score_name") != name:
        return ""
    curves = {
        str(criterion): [
            (time / seconds, score)
            for time, score in _finite((each.get("seconds"), each.get("score")) for each in points)
        ]
        for criterion, points in _lists(exits.get("curves"))
    }
    curves = {"all layers": _finite([(1.0, exits.get("score"))])} | curves
    curves = {label: points for label, points in curves.items() if points}
    if len(curves) < 2:
        return ""
    most = max(1.0, *(across for points in curves.values() for across, _ in points))
    ticks = {share: f"{100 * share:.0f} %" for share in (0.2, 0.4, 0.6, 0.8, 1.0)}
    return _figure(name, curves, most, ticks, ("measured time", "of all layers'"))


def _figure(
    name: str,
    curves: dict[str, Points],
    most: float,
    ticks: dict[float, str],
    axis: tuple[str, str],
) -> str:
    """`most` is the right end of the axis, which has a title and a unit."""
    scores = [score for points in curves.values() for _, score in points]
    low, high = min(scores), max(scores)
    room = 0.05 * (high - low) or 0.01
    low, high = low - room, high + room

    def place(point: tuple[float, float]) -> tuple[int, int]:
        across = min(max(point[0] / most, 0.0), 1.0)
        return round(WIDTH * across), round(HEIGHT * (1 - (point[1] - low) / (high - low)))

    levels = {
        level: place((0, level))[1] for level in (low + (high - low) * i / 4 for i in range(5))
    }
    grid = "".join(f'<path class="grid" d="M0 {y}H{WIDTH}"/>' for y in levels.values())
    scale = "".join(
        f'<span style="top:{y * 100 / HEIGHT:.1f}%">{printed(name, level)}</span>'
        for level, y in levels.items()
    )
    drawn = "".join(
        f'<g class="c{color}">{_curve([place(point) for point in sorted(points)])}</g>'
        for color, points in enumerate(curves.values())
    )
    legend = "".join(
        f'<li class="c{color} held">{escape(label, 40)}</li>' for color, label in enumerate(curves)
    )
    spoken = "; ".join(
        f"{label} from {number(min(points)[1])} at {min(points)[0]:.3g} to "
        f"{number(max(points)[1])} at {max(points)[0]:.3g} {axis[1]}"
        for label, points in curves.items()
    )
    bottom = "".join(
        f'<span style="left:{100 * at / most:.1f}%">{label}</span>' for at, label in ticks.items()
    )
    return (
        '<div class="panels"><figure class="panel wide"><figcaption>'
        f'<h3>{escape(name)} by {axis[0]}</h3><ul class="legend">{legend}</ul></figcaption>'
        f'<div class="plot"><div class="scale">{scale}</div><div class="area">'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(spoken)}">{grid}{drawn}</svg></div>'
        f'<div class="bottom"><span class="first">{escape(axis[1])}</span>{bottom}</div>'
        "</div></figure></div>"
    )


def _curve(points: Sequence[tuple[int, int]]) -> str:
    (x, y), dots = points[0], "".join(f"M{x} {y}h.1" for x, y in points)
    steps = "".join(f"l{b - a} {d - c}" for (a, c), (b, d) in pairwise(points))
    return f'<path class="held" d="M{x} {y}{steps}"/><path class="dots" d="{dots}"/>'


def _finite(points: Any) -> Points:
    return [(x, y) for x, y in points if _is_number(x) and _is_number(y)]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _dicts(values: Any) -> list[dict[str, Any]]:
    return [each if isinstance(each, dict) else {} for each in values]


def _lists(value: Any) -> list[tuple[str, list[dict[str, Any]]]]:
    items = value.items() if isinstance(value, dict) else ()
    return [(name, _dicts(points)) for name, points in items if isinstance(points, list)]
