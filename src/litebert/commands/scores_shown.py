"""Scores for a person: evaluations in, tables on standard output out."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from litebert.tasks.examples import (
    AnswerExample,
    ChoiceExample,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.tasks.scores.evaluation import Evaluation
from litebert.tasks.scores.score import SliceScores, printed
from litebert.tasks.task import Task

SHOWN_SLICES = 8
SHOWN_CHARACTERS = 240
SLICED_BY = {"slice": "part", "truth": "truth", "question": "asks", "length": "length"}


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
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(task.name, overflow="fold", min_width=26)
    for name in names:
        table.add_column(name.replace("_", " "), justify="right")
    for row, scores in rows.items():
        table.add_row(row, *(printed(name, scores[name]) for name in names))
        if row in intervals:
            ends = intervals[row]
            table.add_row(
                "  95 % interval",
                *(f"{printed(n, ends[n][0])}–{printed(n, ends[n][1])}" for n in names),
                style="dim",
            )
    _console().print(table)


def print_evaluation(found: Evaluation, rows: Mapping[str, Mapping[str, float]]) -> None:
    """Scores beside those of baselines, then slices, then the worst examples."""
    console = _console()
    first = next(iter(rows))
    console.print(
        f"{found.num_examples:,} examples; scores times 100", style="dim", highlight=False
    )
    print_scores(found.task, rows, {first: found.intervals})
    for by, parts in found.slices.items():
        console.print()
        console.print(_slices(found.task, by, parts))
        if len(parts) > SHOWN_SLICES:
            console.print(f"… and {len(parts) - SHOWN_SLICES} more; all with --json", style="dim")
    if found.worst:
        console.print()
        console.print("most confidently wrong", style="bold")
    for each in found.worst:
        console.print(f"  {_shortened(said_of(each.example))}", highlight=False)
        console.print(
            f"    true: {each.true}   said: {each.guessed}", highlight=False, style="yellow"
        )


def said_of(example: TaskExample) -> str:
    """What an example is about: its own text, or its question."""
    match example:
        case ChoiceExample() | AnswerExample():
            return example.question
        case TagExample():
            return " ".join(example.words)
        case TextExample():
            return (
                example.first if example.second is None else f"{example.first} ‖ {example.second}"
            )


def _console() -> Console:
    """Labels, texts and paths stand as they are: [x] is no markup, and :cat: no picture."""
    return Console(markup=False, emoji=False)


def _slices(task: Task, by: str, parts: Sequence[SliceScores]) -> Table:
    seen = dict.fromkeys(name for part in parts for name in part.scores)
    names = [name for name in task.scores if name in seen] or list(seen)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(SLICED_BY[by])
    table.add_column("examples", justify="right")
    for name in names:
        table.add_column(name.replace("_", " "), justify="right")
    for part in parts[:SHOWN_SLICES]:
        scores = [
            printed(name, part.scores[name]) if name in part.scores else "–" for name in names
        ]
        table.add_row(part.name, f"{part.num_examples:,}", *scores)
    return table


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= SHOWN_CHARACTERS else flat[: SHOWN_CHARACTERS - 1] + "…"
