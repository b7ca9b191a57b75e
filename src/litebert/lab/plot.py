"""A study's picture, as SVG and PNG: rows in, files out. Points are seeds; bars are their means."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from litebert.errors import ConfigError, MissingExtraError
from litebert.lab.results import RowResult, columns
from litebert.lab.study import Study
from litebert.lab.table import column_head, is_percentage

_BLUE, _GRAY = "#2f6db5", "#9aa5b1"


def plot(study: Study, rows: Sequence[RowResult], folder: Path) -> list[Path]:
    """Draw the study's first measure by row, or its curves, into FOLDER/plot.svg and plot.png."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("matplotlib", extra="lab", purpose="drawing a study") from error
    matplotlib.use("agg")
    from matplotlib import pyplot

    with pyplot.rc_context({"font.size": 12, "axes.spines.top": False, "axes.spines.right": False}):
        height = 1.2 + 0.5 * len(rows) if study.chart == "points" else 5.0
        figure, axes = pyplot.subplots(figsize=(9, max(height, 3.0)), layout="constrained")
        _DRAW[study.chart](axes, study, rows)
        axes.set_title(study.title, loc="left", fontweight="bold")
        paths = [folder / "plot.svg", folder / "plot.png"]
        for path in paths:
            figure.savefig(
                path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None
            )
        pyplot.close(figure)
    return paths


def _draw_points(axes: Any, study: Study, rows: Sequence[RowResult]) -> None:
    names = columns(study, rows)
    if not names:
        raise ConfigError(f"study {study.name} has nothing to draw yet")
    measure = names[0]
    learned = [row for row in rows if measure in row.cells and row.cells[measure].learned]
    if not learned:
        raise ConfigError(f"no row of study {study.name} has learned; there is nothing to draw")
    scale = 100.0 if is_percentage(measure) else 1.0
    for place, row in enumerate(reversed(learned)):
        cell = row.cells[measure]
        is_control = row.row.name == study.reference.name
        color = _GRAY if is_control else _BLUE
        axes.plot([scale * value for value in cell.values], [place] * len(cell.values), "o",
                  color=color, alpha=0.55, markersize=8)  # fmt: skip
        axes.plot([scale * cell.mean], [place], "|", color=color, markersize=22, markeredgewidth=3)
    control = next((row for row in learned if row.row.name == study.reference.name), None)
    if control is not None:
        axes.axvline(scale * control.cells[measure].mean, color=_GRAY, linewidth=1, zorder=0)
    axes.set_yticks(range(len(learned)), [row.row.name for row in reversed(learned)])
    axes.set_ylim(-0.6, len(learned) - 0.4)
    axes.set_xlabel(column_head(measure))


def _draw_curves(axes: Any, study: Study, rows: Sequence[RowResult]) -> None:
    drawn = [row for row in rows if any(len(curve) > 1 for curve in row.curves)]
    if not drawn:
        raise ConfigError(
            f"study {study.name}: curves need several evaluations in a run; lower --evaluate-every"
        )
    for number, row in enumerate(drawn):
        for seed, curve in enumerate(row.curves):
            tokens, accuracies = zip(*curve, strict=True)
            axes.plot([t / 1e6 for t in tokens], [100 * a for a in accuracies], color=f"C{number}",
                      alpha=0.8, label=row.row.name if seed == 0 else None)  # fmt: skip
    axes.set_xlabel("training tokens, millions")
    axes.set_ylabel(column_head("masked_accuracy"))
    axes.legend(frameon=False)


def _draw_distances(axes: Any, study: Study, rows: Sequence[RowResult]) -> None:
    drawn = [row for row in rows if row.distances]
    if not drawn:
        raise ConfigError(f"study {study.name} has no finished run to draw")
    other = axes.twinx()
    for number, row in enumerate(drawn):
        for seed, distances in enumerate(row.distances):
            layers = range(1, len(distances["l2"]) + 1)
            label = row.row.name if seed == 0 else None
            axes.plot(layers, distances["l2"], color=f"C{number}", label=label)
            other.plot(layers, distances["cosine"], "--", color=f"C{number}", alpha=0.6)
    axes.set_xlabel("layer")
    axes.set_ylabel("L2 distance of its input and output (solid)")
    other.set_ylabel("their cosine (dashed)")
    other.set_ylim(-0.05, 1.05)
    axes.legend(frameon=False)


_DRAW = {"points": _draw_points, "curves": _draw_curves, "distances": _draw_distances}
