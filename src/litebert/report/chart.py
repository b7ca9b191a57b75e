"""A chart: lines in; HTML out, with curves as SVG and labels as text.
 The SVG stretches with the window while strokes keep their width, and labels stand beside it as
text of the page: so a chart is legible at any width. Each is drawn over every axis; the page shows
one of them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from litebert.report.lines import Line
from litebert.report.markup import text
from litebert.report.panels import Panel
from litebert.report.run import AXES
from litebert.report.scale import axis_ticks, labels, log_ticks, number, ticks

WIDTH, HEIGHT = 2000, 1000
"""Units of the drawing; whole numbers of them keep a path short."""
DOTS = 120
"""Points of a held-out line up to which each has a dot."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A moment of a run, as a vertical line."""

    places: dict[str, float]
    text: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A line and how it looks in one chart."""

    line: Line
    label: str
    color: int
    faint: bool = False
    """Thin: training beside held-out text where runs are compared."""
    band: bool = True
    """Whether its lowest and highest records are drawn behind it."""


@dataclass(frozen=True)
class Domain:
    """The vertical axis."""

    low: float
    high: float
    log: bool
    beyond: float | None = None
    """The highest value, where it is too far off to be drawn."""

    def unit(self, value: float) -> int:
        """From the top, in units of the drawing."""
        if self.log:
            part = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return round(HEIGHT * (1 - min(max(part, -0.02), 1.02)))


def draw(panel: Panel, lines: Sequence[Drawn], marks: Sequence[Mark], *, wide: bool = False) -> str:
    """The figure of a panel; nothing where no line has a finite number."""
    domain = _domain(panel, lines)
    if domain is None:
        return ""
    highest = {
        axis: max(
            (max(each.line.places[axis]) for each in lines if axis in each.line.places), default=0.0
        )
        for axis in AXES
    }
    axes = [axis for axis in AXES if highest[axis] > 0]
    values = log_ticks(domain.low, domain.high) if domain.log else []
    if len(values) < 3:  # an axis of powers of ten may span less than one of them
        values = ticks(domain.low, domain.high)
    grid = "".join(f'<path class="grid" d="M0 {domain.unit(value)}H{WIDTH}"/>' for value in values)
    scale = "".join(
        f'<span style="top:{domain.unit(value) * 100 / HEIGHT:.1f}%">{text(label)}</span>'
        for value, label in zip(values, labels(values, share=panel.share), strict=True)
    )
    guide, guide_label = _guide(panel, domain)
    drawn = "".join(
        f'<g class="over-{axis}">{_over(axis, highest[axis], lines, marks, domain)}</g>'
        for axis in axes
    )
    bottom = "".join(_bottom(axis, highest[axis], 8 if wide else 5) for axis in axes)
    keys = ",".join(f"{each.line.key}:{each.color}" for each in lines)
    ends = " ".join(f'data-{axis}="{highest[axis]:.8g}"' for axis in axes)
    beyond = (
        f'<span class="beyond">highest: {number(domain.beyond)}, off the scale</span>'
        if domain.beyond is not None
        else ""
    )
    return (
        "<figure "
        f'class="panel{" wide" if wide else ""}"><figcaption><h3>{text(panel.title)}</h3>{_legend(lines)}</figcaption>'
        f'<div class="plot" data-lines="{keys}" {ends} data-share="{int(panel.share)}">'
        f'<div class="scale">{scale}</div><div class="area">'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{text(_spoken(panel, lines))}">'
        f"{grid}{guide}{drawn}</svg>{guide_label}{beyond}</div>{bottom}</div></figure>"
    )


def _domain(panel: Panel, lines: Sequence[Drawn]) -> Domain | None:
    values = [value for each in lines for value in each.line.values]
    values += [
        value
        for each in lines
        if each.line.band and each.band
        for pair in each.line.band
        for value in pair
    ]
    found = sorted(value for value in values if math.isfinite(value))
    if not found:
        return None
    if panel.log and found[-1] > 0:
        positive = [value for value in found if value > 0]
        return Domain(positive[0] / 1.2, positive[-1] * 1.2, True)
    if panel.guide:
        found = sorted([*found, panel.guide[0]])
    low, high, beyond = found[0], found[-1], None
    usual = _usual(panel, lines, found)
    if low >= 0 and high > 4 * usual > 0:  # a burst would press the rest flat
        high, beyond = 1.1 * usual, high
    room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    low = 0.0 if panel.zero and low >= 0 else max(low - room, 0.0) if low >= 0 else low - room
    high = min(high + room, 1.0) if panel.share and high <= 1 else high + room
    return Domain(low, high if high > low else low + 1, False, beyond)


def _usual(panel: Panel, lines: Sequence[Drawn], found: list[float]) -> float:
    """About how high a chart reaches when nothing goes wrong.

    A loss that diverges may do so for a long time: it is drawn to the height from which it came.
    Other measures may rise late and by much (an accuracy after its plateau), so there only a rare
    value counts as out of the ordinary.
    """
    if not (panel.trained or panel.held[0]).endswith("loss"):
        return 2 * found[int(0.99 * (len(found) - 1))]
    first = [
        next((value for value in each.line.values if math.isfinite(value)), 0.0) for each in lines
    ]
    return max(2 * found[len(found) // 2], *first)


def _over(
    axis: str, highest: float, lines: Sequence[Drawn], marks: Sequence[Mark], domain: Domain
) -> str:
    """Everything that depends on the horizontal axis."""
    parts = [_mark(mark, axis, highest) for mark in _apart(marks, axis, highest)]
    for faint in (True, False):  # the important ones above the others
        for each in lines:
            if each.faint == faint and axis in each.line.places:
                parts.append(
                    f'<g data-run="{each.line.run}" '
                    f'class="c{each.color}">{_curve(each, axis, highest, domain)}</g>'
                )
    return "".join(parts)


def _curve(each: Drawn, axis: str, highest: float, domain: Domain) -> str:
    line = each.line
    across = [round(WIDTH * place / highest) for place in line.places[axis]]
    runs = list(_finite(line.values))
    path = "".join(_path([(across[i], domain.unit(line.values[i])) for i in part]) for part in runs)
    band = "" if line.band is None or not each.band else _band(line, across, domain)
    kind = "faint" if each.faint else "held" if line.held else "trained"
    drawn = f'{band}<path class="{kind}" d="{path}"/>'
    if line.held and len(line.values) <= DOTS:
        dots = "".join(
            f"M{across[i]} {domain.unit(line.values[i])}h.1" for part in runs for i in part
        )
        drawn += f'<path class="dots" d="{dots}"/>'
    return drawn


def _band(line: Line, across: list[int], domain: Domain) -> str:
    assert line.band is not None
    flat = all(
        low == high for low, high in line.band if math.isfinite(low)
    )  # each record has its own point
    path = ""
    for part in _finite([low for low, _ in line.band]):
        upper = [(across[i], domain.unit(line.band[i][1])) for i in part]
        lower = [(across[i], domain.unit(line.band[i][0])) for i in reversed(part)]
        path += _path(upper) if flat else _path(upper + lower) + "Z"
    return f'<path class="{"raw" if flat else "band"}" d="{path}"/>'


def _finite(values: Sequence[float]) -> Iterable[list[int]]:
    """Indices of consecutive finite values."""
    part: list[int] = []
    for i, value in enumerate(values):
        if math.isfinite(value):
            part.append(i)
        elif part:
            yield part
            part = []
    if part:
        yield part


def _path(points: Sequence[tuple[int, int]]) -> str:
    """Lines through points, each relative to the one before; a single point becomes a dash, or it
    would not be seen."""
    if len(points) == 1:
        return f"M{points[0][0]} {points[0][1]}h4"
    steps = "".join(f"{x - a} {y - b} " for (a, b), (x, y) in pairwise(points))
    return f"M{points[0][0]} {points[0][1]}l{steps.rstrip().replace(' -', '-')}"


def _apart(marks: Sequence[Mark], axis: str, highest: float) -> list[Mark]:
    """Marks of one kind that the eye can tell apart."""
    seen: dict[tuple[str, int], Mark] = {}
    for mark in marks:
        if axis in mark.places:
            seen.setdefault((mark.kind, round(200 * mark.places[axis] / highest)), mark)
    return list(seen.values())


def _mark(mark: Mark, axis: str, highest: float) -> str:
    place = round(WIDTH * mark.places[axis] / highest)
    return f'<path class="mark {text(mark.kind)}" data-text="{text(mark.text)}" d="M{place} 0V{HEIGHT}"/>'


def _guide(panel: Panel, domain: Domain) -> tuple[str, str]:
    if panel.guide is None:
        return "", ""
    place = domain.unit(panel.guide[0])
    label = (
        f'<span class="guide" style="top:{place * 100 / HEIGHT:.1f}%">{text(panel.guide[1])}</span>'
    )
    return f'<path class="guide" d="M0 {place}H{WIDTH}"/>', label


def _bottom(axis: str, highest: float, about: int) -> str:
    found = axis_ticks(axis, highest, about)
    if axis != "seconds":  # whose labels have units
        found[0] = (found[0][0], f"0 {axis}")
    kinds = ["first", *("odd" if i % 2 else "even" for i in range(1, len(found)))]
    spans = "".join(
        f'<span class="{kind}" style="left:{100 * value / highest:.1f}%">{text(label)}</span>'
        for kind, (value, label) in zip(kinds, found, strict=True)
    )
    return f'<div class="bottom over-{axis}">{spans}</div>'


def _legend(lines: Sequence[Drawn]) -> str:
    """What the lines are; left out where there is one only."""
    if len(lines) < 2:
        return ""
    seen: dict[str, str] = {}
    for each in lines:
        kind = "faint" if each.faint else "held" if each.line.held else "trained"
        seen.setdefault(each.label, f'<li class="c{each.color} {kind}">{text(each.label)}</li>')
    return f'<ul class="legend">{"".join(seen.values())}</ul>'


def _spoken(panel: Panel, lines: Sequence[Drawn]) -> str:
    """What the chart says, for who cannot see it."""
    parts = []
    for each in lines:
        finite = [value for value in each.line.values if math.isfinite(value)]
        if finite:
            parts.append(
                f"{each.label} from {number(finite[0])} to {number(finite[-1])}, lowest "
                f"{number(min(finite))}"
            )
    return f"{panel.title}: " + "; ".join(parts)
