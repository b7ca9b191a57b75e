"""Scores of a fine-tuning run on dev, as tables: with intervals, beside the majority baseline, by
slice, with the confusion of labels; of several runs their median and spread.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from litebert.report.markup import cell, escape, fold, row_head, spaced, table
from litebert.report.run import DevResults, RunData
from litebert.tasks.scores.evaluation import Evaluation
from litebert.tasks.scores.score import LESS_IS_BETTER, SliceScores, printed, printed_interval

_SLICE_TITLES = {
    "slice": "By part of the data",
    "truth": "By the true label",
    "question": "By kind of question",
    "length": "By length",
}
_MAX_LABELS = 12
"""Labels up to which a confusion table is shown."""
_OPEN_SLICES = 12
"""Slices up to which a table stands open."""


def scores_section(dev: DevResults) -> str:
    """Every score with its interval, the majority baseline, and the threshold for no answer."""
    evaluation = dev.evaluation
    first = evaluation.task.scores[0]
    baseline = dev.result.get("majority_baseline", dev.result.get("chance"))
    majority = printed(first, baseline) if isinstance(baseline, int | float) else ""
    rows = []
    for name, value in evaluation.scores.items():
        rows.append(
            [
                row_head(spaced(name)),
                cell(printed(name, value), "best" if name == first else ""),
                cell(printed_interval(name, evaluation.intervals.get(name))),
                cell(majority if name == first else ""),
            ]
        )
    head = ["score", "times 100", "95 % interval", "majority baseline"]
    note = (
        f"{evaluation.num_examples:,} examples of dev. The interval (Wilson's for a proportion, "
        "a bootstrap otherwise) is how far other examples might move the score, not another seed."
    )
    return table(head, rows) + f'<p class="quiet">{escape(note)}{_threshold(dev)}</p>'


def slices_section(dev: DevResults) -> str:
    """A table for each way to slice the examples, long ones folded, and the confusion of labels."""
    evaluation = dev.evaluation
    html = ""
    for by, slices in evaluation.slices.items():
        body = _slices(evaluation.task.scores, evaluation.scores, slices)
        if len(slices) <= _OPEN_SLICES:
            html += f"<h3>{_SLICE_TITLES[by]}</h3>{body}"
        else:
            html += fold(f"{_SLICE_TITLES[by]}: {len(slices)}", body)
    return html + _confusion(dev)


def compared_scores(runs: Sequence[RunData]) -> str:
    """Scores of runs of one task; of three or more, their median and standard deviation."""
    scored = [(run.name, run.dev.evaluation) for run in runs if run.dev is not None]
    # own files of one kind have the same name, and may have other scores
    alike = {(evaluation.task.name, *sorted(evaluation.scores)) for _, evaluation in scored}
    if len(scored) < 2 or len(alike) > 1:
        return ""
    names = list(scored[0][1].scores)
    best = {name: _best(name, [evaluation for _, evaluation in scored]) for name in names}
    rows = []
    for row, (run, evaluation) in enumerate(scored):
        cells = [
            cell(printed(name, evaluation.scores[name]), "best" if best[name] == row else "")
            for name in names
        ]
        rows.append([row_head(run), *cells])
    if len(scored) > 2:
        columns = {name: [evaluation.scores[name] for _, evaluation in scored] for name in names}
        for title, of in (("median", statistics.median), ("standard deviation", statistics.stdev)):
            cells = [cell(printed(name, of(column))) for name, column in columns.items()]
            rows.append([row_head(title), *cells])
    head = ["run", *map(spaced, names)]
    note = (
        "Bold: best beyond noise, its 95 % interval above all others."
        if any(each is not None for each in best.values())
        else "None is best beyond noise: the best 95 % intervals meet."
    )
    title = "Scores on dev of each run's final checkpoint, times 100"
    return f'<h3>{title}</h3>{table(head, rows)}<p class="quiet">{note}</p>'


def _slices(names: Sequence[str], overall: dict[str, float], slices: Sequence[SliceScores]) -> str:
    """A row for each slice, and one for all of them to compare with."""
    seen = dict.fromkeys(name for each in slices for name in each.scores)
    names = [name for name in names if name in seen] or list(seen)

    def row(title: str, count: int, scores: Mapping[str, float]) -> list[str]:
        cells = [cell(printed(name, scores[name]) if name in scores else "—") for name in names]
        return [row_head(title), cell(f"{count:,}"), *cells]

    rows = [row(each.name, each.num_examples, each.scores) for each in slices]
    rows.append(row("all", sum(each.num_examples for each in slices), overall))
    return table(["", "examples", *map(spaced, names)], rows)


def _confusion(dev: DevResults) -> str:
    counts = dev.evaluation.confusion
    if not 0 < len(counts) <= _MAX_LABELS:
        return ""
    is_square = dev.evaluation.task.head != "multilabel"
    rows = []
    for label, row in counts.items():
        cells = [
            cell(f"{count:,}", "right" if is_square and name == label else "")
            for name, count in row.items()
        ]
        rows.append([row_head(label), *cells, cell(f"{sum(row.values()):,}")])
    columns = next(iter(counts.values()))
    head = ["truth ↓, predicted →" if is_square else "", *map(spaced, columns), "all"]
    what = "labels, by words" if dev.evaluation.task.kind == "tag" else "labels"
    return f"<h3>Confusion of {what}</h3>{table(head, rows)}"


def _threshold(dev: DevResults) -> str:
    value: Any = dev.result.get("null_threshold")
    if not isinstance(value, int | float):
        return ""
    return f" No answer is given where the null score exceeds {value:.4g}."


def _best(name: str, evaluations: Sequence[Evaluation]) -> int | None:
    """Index of the evaluation that is best beyond noise: its interval does not meet that of any
    other; None where there is none such, or one has no interval."""
    ends = [evaluation.intervals.get(name) for evaluation in evaluations]
    if not all(ends):
        return None
    intervals = [(-end[1], -end[0]) if name in LESS_IS_BETTER else end for end in ends if end]
    best = max(range(len(intervals)), key=lambda number: intervals[number])
    others = [high for number, (_, high) in enumerate(intervals) if number != best]
    return best if intervals[best][0] > max(others) else None
