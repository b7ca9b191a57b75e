"""Several runs side by side: their curves in shared charts, their last numbers, and what differs in
their recipes."""

import math
from collections.abc import Sequence

from litebert.report.charts import Chart, choose_charts, one_measure_each
from litebert.report.draw import Series, draw
from litebert.report.figures import best_index, measure_names
from litebert.report.lines import LineTable
from litebert.report.markup import cell, count, escape, measure, row_head, spaced, table
from litebert.report.run import RunData
from litebert.report.scores import compared_scores
from litebert.report.settings import differences_section
from litebert.train.progress import duration

_COLORS = 7
"""Colors of the page's palette; runs beyond them begin again, dashed."""


def compare_section(runs: Sequence[RunData], lines: LineTable) -> str:
    """Everything that needs more than one run."""
    charts = one_measure_each(choose_charts(runs))
    figures = [
        draw(chart, _series(chart, runs, lines), (), wide=i == 0) for i, chart in enumerate(charts)
    ]
    return (
        "<section "
        f'id="compare"><h2>Comparison</h2>{_legend(runs)}{compared_scores(runs)}{_last_table(runs)}'
        f'{_equal_table(runs)}<div class="panels">{"".join(figures)}</div>'
        f"{differences_section(runs)}</section>"
    )


def _series(chart: Chart, runs: Sequence[RunData], lines: LineTable) -> list[Series]:
    """Held-out lines full, training faint behind them; training full where nothing was held out."""
    series = []
    for i, run in enumerate(runs):
        color, is_faint = i % (2 * _COLORS), bool(chart.heldout)
        heldout = lines.heldout(run, i, chart.heldout[0]) if chart.heldout else None
        train = lines.train(run, i, chart.train) if chart.train else None
        if train is not None:
            series.append(
                Series(line=train, label="training", color=color, faint=is_faint, band=False)
            )
        if heldout is not None:
            series.append(Series(line=heldout, label="held out", color=color))
    return series


def _legend(runs: Sequence[RunData]) -> str:
    """The runs' colors; with a script, a click hides a run and pointing at it dims the others."""
    items = "".join(
        f'<li><button type="button" class="c{i % (2 * _COLORS)}" data-toggle="{i}" '
        'aria-pressed="true">'
        f"{escape(run.name)}</button></li>"
        for i, run in enumerate(runs)
    )
    return f'<ul class="runs">{items}</ul>'


def _last_table(runs: Sequence[RunData]) -> str:
    """The last numbers of each run, the best beyond noise in bold."""
    last = [run.evaluations[-1].values if run.evaluations else {} for run in runs]
    names = measure_names([each for run in runs for each in run.evaluations])
    best = {
        name: _best_beyond_noise(runs, name, [values.get(name, math.nan) for values in last])
        for name in names
    }
    rows = []
    for i, (run, values) in enumerate(zip(runs, last, strict=True)):
        tokens, seconds = run.total("tokens"), run.total("seconds")
        row = [
            f'<th scope="row"><a href="#run-{i}">{escape(run.name)}</a></th>',
            cell(run.state),
            cell(f"{run.steps:,}"),
            cell(count(tokens)),
            cell(duration(seconds)),
            cell(count(tokens / seconds) if seconds else "—"),
        ]
        for name in names:
            value = measure(name, values[name]) if name in values else "—"
            row.append(cell(value, "best" if best[name] == i else ""))
        rows.append(row)
    head = ["run", "state", "steps", "tokens", "time", "tokens/s", *map(spaced, names)]
    note = "Bold: ahead of the others by more than twice the noise between evaluations."
    has_best = any(each is not None for each in best.values())
    return f"<h3>Last numbers, measured on held-out text</h3>{table(head, rows)}" + (
        f'<p class="quiet">{note}</p>' if has_best else ""
    )


def _best_beyond_noise(runs: Sequence[RunData], name: str, values: Sequence[float]) -> int | None:
    """Index of the best value where it leads the second best by more than twice the spread of the
    runs' last evaluations around a straight line; None where it does not, or is not known to."""
    best = best_index(name, values)
    noises = [noise for run in runs if (noise := _noise(run, name)) is not None]
    others = [value for i, value in enumerate(values) if i != best and math.isfinite(value)]
    if best is None or not others or not noises:
        return None
    lead = min(abs(values[best] - value) for value in others)
    return best if lead > 2 * max(noises) else None


def _noise(run: RunData, name: str) -> float | None:
    """Standard deviation of a measure's last evaluations around the line through their neighbors;
    None for fewer than four of them at one sequence length."""
    if not run.evaluations:
        return None
    length = run.evaluations[-1].values.get("sequence_length")
    values = [
        each.values[name]
        for each in run.evaluations[-10:]
        if math.isfinite(each.values.get(name, math.nan))
        and each.values.get("sequence_length") == length
    ]
    if len(values) < 4:
        return None
    # a - 2 b + c of independent values has six times their variance
    bends = [a - 2 * b + c for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    return math.sqrt(sum(bend**2 for bend in bends) / (6 * len(bends)))


def _equal_table(runs: Sequence[RunData]) -> str:
    """Measures after as many tokens as the shortest run has read: a longer run looks better."""
    names = measure_names([each for run in runs for each in run.evaluations])
    budgets = [
        run.positions([run.evaluations[-1].step])["tokens"][0]
        for run in runs
        if run.evaluations and "tokens" in run.axes
    ]
    if not names or len(budgets) < len(runs) or max(budgets) < 1.02 * min(budgets):
        return ""
    budget = min(budgets)
    rows = []
    for name in names:
        row = [_at(run, name, budget) for run in runs]
        best = _best_beyond_noise(runs, name, row)
        cells = [
            cell(measure(name, value) if math.isfinite(value) else "—", "best" if i == best else "")
            for i, value in enumerate(row)
        ]
        rows.append([row_head(spaced(name)), *cells])
    note = (
        f"At equal tokens: {count(budget)}, where the shortest run was last evaluated; between "
        "evaluations by a straight line"
    )
    return f"<h3>{escape(note)}</h3>{table(['held-out', *(run.name for run in runs)], rows)}"


def _at(run: RunData, name: str, tokens: float) -> float:
    """A measure at a number of tokens, between the two evaluations around it."""
    known = [each for each in run.evaluations if math.isfinite(each.values.get(name, math.nan))]
    xs = run.positions([each.step for each in known])["tokens"]
    for i, x in enumerate(xs):
        if x >= tokens * 0.999:
            if i == 0:
                return known[0].values[name] if x <= tokens * 1.001 else math.nan
            before = known[i - 1].values[name]
            fraction = (tokens - xs[i - 1]) / (x - xs[i - 1] or 1)
            return before + min(fraction, 1.0) * (known[i].values[name] - before)
    return math.nan
