"""The numbers of a run: tiles at the top, its evaluations and its events as tables. A run in; HTML
out."""

import math
from array import array
from collections.abc import Sequence

from litebert.report.chart import Mark
from litebert.report.curve import bins, pick, smooth
from litebert.report.dev import Dev
from litebert.report.markup import cell, table, text
from litebert.report.panels import STAGED, lasting_changes
from litebert.report.run import Evaluation, Event, Run
from litebert.report.scale import count, measure, number
from litebert.report.settings import pretraining
from litebert.tasks.scores.score import printed
from litebert.train.progress import duration

MOST_ROWS = 200
FIRST = (
    "score",
    "masked_loss",
    "masked_accuracy",
    "perplexity",
    "sop_accuracy",
    "nsp_accuracy",
    "order_loss",
    "f1",
    "exact",
    "matthews",
    "pearson",
    "spearman",
    "accuracy",
    "loss",
)
"""Measures in the order in which a reader asks for them; others follow by name."""
RISE = frozenset(
    {
        "accuracy",
        "f1",
        "exact",
        "precision",
        "recall",
        "score",
        "correlation",
        "pearson",
        "spearman",
        "matthews",
        "mcc",
    }
)
"""Last words of measures of which more is better."""
GRAVE = ("skip", "roll", "stop", "diverge", "nan", "memory", "disk")


def names_of(evaluations: Sequence[Evaluation]) -> list[str]:
    """Measures of evaluations, the important first."""
    found = {name for each in evaluations for name in each.values} - {"tokens", "seconds"}
    return [name for name in FIRST if name in found] + sorted(found - set(FIRST))


def planned_steps(run: Run) -> int | None:
    """Steps that the run is to have, where the status or the recipe says so."""
    recipe = pretraining(run.recipe)
    steps = run.status.get("steps", recipe.total_steps if recipe else None)
    return steps if isinstance(steps, int) and steps > 0 else None


def tiles(run: Run) -> str:
    """Key figures in a row."""
    made: list[tuple[str, str, str]] = []
    if run.dev is not None:
        made += dev_tiles(run.dev)
    elif run.evaluations:
        last = run.evaluations[-1].values
        for name in names_of(run.evaluations)[:4]:
            if name in last:
                best = _best(run.evaluations, name)
                made.append((f"held-out {said(name)}", measure(name, last[name]), best))
    elif "loss" in run.columns:
        column = run.columns["loss"]
        level = smooth(column, bins(len(column), 200))[-1] if column else math.nan
        made.append(("training loss", number(level), "not evaluated yet"))
    planned = planned_steps(run)
    made.append(("steps", f"{run.steps:,}", f"of {planned:,}" if planned else ""))
    tokens, seconds = run.total("tokens"), run.total("seconds")
    if tokens:
        made.append(("tokens", count(tokens), "padding included"))
    if seconds:
        left = _left(run, planned)
        made.append(("time in steps", duration(seconds), left))
    if tokens and seconds:
        made.append(("tokens per second", count(tokens / seconds), "mean"))
    items = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(value)}<small>{text(note)}</small></dd></div>"
        for name, value, note in made
    )
    return f'<dl class="tiles">{items}</dl>'


def dev_tiles(dev: Dev) -> list[tuple[str, str, str]]:
    """The task's own scores of the checkpoint that was kept."""
    found = dev.evaluation
    ends = {
        name: " – ".join(printed(name, end) for end in found.intervals[name])
        for name in found.task.scores[:4]
    }
    return [
        (f"dev {said(name)}", printed(name, found.scores[name]), f"95 %: {interval}")
        for name, interval in ends.items()
    ]


def said(name: str) -> str:
    """masked_loss as masked loss."""
    return name.replace("_", " ")


def falls(name: str) -> bool | None:
    """Whether lower is better; none where that is not known."""
    last = name.rsplit("_", 1)[-1]
    if last in ("loss", "perplexity", "error"):
        return True
    return False if last in RISE else None


def best_of(name: str, values: Sequence[float]) -> int | None:
    """Index of the best value; none where there is no such thing."""
    lower = falls(name)
    finite = [(value, i) for i, value in enumerate(values) if math.isfinite(value)]
    if lower is None or not finite:
        return None
    return min(finite)[1] if lower else max(finite, key=lambda pair: (pair[0], -pair[1]))[1]


def evaluations_table(run: Run) -> str:
    """Every evaluation, newest first, with the best of each measure in bold."""
    if not run.evaluations:
        return '<p class="quiet">No evaluation yet.</p>'
    names = names_of(run.evaluations)
    best = {name: best_of(name, _comparable(run.evaluations, name)) for name in names}
    kept = set(pick(len(run.evaluations), MOST_ROWS)) | {i for i in best.values() if i is not None}
    places = run.places([each.step for each in run.evaluations])
    rows = []
    for i in sorted(kept, reverse=True):
        each = run.evaluations[i]
        row = [cell(f"{each.step:,}", "th", scope="row")]
        row += [cell(count(places["tokens"][i]))] if "tokens" in places else []
        row += [cell(duration(places["seconds"][i]))] if "seconds" in places else []
        for name in names:
            value = measure(name, each.values[name]) if name in each.values else "—"
            row.append(cell(value, class_="best") if best[name] == i else cell(value))
        rows.append(row)
    head = [
        "steps",
        *(name for name, shown in (("tokens", "tokens"), ("time", "seconds")) if shown in places),
        *map(said, names),
    ]
    left_out = len(run.evaluations) - len(kept)
    note = (
        f'<p class="quiet">{left_out:,} of {len(run.evaluations):,} left out; metrics.jsonl has '
        "them all.</p>"
        if left_out
        else ""
    )
    return table(head, rows) + note


def stages(run: Run) -> list[Event]:
    """Moments at which sequence length, batch size or depth changed: a curve may jump there for no
    other reason."""
    found = []
    for name in STAGED:
        column = run.columns.get(name, array("d"))
        for i in lasting_changes(column):
            message = f"{said(name)} {column[i - 1]:g} → {column[i]:g}"
            found.append(Event(step=run.done[i] - 1, kind="stage", message=message))
    return found[:MOST_ROWS]


def happened(run: Run) -> list[Event]:
    """Events and stages in order."""
    return sorted([*run.events, *stages(run)], key=lambda event: event.step)


def marks(run: Run) -> list[Mark]:
    """The same as lines in a chart."""
    events = happened(run)
    places = run.places([event.step for event in events])
    made = []
    for i, event in enumerate(events):
        kind = (
            "stage"
            if event.kind == "stage"
            else "grave"
            if event.kind.lower().startswith(GRAVE)
            else "note"
        )
        at = {axis: column[i] for axis, column in places.items()}
        made.append(Mark(places=at, text=f"{event.kind}: {event.message}", kind=kind))
    return made


def events_table(run: Run) -> str:
    """What happened, oldest first."""
    events = happened(run)
    rows = [
        [cell(f"{event.step:,}", "th", scope="row"), cell(event.kind), cell(event.message)]
        for event in (events[i] for i in pick(len(events), MOST_ROWS))
    ]
    left_out = len(events) - len(rows)
    note = (
        f'<p class="quiet">{left_out:,} of {len(events):,} left out; metrics.jsonl has them '
        "all.</p>"
        if left_out
        else ""
    )
    again = (
        f"<p>{run.redone:,} steps were done again after a return to a snapshot; the curves show "
        "the last time.</p>"
        if run.redone
        else ""
    )
    return again + (table(["steps", "event", "what"], rows, numbers=False) + note if rows else "")


def _comparable(evaluations: Sequence[Evaluation], name: str) -> list[float]:
    """A measure of each; not a number where sequences had another length than in the last, for that
    is another question."""
    length = evaluations[-1].values.get("sequence_length")
    alike = [each.values.get("sequence_length") == length for each in evaluations]
    return [
        each.values.get(name, math.nan) if same else math.nan
        for each, same in zip(evaluations, alike, strict=True)
    ]


def _best(evaluations: Sequence[Evaluation], name: str) -> str:
    """The best value and where, unless it is the last."""
    at = best_of(name, _comparable(evaluations, name))
    if at is None:
        return ""
    each = evaluations[at]
    return (
        "the best yet"
        if at == len(evaluations) - 1
        else f"best {measure(name, each.values[name])} at step {each.step:,}"
    )


def _left(run: Run, planned: int | None) -> str:
    if run.state != "running" or planned is None or run.steps >= planned:
        return ""
    return f"about {duration((planned - run.steps) * run.step_seconds)} left"
