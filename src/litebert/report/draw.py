"""A chart's lines in; HTML out, with curves as SVG and labels as text.

The SVG stretches with the window while strokes keep their width, and labels stand beside it as text
of the page, so that a chart is legible at any width. Each is drawn over every horizontal axis; the
page shows one of them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from litebert.report.charts import Chart
from litebert.report.lines import Line
from litebert.report.markup import count, escape, number
from litebert.report.run import AXES

WIDTH, HEIGHT = 2000, 1000
"""Units of the drawing, large enough for integer coordinates, which keep a path short."""
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))
_DOTS = 120
"""Points of a held-out line up to which each has a dot."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A moment of a run, as a vertical line."""

    xs: dict[str, float]
    text: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class Series:
    """A line and how it looks in one chart."""

    line: Line
    label: str
    color: int
    faint: bool = False
    """Thin: training beside held-out text where runs are compared."""
    band: bool = True
    """Whether its lowest and highest records are drawn behind it."""

    @property
    def kind(self) -> str:
        """Its class in page.css."""
        return "faint" if self.faint else "held" if self.line.is_heldout else "trained"


@dataclass(frozen=True)
class _YAxis:
    """The vertical axis."""

    low: float
    high: float
    log: bool
    beyond: float | None = None
    """The highest value, where it is too far off to be drawn."""

    def unit(self, value: float) -> int:
        """From the top, in units of the drawing."""
        if self.log:
            fraction = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            fraction = (value - self.low) / (self.high - self.low)
        return round(HEIGHT * (1 - min(max(fraction, -0.02), 1.02)))


def draw(
    chart: Chart, series: Sequence[Series], marks: Sequence[Mark], *, wide: bool = False
) -> str:
    """The figure of a chart; nothing where no line has a finite number."""
    y_axis = _make_y_axis(chart, series)
    if y_axis is None:
        return ""
    highest = {
        axis: max((max(each.line.xs[axis]) for each in series if axis in each.line.xs), default=0.0)
        for axis in AXES
    }
    axes = [axis for axis in AXES if highest[axis] > 0]
    values = _log_ticks(y_axis.low, y_axis.high) if y_axis.log else []
    if len(values) < 3:  # an axis of powers of ten may span less than one of them
        values = _ticks(y_axis.low, y_axis.high)
    grid = "".join(f'<path class="grid" d="M0 {y_axis.unit(value)}H{WIDTH}"/>' for value in values)
    scale = "".join(
        f'<span style="top:{y_axis.unit(value) * 100 / HEIGHT:.1f}%">{escape(label)}</span>'
        for value, label in zip(values, _labels(values, share=chart.is_share), strict=True)
    )
    guide, guide_label = _guide(chart, y_axis)
    curves = "".join(
        f'<g class="over-{axis}">{_over(axis, highest[axis], series, marks, y_axis)}</g>'
        for axis in axes
    )
    bottom = "".join(_bottom(axis, highest[axis], 8 if wide else 5) for axis in axes)
    keys = ",".join(f"{each.line.key}:{each.color}" for each in series)
    ends = " ".join(f'data-{axis}="{highest[axis]:.8g}"' for axis in axes)
    beyond = (
        f'<span class="beyond">highest: {number(y_axis.beyond)}, off the scale</span>'
        if y_axis.beyond is not None
        else ""
    )
    return (
        f'<figure class="panel{" wide" if wide else ""}">'
        f"<figcaption><h3>{escape(chart.title)}</h3>{_legend(series)}</figcaption>"
        f'<div class="plot" data-lines="{keys}" {ends} data-share="{int(chart.is_share)}">'
        f'<div class="scale">{scale}</div><div class="area">'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(_spoken(chart, series))}">'
        f"{grid}{guide}{curves}</svg>{guide_label}{beyond}</div>{bottom}</div></figure>"
    )


def _make_y_axis(chart: Chart, series: Sequence[Series]) -> _YAxis | None:
    values = [value for each in series for value in each.line.values]
    bands = [each.line.band or [] for each in series if each.band]
    values += [value for band in bands for pair in band for value in pair]
    finite = sorted(value for value in values if math.isfinite(value))
    if not finite:
        return None
    if chart.log and finite[-1] > 0:
        positive = [value for value in finite if value > 0]
        return _YAxis(positive[0] / 1.2, positive[-1] * 1.2, True)
    if chart.guide:
        finite = sorted([*finite, chart.guide[0]])
    low, high, beyond = finite[0], finite[-1], None
    usual = _usual(chart, series, finite)
    if low >= 0 and high > 4 * usual > 0:  # a burst would press the rest flat
        high, beyond = 1.1 * usual, high
    room = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    low = 0.0 if chart.zero and low >= 0 else max(low - room, 0.0) if low >= 0 else low - room
    high = min(high + room, 1.0) if chart.is_share and high <= 1 else high + room
    return _YAxis(low, high if high > low else low + 1, False, beyond)


def _usual(chart: Chart, series: Sequence[Series], finite: list[float]) -> float:
    """About how high a chart reaches when nothing goes wrong. A loss that diverges, maybe for long,
    is drawn to the height from which it came; others may rise late and by much (an accuracy after
    its plateau), so only a rare value counts as out of the ordinary."""
    if not (chart.train or chart.heldout[0]).endswith("loss"):
        return 2 * finite[int(0.99 * (len(finite) - 1))]
    first = [
        next((value for value in each.line.values if math.isfinite(value)), 0.0) for each in series
    ]
    return max(2 * finite[len(finite) // 2], *first)


def _over(
    axis: str, highest: float, series: Sequence[Series], marks: Sequence[Mark], y_axis: _YAxis
) -> str:
    """Everything that depends on the horizontal axis."""
    parts = [_mark(mark, axis, highest) for mark in _apart(marks, axis, highest)]
    for faint in (True, False):  # the important ones above the others
        for each in series:
            if each.faint == faint and axis in each.line.xs:
                parts.append(
                    f'<g data-run="{each.line.run}" '
                    f'class="c{each.color}">{_curve(each, axis, highest, y_axis)}</g>'
                )
    return "".join(parts)


def _curve(each: Series, axis: str, highest: float, y_axis: _YAxis) -> str:
    line = each.line
    across = [round(WIDTH * x / highest) for x in line.xs[axis]]
    stretches = list(_finite(line.values))
    path = "".join(
        _path([(across[i], y_axis.unit(line.values[i])) for i in stretch]) for stretch in stretches
    )
    band = _band(line.band, across, y_axis) if line.band and each.band else ""
    drawn = f'{band}<path class="{each.kind}" d="{path}"/>'
    if line.is_heldout and len(line.values) <= _DOTS:
        dots = "".join(f"M{across[i]} {y_axis.unit(line.values[i])}h.1" for i in chain(*stretches))
        drawn += f'<path class="dots" d="{dots}"/>'
    return drawn


def _band(band: list[tuple[float, float]], across: list[int], y_axis: _YAxis) -> str:
    # flat: each record has its own point
    flat = all(low == high for low, high in band if math.isfinite(low))
    path = ""
    for stretch in _finite([low for low, _ in band]):
        upper = [(across[i], y_axis.unit(band[i][1])) for i in stretch]
        lower = [(across[i], y_axis.unit(band[i][0])) for i in reversed(stretch)]
        path += _path(upper) if flat else _path(upper + lower) + "Z"
    return f'<path class="{"raw" if flat else "band"}" d="{path}"/>'


def _finite(values: Sequence[float]) -> Iterable[list[int]]:
    """Indices of consecutive finite values."""
    stretch: list[int] = []
    for i, value in enumerate(values):
        if math.isfinite(value):
            stretch.append(i)
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def _path(points: Sequence[tuple[int, int]]) -> str:
    """Relative lines through points; a single point becomes a dash, or it would be invisible."""
    if len(points) == 1:
        return f"M{points[0][0]} {points[0][1]}h4"
    steps = "".join(f"{x - a} {y - b} " for (a, b), (x, y) in pairwise(points))
    return f"M{points[0][0]} {points[0][1]}l{steps.rstrip().replace(' -', '-')}"


def _apart(marks: Sequence[Mark], axis: str, highest: float) -> list[Mark]:
    """Marks of one kind that the eye can tell apart."""
    seen: dict[tuple[str, int], Mark] = {}
    for mark in marks:
        if axis in mark.xs:
            seen.setdefault((mark.kind, round(200 * mark.xs[axis] / highest)), mark)
    return list(seen.values())


def _mark(mark: Mark, axis: str, highest: float) -> str:
    x = round(WIDTH * mark.xs[axis] / highest)
    text = f'data-text="{escape(mark.text)}"'
    return f'<path class="mark {escape(mark.kind)}" {text} d="M{x} 0V{HEIGHT}"/>'


def _guide(chart: Chart, y_axis: _YAxis) -> tuple[str, str]:
    if chart.guide is None:
        return "", ""
    y = y_axis.unit(chart.guide[0])
    label = (
        f'<span class="guide" style="top:{y * 100 / HEIGHT:.1f}%">{escape(chart.guide[1])}</span>'
    )
    return f'<path class="guide" d="M0 {y}H{WIDTH}"/>', label


def _bottom(axis: str, highest: float, about: int) -> str:
    labeled = _axis_ticks(axis, highest, about)
    if axis != "seconds":  # whose labels have units
        labeled[0] = (labeled[0][0], f"0 {axis}")
    kinds = ["first", *("odd" if i % 2 else "even" for i in range(1, len(labeled)))]
    spans = "".join(
        f'<span class="{kind}" style="left:{100 * value / highest:.1f}%">{escape(label)}</span>'
        for kind, (value, label) in zip(kinds, labeled, strict=True)
    )
    return f'<div class="bottom over-{axis}">{spans}</div>'


def _legend(series: Sequence[Series]) -> str:
    """Names of the lines; empty for a single one."""
    if len(series) < 2:
        return ""
    seen: dict[str, str] = {}
    for each in series:
        item = f'<li class="c{each.color} {each.kind}">{escape(each.label)}</li>'
        seen.setdefault(each.label, item)
    return f'<ul class="legend">{"".join(seen.values())}</ul>'


def _spoken(chart: Chart, series: Sequence[Series]) -> str:
    """The chart in words, for screen readers."""
    parts = []
    for each in series:
        finite = [value for value in each.line.values if math.isfinite(value)]
        if finite:
            parts.append(
                f"{each.label} from {number(finite[0])} to {number(finite[-1])}, lowest "
                f"{number(min(finite))}"
            )
    return f"{chart.title}: " + "; ".join(parts)


def _ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round values (1, 2, 5 times a power of ten) within an interval."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten within an interval; with 2 and 5 times them where it is narrow."""
    decades = math.log10(high / low)
    sizes = (1, 2, 5) if decades <= 2.5 else (1,)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    every = max(1, math.ceil(len(powers) / 8))
    values = [size * 10.0**power for power in powers if power % every == 0 for size in sizes]
    return [tick for tick in values if low * 0.999 <= tick <= high * 1.001]


def _axis_ticks(axis: str, high: float, about: int) -> list[tuple[float, str]]:
    """Values and labels of an axis that counts steps, tokens or seconds from 0."""
    if axis != "seconds":
        return [(tick, count(tick)) for tick in _ticks(0, high, about)]
    size, unit = next((unit for unit in _UNITS if high >= 2 * unit[0]), _UNITS[-1])
    return [
        (tick * size, f"{tick:.4g} {unit}" if tick else "0")
        for tick in _ticks(0, high / size, about)
    ]


def _labels(values: Iterable[float], *, share: bool = False) -> list[str]:
    """Labels of a vertical axis."""
    if share:
        return [f"{100 * value:.4g} %" for value in values]
    return [count(value) if value >= 10_000 else f"{value:.4g}" for value in values]
