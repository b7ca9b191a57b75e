"""Which charts a report has: measures of runs in; charts, the most important first, out."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from litebert.report.markup import is_share
from litebert.report.run import RunData

SPEED = "tokens_per_second"
"""A column computed from tokens and seconds."""
STAGE_COLUMNS = ("sequence_length", "batch_size", "mask_fraction", "depth")
PLANNED_COLUMNS = frozenset({"learning_rate", *STAGE_COLUMNS})
"""Columns that the recipe decides."""
_MAX_CHARTS = 24
"""Charts of one run, whatever its records hold."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart: what it shows, of training and of evaluations."""

    title: str
    train: str | None = None
    """Column of the step records."""
    heldout: tuple[str, ...] = ()
    """Names in the evaluations, drawn over it."""
    log: bool = False
    """Whether the vertical axis is logarithmic."""
    zero: bool = False
    """Whether the vertical axis begins at 0."""
    guide: tuple[float, str] | None = None
    """A value worth comparing with, and its name."""

    @property
    def is_share(self) -> bool:
        return is_share(self.train or self.heldout[0])


def _chart(name: str, title: str = "", *also: str, **looks: Any) -> Chart:
    """A measure in training and on held-out text, with others on held-out text."""
    return Chart(title=title or _title(name), train=name, heldout=(name, *also), **looks)


def _title(name: str) -> str:
    words = name.replace("_", " ")
    return {"sop": "SOP", "nsp": "NSP"}.get(words[:3], words[:1].upper() + words[1:3]) + words[3:]


_KNOWN_CHARTS = (
    _chart("masked_loss", "Masked-token loss"),
    _chart("loss"),
    _chart("score"),
    _chart("masked_accuracy", "Masked-token accuracy", zero=True),
    _chart("accuracy"),
    _chart("f1"),
    _chart("exact", "Exact match"),
    _chart("matthews", "Matthews' correlation"),
    _chart("pearson", "Pearson's correlation"),
    _chart("spearman", "Spearman's correlation"),
    Chart(
        title="Order accuracy",
        train="order_accuracy",
        heldout=("sop_accuracy", "nsp_accuracy"),
        guide=(0.5, "chance"),
    ),
    _chart("order_loss", "", "sop_loss", "nsp_loss", guide=(math.log(2), "chance, ln 2")),
    _chart("detection_loss"),
    _chart("detection_accuracy"),
    _chart("detection_recall", "Detection recall and precision", "detection_precision", zero=True),
    _chart("replaced_fraction", "Fraction of tokens replaced", zero=True),
    _chart("learning_rate", zero=True),
    _chart("gradient_norm", "Gradient norm, before clipping", log=True),
    _chart(SPEED, zero=True),
    _chart("perplexity", log=True),
)
_KNOWN_COLUMNS = {chart.train for chart in _KNOWN_CHARTS}
_AXIS_COLUMNS = frozenset({"step", "epoch", "tokens", "seconds"})
"""Columns that are axes, not curves."""


def choose_charts(runs: Iterable[RunData]) -> list[Chart]:
    """The charts that have something to show in any of the runs; those of unknown names last."""
    columns, names = _columns(runs), _names(runs)
    charts = []
    for chart in _KNOWN_CHARTS:
        train = chart.train if chart.train in columns else None
        heldout = tuple(name for name in chart.heldout if name in names)
        if train or heldout:
            charts.append(replace(chart, train=train, heldout=heldout))
        columns.discard(chart.train or "")
        names.difference_update(chart.heldout)
    if [chart.title for chart in charts[:2]] == ["Masked-token loss", "Loss"]:
        charts.append(replace(charts.pop(1), title="Sum of the losses"))
    for name in sorted(columns | names):
        train, heldout = name if name in columns else None, (name,) if name in names else ()
        charts.append(Chart(title=_title(name), train=train, heldout=heldout))
    return charts[:_MAX_CHARTS]


def one_measure_each(charts: Iterable[Chart]) -> list[Chart]:
    """For a comparison: one measure a chart, since colors tell runs apart there."""
    split: list[Chart] = []
    for chart in charts:
        names = chart.heldout if len(chart.heldout) > 1 else ()
        of_names = [replace(chart, title=_title(n), train=None, heldout=(n,)) for n in names]
        split += of_names or [chart]
    return split


def _columns(runs: Iterable[RunData]) -> set[str]:
    """Columns that change in some run; constants are settings, which the recipe has."""
    names = set()
    for run in runs:
        if run.total("seconds") > 0 and run.total("tokens") > 0:
            names.add(SPEED)
        for name, column in run.columns.items():
            finite = [value for value in column if math.isfinite(value)]
            changes = lasting_changes(column) if name in STAGE_COLUMNS else len(set(finite)) > 1
            if name not in _AXIS_COLUMNS and finite and (name in _KNOWN_COLUMNS or changes):
                names.add(name)
    return names


def lasting_changes(column: Sequence[float]) -> list[int]:
    """Records from which a stage column has a new value to stay: neither the smaller last batch of
    an epoch nor lengths that vary with their texts are stages."""
    changes = [
        i
        for i in range(1, len(column))
        if column[i] != column[i - 1] and math.isfinite(column[i] + column[i - 1])
    ]
    if len(changes) > len(column) / 10 + 1:
        return []
    return [
        i
        for i in changes
        if column[i + 1 : i + 2] == column[i : i + 1] and column[max(i - 2, 0)] == column[i - 1]
    ]


def _names(runs: Iterable[RunData]) -> set[str]:
    finite = {
        name
        for run in runs
        for each in run.evaluations
        for name, value in each.values.items()
        if math.isfinite(value) and not name.endswith("_tokens")
    }
    return finite - _AXIS_COLUMNS - set(STAGE_COLUMNS)
