"""Several runs side by side: their curves in one chart each, their last numbers, and what differs
in their recipes."""

import math
from collections.abc import Sequence

from litebert.report.chart import Drawn, draw
from litebert.report.figures import best_of, names_of, said
from litebert.report.lines import Lines
from litebert.report.markup import cell, table, text
from litebert.report.panels import Panel, choose, single
from litebert.report.run import Run
from litebert.report.scale import count, measure
from litebert.report.scores import compared_scores
from litebert.report.settings import difference_table, leaves, settings_of
from litebert.train.progress import duration

COLORS = 7
"""Colors of the page's palette; runs beyond them begin again, dashed."""


def compare_section(runs: Sequence[Run], lines: Lines) -> str:
    """Everything that needs more than one run."""
    names = [run.name for run in runs]
    panels = single(choose(runs))
    charts = [
        draw(panel, _drawn(panel, runs, lines), (), wide=i == 0) for i, panel in enumerate(panels)
    ]
    recipes = difference_table(
        names, [settings_of(run.recipe) for run in runs], "The recipes are the same."
    )
    environments = difference_table(
        names, [dict(leaves(run.environment)) for run in runs], "The environments are the same."
    )
    return (
        "<section "
        f'id="compare"><h2>Comparison</h2>{_legend(runs)}{compared_scores(runs)}{_last_table(runs)}'
        f'{_equal_table(runs)}<div class="panels">{"".join(charts)}</div>'
        f"<h3>What differs in the recipes</h3>{recipes}<h3>What differs in the "
        f"environments</h3>{environments}</section>"
    )


def _drawn(panel: Panel, runs: Sequence[Run], lines: Lines) -> list[Drawn]:
    """Held-out lines full, training lines faint behind them; training lines full where nothing was
    held out."""
    found = []
    for i, run in enumerate(runs):
        color = i % (2 * COLORS)
        held = lines.held(run, i, panel.held[0]) if panel.held else None
        trained = lines.trained(run, i, panel.trained) if panel.trained else None
        if trained is not None:
            found.append(
                Drawn(
                    line=trained, label="training", color=color, faint=bool(panel.held), band=False
                )
            )
        if held is not None:
            found.append(Drawn(line=held, label="held out", color=color))
    return found


def _legend(runs: Sequence[Run]) -> str:
    """The runs' colors; with a script, a click hides a run and pointing at it dims the others."""
    items = "".join(
        f'<li><button type="button" class="c{i % (2 * COLORS)}" data-toggle="{i}" '
        'aria-pressed="true">'
        f"{text(run.name)}</button></li>"
        for i, run in enumerate(runs)
    )
    return f'<ul class="runs">{items}</ul>'


def _last_table(runs: Sequence[Run]) -> str:
    """The last numbers of each run, the best in bold."""
    last = [run.evaluations[-1].values if run.evaluations else {} for run in runs]
    names = names_of([each for run in runs for each in run.evaluations])
    best = {name: best_of(name, [values.get(name, math.nan) for values in last]) for name in names}
    rows = []
    for i, (run, values) in enumerate(zip(runs, last, strict=True)):
        tokens, seconds = run.total("tokens"), run.total("seconds")
        row = [
            f'<th scope="row"><a href="#run-{i}">{text(run.name)}</a></th>',
            cell(run.state),
            cell(f"{run.steps:,}"),
            cell(count(tokens)),
            cell(duration(seconds)),
            cell(count(tokens / seconds) if seconds else "—"),
        ]
        for name in names:
            said_value = measure(name, values[name]) if name in values else "—"
            row.append(cell(said_value, class_="best") if best[name] == i else cell(said_value))
        rows.append(row)
    head = ["run", "state", "steps", "tokens", "time", "tokens/s", *map(said, names)]
    return f"<h3>Last numbers, measured on held-out text</h3>{table(head, rows)}"


def _equal_table(runs: Sequence[Run]) -> str:
    """The first measure after as many tokens as the shortest run has read: lengths differ, and a
    longer run looks better."""
    names = names_of([each for run in runs for each in run.evaluations])
    budgets = [
        run.places([run.evaluations[-1].step])["tokens"][0] for run in runs if _can_place(run)
    ]
    if not names or len(budgets) < len(runs) or max(budgets) < 1.02 * min(budgets):
        return ""
    budget = min(budgets)
    values = [[_at(run, name, budget) for run in runs] for name in names]
    rows = []
    for name, row in zip(names, values, strict=True):
        best = best_of(name, row)
        cells = [cell(measure(name, value) if math.isfinite(value) else "—") for value in row]
        if best is not None:
            cells[best] = cell(measure(name, row[best]), class_="best")
        rows.append([cell(said(name), "th", scope="row"), *cells])
    note = f"At equal tokens: {count(budget)}, where the shortest run was last evaluated; between evaluations by a straight line"
    return f"<h3>{text(note)}</h3>{table(['held-out', *(run.name for run in runs)], rows)}"


def _can_place(run: Run) -> bool:
    return bool(run.evaluations) and "tokens" in run.axes


def _at(run: Run, name: str, tokens: float) -> float:
    """A measure at a number of tokens, between the two evaluations around it."""
    known = [each for each in run.evaluations if math.isfinite(each.values.get(name, math.nan))]
    places = run.places([each.step for each in known])["tokens"]
    for i, place in enumerate(places):
        if place >= tokens * 0.999:
            if i == 0:
                return known[0].values[name] if place <= tokens * 1.001 else math.nan
            before, part = (
                known[i - 1].values[name],
                (tokens - places[i - 1]) / (place - places[i - 1] or 1),
            )
            return before + min(part, 1.0) * (known[i].values[name] - before)
    return math.nan
