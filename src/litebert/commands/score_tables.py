"""Evaluations in, tables of scores on standard output out."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from litebert.commands.tables import open_console, score_table
from litebert.infer.exit_scores import ExitScores
from litebert.tasks.examples import (
    AnswerExample,
    ChoiceExample,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.tasks.scores.calibration import Calibration
from litebert.tasks.scores.evaluation import Evaluation
from litebert.tasks.scores.score import SliceScores, printed, printed_interval
from litebert.tasks.task import Task
from litebert.terminal import escape

_MAX_SLICES = 8
_MAX_LABELS = 10
"""Labels up to which a confusion matrix fits a terminal."""
_MAX_CHARACTERS = 240
_SLICED_BY = {"slice": "part", "truth": "truth", "question": "asks", "length": "length"}


def print_scores(
    task: Task,
    rows: Mapping[str, Mapping[str, float]],
    intervals: Mapping[str, Mapping[str, tuple[float, float]]],
) -> None:
    """A row for each model, a column for each score; intervals under their rows' scores."""
    names = [
        name
        for name in next(iter(rows.values()))
        if name in task.scores or name.endswith("answer_f1")
    ]
    table = score_table(escape(task.name), *map(_spaced, names), width=26)
    for row, scores in rows.items():
        table.add_row(escape(row), *(printed(name, scores[name]) for name in names))
        if row in intervals:
            ends = intervals[row]
            table.add_row(
                "  95 % interval",
                *(printed_interval(name, ends.get(name)) for name in names),
                style="dim",
            )
    open_console().print(table)


def print_exits(scores: ExitScores) -> None:
    """A row for all layers and for each rule of early exit."""
    name = scores.score_name
    columns = (name, "lost (95 %)", "changed", "mean depth", "layers saved", "time")
    table = score_table("early exit", *columns, width=20)
    table.add_row(
        "all layers", printed(name, scores.score), "–", "–", f"{scores.layers}", "1 ×", "1 ×"
    )
    for row in scores.rows:
        low, high = row.mean_depth_interval
        least, most = row.layers_saved_interval
        table.add_row(
            f"{row.criterion} {row.threshold:g}",
            printed(name, row.score),
            f"{printed(name, row.lost)} ({printed_interval(name, row.lost_interval)})",
            f"{100 * row.changed:.2f} %",
            f"{row.mean_depth:.2f} ({low:.2f} – {high:.2f})",
            f"{row.layers_saved:.2f} × ({least:.2f} – {most:.2f})",
            f"{row.times_faster:.2f} ×",
        )
    open_console().print(table)


def print_evaluation(evaluation: Evaluation, rows: Mapping[str, Mapping[str, float]]) -> None:
    """Scores beside those of baselines, then slices, the confusion of labels, and the worst
    examples."""
    console = open_console()
    first = next(iter(rows))
    console.print(f"{evaluation.num_examples:,} examples; scores times 100", style="dim")
    print_scores(evaluation.task, rows, {first: evaluation.intervals})
    for by, slices in evaluation.slices.items():
        console.print()
        console.print(_slice_table(evaluation.task, by, slices))
        if len(slices) > _MAX_SLICES:
            console.print(f"… and {len(slices) - _MAX_SLICES} more; all with --json", style="dim")
    if evaluation.confusion:
        console.print()
        _print_confusion(console, evaluation)
    if evaluation.calibration:
        console.print()
        _print_calibration(console, evaluation.calibration)
    if evaluation.worst:
        console.print()
        console.print("most confidently wrong", style="bold")
    for each in evaluation.worst:
        console.print(f"  {escape(_truncated(_subject(each.example)))}")
        answers = escape(f"    true: {each.true}   predicted: {each.predicted}")
        console.print(answers, style="yellow")


def _print_confusion(console: Console, evaluation: Evaluation) -> None:
    """A row for each label; of many labels, those that are confused most often."""
    counts = evaluation.confusion
    is_square = evaluation.task.head != "multilabel"
    if is_square and len(counts) > _MAX_LABELS:
        console.print("most often confused", style="bold")
        for count, label, predicted in _confusions(counts)[:_MAX_SLICES]:
            console.print(f"  {count:,} of {escape(label)} as {escape(predicted)}")
        return
    unit = "words, " if evaluation.task.kind == "tag" else ""
    names = [name if is_square else _spaced(name) for name in next(iter(counts.values()))]
    table = score_table(f"{unit}true ↓ predicted →" if is_square else "label", *map(escape, names))
    for label, row in list(counts.items())[: 2 * _MAX_LABELS]:
        cells = [
            Text(f"{count:,}", "bold" if is_square and name == label else "")
            for name, count in row.items()
        ]
        table.add_row(escape(label), *cells)
    console.print(table)


def _print_calibration(console: Console, calibration: Calibration) -> None:
    """The expected calibration error, and a row for each reliability bin."""
    console.print(f"expected calibration error {100 * calibration.error:.1f}", style="bold")
    table = score_table("confidence", "mean", "accuracy", "examples")
    for each in calibration.bins:
        table.add_row(
            f"{100 * each.lowest:.0f} to {100 * each.highest:.0f}",
            f"{100 * each.confidence:.1f}",
            f"{100 * each.accuracy:.1f}",
            f"{each.num_examples:,}",
        )
    console.print(table)


def _confusions(counts: Mapping[str, Mapping[str, int]]) -> list[tuple[int, str, str]]:
    """(how often, true label, predicted label), the most frequent first."""
    wrong = [
        (count, label, predicted)
        for label, row in counts.items()
        for predicted, count in row.items()
        if count and predicted != label
    ]
    return sorted(wrong, key=lambda each: -each[0])


def _subject(example: TaskExample) -> str:
    """The text of an example, or its question."""
    match example:
        case ChoiceExample() | AnswerExample():
            return example.question
        case TagExample():
            return " ".join(example.words)
        case TextExample():
            return (
                example.first if example.second is None else f"{example.first} ‖ {example.second}"
            )


def _slice_table(task: Task, by: str, slices: Sequence[SliceScores]) -> Table:
    seen = dict.fromkeys(name for each in slices for name in each.scores)
    names = [name for name in task.scores if name in seen] or list(seen)
    table = score_table(_SLICED_BY[by], "examples", *map(_spaced, names))
    for each in slices[:_MAX_SLICES]:
        scores = [
            printed(name, each.scores[name]) if name in each.scores else "–" for name in names
        ]
        table.add_row(escape(each.name), f"{each.num_examples:,}", *scores)
    return table


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _truncated(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _MAX_CHARACTERS else flat[: _MAX_CHARACTERS - 1] + "…"
