"""A study's picture, as SVG and PNG: rows in, files out. Points are seeds, strokes their means."""

from collections.abc import Callable, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from litebert.errors import ConfigError, MissingExtraError
from litebert.lab.results import RowResult, columns
from litebert.lab.study import Study
from litebert.lab.table import column_head, is_percentage

_BLUE, _GRAY, _INK = "#2f6db5", "#9aa5b1", "#30363d"
_STYLE: Any = {
    "font.size": 13,
    "axes.titlesize": 16,
    "axes.labelsize": 13,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "litebert",
}
_PANELS = 2
"""Measures drawn side by side, at most."""
_CRITERIA = {"patience": "C0", "confidence": "C1", "cumulative": "C2"}


def plot(study: Study, rows: Sequence[RowResult], folder: Path) -> list[Path]:
    """Draw the study's first measures by row, or its curves, into FOLDER/plot.svg and plot.png."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("matplotlib", extra="lab", purpose="drawing a study") from error
    matplotlib.use("agg")
    from matplotlib import pyplot
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    learned = [row for row in rows if row.learned]
    if rows and not learned:
        raise ConfigError(f"no row of study {study.name} has learned; there is nothing to draw")
    with pyplot.rc_context(_STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
        is_list = study.kind == "count" or study.chart == "points"
        height = max(1.6 + 0.42 * len(learned), 3.4) if is_list else 5.5
        figure = pyplot.figure(figsize=(11, height), layout=layout)
        draw = _draw_counts if study.kind == "count" else _DRAW[study.chart]
        try:
            draw(figure, study, learned)
            if left_out := [row.row.name for row in rows if not row.learned]:
                note = f"not learned, left out: {', '.join(left_out)}"
                figure.supxlabel(note, x=0.01, ha="left", fontsize=12, color=_GRAY)
            figure.suptitle(study.title, x=0.01, ha="left", fontweight="bold")
            paths = [folder / "plot.svg", folder / "plot.png"]
            for path in paths:
                date = {"Date": None} if path.suffix == ".svg" else None
                figure.savefig(path, dpi=150, metadata=date)
        finally:
            pyplot.close(figure)
    return paths


def _draw_counts(figure: Any, study: Study, rows: Sequence[RowResult]) -> None:
    """Bars of the parameters, with how many times smaller than the control."""
    axes = figure.subplots()
    positions = range(len(rows) - 1, -1, -1)
    millions = [row.parameters / 1e6 for row in rows]
    is_control = [row.row.name == study.reference.name for row in rows]
    axes.barh(positions, millions, color=[_GRAY if each else _BLUE for each in is_control])
    for position, row, number in zip(positions, rows, millions, strict=True):
        times = row.cells["smaller"].mean
        note = f" {number:.1f} M" + (f", {times:.1f} × smaller" if times > 1.05 else "")
        axes.text(number, position, note, va="center", color=_INK, fontsize=12)
    axes.set_yticks(list(positions), [row.row.name for row in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlim(0, 1.15 * max(millions))
    axes.set_xlabel(f"parameters, millions (compared with {study.reference.name})")


def _draw_points(figure: Any, study: Study, rows: Sequence[RowResult]) -> None:
    """Seeds by row, the first measures in panels of their own."""
    if not columns(study, rows):
        raise ConfigError(f"study {study.name} has nothing to draw yet")
    learned = [row for row in rows if any(cell.learned for cell in row.cells.values())]
    there = {
        name: sum(name in row.cells and row.cells[name].learned for row in learned)
        for name in columns(study, rows)
    }
    compared = [name for name, count in there.items() if count and count >= min(2, len(learned))]
    names = (compared or [name for name, count in there.items() if count])[:_PANELS]
    if not names:
        raise ConfigError(f"no row of study {study.name} has learned; there is nothing to draw")
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        _draw_panel(axes, name, study, learned)
    panels[0].set_yticks(range(len(learned)), [fill(row.row.name, 28) for row in reversed(learned)])
    panels[0].set_ylim(-0.6, len(learned) - 0.4)


def _draw_panel(axes: Any, name: str, study: Study, rows: Sequence[RowResult]) -> None:
    scale = 100.0 if is_percentage(name) else 1.0
    for y, row in enumerate(reversed(rows)):
        cell = row.cells.get(name)
        if cell is None or not cell.learned:
            continue
        is_control = row.row.name == study.reference.name
        color = _GRAY if is_control else _BLUE
        axes.plot([scale * value for value in cell.values], [y] * len(cell.values), "o",
                  color=color, alpha=0.55, markersize=8)  # fmt: skip
        axes.plot([scale * cell.mean], [y], "|", color=color, markersize=20, markeredgewidth=3)
        if is_control:
            axes.axvline(scale * cell.mean, color=_GRAY, linewidth=1, zorder=0)
    axes.set_xlabel(column_head(name))
    axes.grid(axis="x", alpha=0.25)


def _draw_curves(figure: Any, study: Study, rows: Sequence[RowResult]) -> None:
    drawn = [row for row in rows if any(len(curve) > 1 for curve in row.curves)]
    if not drawn:
        raise ConfigError(
            f"study {study.name}: curves need several evaluations in a run; lower --evaluate-every"
        )
    axes = figure.subplots()
    for number, row in enumerate(drawn):
        for seed, curve in enumerate(row.curves):
            tokens, accuracies = zip(*curve, strict=True)
            axes.plot([t / 1e6 for t in tokens], [100 * a for a in accuracies], color=f"C{number}",
                      alpha=0.8, label=row.row.name if seed == 0 else None)  # fmt: skip
    axes.set_xlabel("training tokens, millions")
    axes.set_ylabel(column_head("masked_accuracy"))
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)


def _draw_distances(figure: Any, study: Study, rows: Sequence[RowResult]) -> None:
    """Figure 1 of the paper: L2 distance and cosine of each layer's input and output."""
    drawn = [row for row in rows if row.distances]
    if not drawn:
        raise ConfigError(f"study {study.name} has no finished run to draw")
    left, right = figure.subplots(1, 2)
    for number, row in enumerate(drawn):
        for seed, distances in enumerate(row.distances):
            layers = range(1, len(distances["l2"]) + 1)
            label = row.row.name if seed == 0 else None
            left.plot(layers, distances["l2"], ".-", color=f"C{number}", alpha=0.7, label=label)
            right.plot(layers, distances["cosine"], ".-", color=f"C{number}", alpha=0.7)
    left.set_ylabel("L2 distance of a layer's input and output")
    right.set_ylabel("cosine of a layer's input and output")
    for axes in (left, right):
        axes.set_xlabel("layer")
        axes.grid(alpha=0.25)
    left.legend(frameon=False)


def _draw_exits(figure: Any, study: Study, rows: Sequence[RowResult]) -> None:
    """Mean over tasks and seeds of the score at every mean depth: a panel a row, a line a
    criterion."""
    drawn = [row for row in rows if row.exits]
    if not drawn:
        raise ConfigError(f"study {study.name} has no finished run with exits to draw")
    panels = figure.subplots(1, len(drawn), sharey=True, squeeze=False)[0]
    for axes, row in zip(panels, drawn, strict=True):
        tasks = [task for run in row.exits for task in run.values()]
        depth = max(len(task["depths"]) for task in tasks)
        layers = np.arange(1, depth + 1)
        fixed = np.mean([task["depths"] for task in tasks if len(task["depths"]) == depth], axis=0)
        axes.plot(layers, 100 * fixed, color=_GRAY, marker=".", label="a fixed depth")
        for criterion, color in _CRITERIA.items():
            curves = [
                _at(layers, task["curves"][criterion])
                for task in tasks
                if task["curves"].get(criterion)
            ]
            if curves:
                axes.plot(layers, 100 * np.mean(curves, axis=0), color=color, label=criterion)
        axes.set_title(row.row.name, fontsize=13)
        axes.set_xlabel("mean depth, layers")
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("score on dev, mean over tasks, %")
    panels[0].legend(frameon=False, loc="lower right")


def _at(depths: Any, points: Any) -> Any:
    """Scores at these mean depths, between the nearest points of a curve."""
    across, up = zip(*sorted(points), strict=True)
    return np.interp(depths, np.array(across), np.array(up))


_DRAW: dict[str, Callable[[Any, Study, Sequence[RowResult]], None]] = {
    "points": _draw_points,
    "curves": _draw_curves,
    "distances": _draw_distances,
    "exits": _draw_exits,
}
