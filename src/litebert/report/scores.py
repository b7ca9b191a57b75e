"""Scores of a fine-tuning run on dev, as tables: with intervals, beside always saying the same, by
slice, and which label was taken for which; of several runs their median and spread.
"""

import statistics
from collections.abc import Sequence
from typing import Any

from litebert.report.dev import Dev
from litebert.report.figures import said
from litebert.report.markup import cell, fold, table, text
from litebert.report.run import Run
from litebert.tasks.scores.score import LESS_IS_BETTER, SliceScores, printed

SLICED_BY = {
    "slice": "By part of the data",
    "truth": "By the true label",
    "question": "By what is asked",
    "length": "By length",
}
OPEN = 12
"""Slices up to which a table stands open."""


def scores_section(dev: Dev) -> str:
    """Every score with its interval, and what is known of chance and of the threshold for no
    answer."""
    found = dev.evaluation
    first = found.task.scores[0]
    chance = dev.result.get("chance")
    rows = []
    for name, value in found.scores.items():
        row = [
            cell(said(name), "th", scope="row"),
            cell(printed(name, value), class_="best" if name == first else ""),
        ]
        row.append(cell(" – ".join(printed(name, end) for end in found.intervals[name])))
        row.append(
            cell(printed(name, chance) if name == first and isinstance(chance, int | float) else "")
        )
        rows.append(row)
    head = ["score", "times 100", "95 % interval", "always the same answer"]
    note = (
        f"{found.num_examples:,} examples of dev. The interval is a bootstrap over them: how far "
        "other examples might move the "
        "score, not another seed."
    )
    return table(head, rows) + f'<p class="quiet">{text(note)}{_threshold(dev)}</p>'


def slices_section(dev: Dev) -> str:
    """A table for each way to tell examples apart; long ones are folded."""
    found = dev.evaluation
    made = ""
    for by, parts in found.slices.items():
        body = _slices(found.task.scores, found.scores, parts)
        made += (
            f"<h3>{SLICED_BY[by]}</h3>{body}"
            if len(parts) <= OPEN
            else fold(f"{SLICED_BY[by]}: {len(parts)}", body)
        )
    return made + _confusion(dev)


def compared_scores(runs: Sequence[Run]) -> str:
    """Scores of runs of one task, and where there are three or more their median and spread."""
    scored = [(run.name, run.dev.evaluation) for run in runs if run.dev is not None]
    if len(scored) < 2 or len({found.task.name for _, found in scored}) > 1:
        return ""
    names = list(scored[0][1].scores)
    best = {
        name: _best(name, [found.scores.get(name, 0.0) for _, found in scored]) for name in names
    }
    rows = []
    for row, (run, found) in enumerate(scored):
        cells = [
            cell(printed(name, found.scores[name]), class_="best" if best[name] == row else "")
            for name in names
        ]
        rows.append([cell(run, "th", scope="row"), *cells])
    if len(scored) > 2:
        columns = {name: [found.scores[name] for _, found in scored] for name in names}
        for title, of in (("median", statistics.median), ("standard deviation", statistics.stdev)):
            rows.append(
                [
                    cell(title, "th", scope="row"),
                    *(cell(printed(name, of(columns[name]))) for name in names),
                ]
            )
    return f"<h3>Scores on dev of the checkpoint that each run kept, times 100</h3>{table(['run', *map(said, names)], rows)}"


def _slices(names: Sequence[str], overall: dict[str, float], parts: Sequence[SliceScores]) -> str:
    """A row for each slice, and one for all of them to compare with."""
    seen = dict.fromkeys(name for part in parts for name in part.scores)
    names = [name for name in names if name in seen] or list(seen)
    rows = []
    for part in parts:
        cells = [
            cell(printed(name, part.scores[name]) if name in part.scores else "—") for name in names
        ]
        rows.append([cell(part.name, "th", scope="row"), cell(f"{part.num_examples:,}"), *cells])
    total = sum(part.num_examples for part in parts)
    rows.append(
        [
            cell("all", "th", scope="row"),
            cell(f"{total:,}"),
            *(cell(printed(name, overall[name]) if name in overall else "—") for name in names),
        ]
    )
    return table(["", "examples", *map(said, names)], rows)


def _confusion(dev: Dev) -> str:
    labels = dev.evaluation.task.labels
    if not dev.taken:
        return ""
    rows = []
    for true in labels:
        total = sum(dev.taken[true, guess] for guess in labels)
        cells = [
            cell(f"{dev.taken[true, guess]:,}", class_="right" if guess == true else "")
            for guess in labels
        ]
        rows.append([cell(true, "th", scope="row"), *cells, cell(f"{total:,}")])
    head = ["truth ↓, said →", *labels, "all"]
    return f"<h3>Which label was taken for which</h3>{table(head, rows)}"


def _threshold(dev: Dev) -> str:
    value: Any = dev.result.get("null_threshold")
    return (
        text(f" No answer is given where the null score exceeds {value:.4g}.")
        if isinstance(value, int | float)
        else ""
    )


def _best(name: str, values: Sequence[float]) -> int | None:
    """Which is the best; none where all are the same."""
    best = min(values) if name in LESS_IS_BETTER else max(values)
    return values.index(best) if min(values) < max(values) else None
