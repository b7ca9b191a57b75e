"""The numbers of a run: key figures at the top, evaluations and events as tables."""

import math
from array import array
from collections.abc import Sequence

from litebert.report.charts import STAGE_COLUMNS, lasting_changes
from litebert.report.draw import Mark
from litebert.report.lines import evenly_spaced, last_level
from litebert.report.markup import cell, count, escape, measure, number, row_head, spaced, table
from litebert.report.run import DevResults, EvalPoint, Event, RunData
from litebert.report.settings import parse_recipe
from litebert.tasks.scores.score import printed, printed_interval
from litebert.train.log import MAX_STEP
from litebert.train.progress import duration

_MAX_ROWS = 200
_NAMES = """score masked_loss masked_accuracy perplexity sop_accuracy nsp_accuracy order_loss f1
    exact matthews pearson spearman accuracy loss"""
_FIRST = tuple(_NAMES.split())
"""Measures in the order in which a reader asks for them; others follow by name."""
_WORDS = "accuracy f1 exact precision recall score correlation pearson spearman matthews mcc"
_HIGHER_IS_BETTER = frozenset(_WORDS.split())
"""Last words of measures of which more is better."""
_SEVERE = ("skip", "roll", "stop", "diverge", "nan", "memory", "disk")


def measure_names(evaluations: Sequence[EvalPoint]) -> list[str]:
    """Measures of evaluations, the important first."""
    names = {name for each in evaluations for name in each.values} - {"tokens", "seconds"}
    return [name for name in _FIRST if name in names] + sorted(names - set(_FIRST))


def _planned_steps(run: RunData) -> int | None:
    """Steps that the run is to have, where the status or the recipe says so."""
    recipe = parse_recipe(run.recipe)
    steps = run.status.get("steps", recipe.total_steps if recipe else None)
    return steps if isinstance(steps, int) and 0 < steps < MAX_STEP else None


def key_figures(run: RunData) -> str:
    """Key figures in a row."""
    figures: list[tuple[str, str, str]] = []
    if run.dev is not None:
        figures += _dev_figures(run.dev)
    elif run.evaluations:
        last = run.evaluations[-1].values
        for name in measure_names(run.evaluations)[:4]:
            if name in last:
                best = _best(run.evaluations, name, is_running=run.state == "running")
                figures.append((f"held-out {spaced(name)}", measure(name, last[name]), best))
    elif "loss" in run.columns:
        level = last_level(run.columns["loss"])
        figures.append(("training loss", number(level), "not evaluated yet"))
    planned = _planned_steps(run)
    figures.append(("steps", f"{run.steps:,}", f"of {planned:,}" if planned else ""))
    tokens, seconds = run.total("tokens"), run.total("seconds")
    if tokens:
        figures.append(("tokens", count(tokens), "padding included"))
    if seconds:
        figures.append(("time in steps", duration(seconds), _left(run, planned)))
    if tokens and seconds:
        figures.append(("tokens per second", count(tokens / seconds), "mean"))
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd></div>"
        for name, value, note in figures
    )
    return f'<dl class="tiles">{items}</dl>'


def _dev_figures(dev: DevResults) -> list[tuple[str, str, str]]:
    """The task's scores of the final checkpoint."""
    evaluation = dev.evaluation
    figures = []
    for name in evaluation.task.scores[:4]:
        interval = evaluation.intervals.get(name)
        note = f"95 %: {printed_interval(name, interval)}" if interval else ""
        figures.append((f"dev {spaced(name)}", printed(name, evaluation.scores[name]), note))
    return figures


def best_index(name: str, values: Sequence[float]) -> int | None:
    """Index of the first best value; None where higher or lower is not known to be better."""
    last = name.rsplit("_", 1)[-1]
    finite = [i for i, value in enumerate(values) if math.isfinite(value)]
    if last in ("loss", "perplexity", "error"):
        return min(finite, key=lambda i: values[i], default=None)
    if last in _HIGHER_IS_BETTER:
        return max(finite, key=lambda i: values[i], default=None)
    return None


def evaluations_table(run: RunData) -> str:
    """Every evaluation, newest first, with the best of each measure in bold."""
    if not run.evaluations:
        return '<p class="quiet">No evaluation yet.</p>'
    names = measure_names(run.evaluations)
    best = {name: best_index(name, _comparable(run.evaluations, name)) for name in names}
    chosen = set(evenly_spaced(len(run.evaluations), _MAX_ROWS)) | {
        i for i in best.values() if i is not None
    }
    positions = run.positions([each.step for each in run.evaluations])
    rows = []
    for i in sorted(chosen, reverse=True):
        each = run.evaluations[i]
        row = [row_head(f"{each.step:,}")]
        row += [cell(count(positions["tokens"][i]))] if "tokens" in positions else []
        row += [cell(duration(positions["seconds"][i]))] if "seconds" in positions else []
        for name in names:
            value = measure(name, each.values[name]) if name in each.values else "—"
            row.append(cell(value, "best" if best[name] == i else ""))
        rows.append(row)
    head = ["steps"]
    head += ["tokens"] if "tokens" in positions else []
    head += ["time"] if "seconds" in positions else []
    left_out = len(run.evaluations) - len(chosen)
    return table([*head, *map(spaced, names)], rows) + _left_out(left_out, len(run.evaluations))


def _stage_changes(run: RunData) -> list[Event]:
    """Where a curve may jump because sequence length, batch size, mask fraction or depth did."""
    changes = []
    for name in STAGE_COLUMNS:
        column = run.columns.get(name, array("d"))
        for i in lasting_changes(column):
            message = f"{spaced(name)} {column[i - 1]:g} → {column[i]:g}"
            changes.append(Event(step=run.steps_done[i] - 1, kind="stage", message=message))
    return changes[:_MAX_ROWS]


def _timeline(run: RunData) -> list[Event]:
    """Events and stage changes, in order."""
    return sorted([*run.events, *_stage_changes(run)], key=lambda event: event.step)


def event_marks(run: RunData) -> list[Mark]:
    """Events and stage changes as vertical lines of a chart."""
    events = _timeline(run)
    positions = run.positions([event.step for event in events])
    marks = []
    for i, event in enumerate(events):
        severe = "grave" if event.kind.lower().startswith(_SEVERE) else "note"
        kind = "stage" if event.kind == "stage" else severe
        at = {axis: column[i] for axis, column in positions.items()}
        marks.append(Mark(xs=at, text=f"{event.kind}: {event.message}", kind=kind))
    return marks


def events_table(run: RunData) -> str:
    """Events and stage changes, oldest first."""
    events = _timeline(run)
    rows = [
        [row_head(f"{event.step:,}"), cell(event.kind), cell(event.message)]
        for event in (events[i] for i in evenly_spaced(len(events), _MAX_ROWS))
    ]
    note = _left_out(len(events) - len(rows), len(events))
    again = (
        f"<p>{run.num_repeated:,} steps were repeated after a return to a snapshot; the curves "
        "show the last time.</p>"
    )
    return (again if run.num_repeated else "") + (
        table(["steps", "event", "what"], rows, numbers=False) + note if rows else ""
    )


def _left_out(count: int, total: int) -> str:
    note = f"{count:,} of {total:,} left out; metrics.jsonl has them all."
    return f'<p class="quiet">{note}</p>' if count else ""


def _comparable(evaluations: Sequence[EvalPoint], name: str) -> list[float]:
    """A measure of each; NaN where sequences had another length than in the last one."""
    rows = [each.values for each in evaluations]
    length = rows[-1].get("sequence_length")
    is_alike = [row.get("sequence_length") == length for row in rows]
    return [row.get(name, math.nan) if is_alike[i] else math.nan for i, row in enumerate(rows)]


def _best(evaluations: Sequence[EvalPoint], name: str, *, is_running: bool) -> str:
    """The best value and where, unless it is the last; while the run is running, that it is."""
    at = best_index(name, _comparable(evaluations, name))
    if at is None:
        return ""
    each = evaluations[at]
    return (
        ("the best yet" if is_running else "the best of the run")
        if at == len(evaluations) - 1
        else f"best {measure(name, each.values[name])} at step {each.step:,}"
    )


def _left(run: RunData, planned: int | None) -> str:
    if run.state != "running" or planned is None or run.steps >= planned:
        return ""
    return f"about {duration((planned - run.steps) * run.step_seconds)} left"
