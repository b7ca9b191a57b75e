"""A study's table as Markdown, CSV or LaTeX: rows in, text out.

Mean ± standard deviation over seeds. A difference to the control is marked (▲ higher, ▼ lower) only
where all seeds of one lie beyond all seeds of the other. The paper's cells stand beside ours.
"""

import csv
import io
from collections.abc import Callable, Sequence

from litebert.lab.headlines import headlines, interaction
from litebert.lab.results import FROZEN, NOT_LEARNED, Cell, RowResult, columns, is_clear
from litebert.lab.study import MEASURES, Study

_DIGITS = {
    "masked_loss": 3,
    "text_loss": 3,
    "gap": 3,
    "smaller": 1,
    "speed": 2,
    "two_ranks": 2,
    "tokens": 1,
}
_WHOLE = ("seconds", "tokens_per_second", "gradient_bytes", "optimizer_bytes")


def table(study: Study, rows: Sequence[RowResult], *, form: str = "markdown") -> str:
    """The table as markdown, csv or latex."""
    heads, lines = table_cells(study, rows, marks=form == "markdown")
    return _WRITERS[form](heads, lines)


def page(study: Study, scale: str, rows: Sequence[RowResult]) -> str:
    """table.md: headline, question, model, table and how to read it."""
    lines = [f"# {study.title}", ""]
    if study.question:
        lines += [study.question, ""]
    if study.source:
        lines += [f"The paper's numbers: {study.source}.", ""]
    notes = [f"- {note}" for note in footnotes(study, scale, rows)]
    return "\n".join([*lines, table(study, rows), *notes, ""])


def footnotes(study: Study, scale: str, rows: Sequence[RowResult]) -> list[str]:
    """How to read the table: the model, the seeds, the marks."""
    note = study.scales[scale].note
    model = f"Scale {scale}: {note}" if note else f"Scale {scale}."
    if study.kind != "pretrain":
        return [model, *headlines(rows)]
    seeds = sorted({row.seeds for row in rows})
    counted = " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
    is_shared = "seconds" in columns(study, rows) and any(row.is_shared for row in rows)
    shared = "seconds: other runs were on the device at the same time; they do not compare."
    return [
        model,
        f"Seeds: {counted}. Mean ± standard deviation.",
        *([shared] if is_shared else []),
        f"▲ and ▼: every seed is above or below every seed of “{study.reference.name}”, "
        "three seeds each. Nothing else is claimed.",
        *interaction(study, rows),
    ]


def _value_of(name: str, number: float) -> str:
    """A number as its column prints it."""
    if name in _DIGITS:
        return f"{number:.{_DIGITS[name]}f}"
    return f"{number:,.0f}" if name in _WHOLE else f"{100 * number:.1f}"


def column_head(name: str) -> str:
    """A measure or a task at the head of its column."""
    if name in MEASURES:
        return MEASURES[name][0]
    return name if name.endswith(FROZEN) else f"{name} (dev)"


def is_percentage(name: str) -> bool:
    return name not in (*_DIGITS, *_WHOLE)


def table_cells(
    study: Study, rows: Sequence[RowResult], *, marks: bool
) -> tuple[list[str], list[list[str]]]:
    """Heads and lines; `marks` for clear differences to the control."""
    names = columns(study, rows)
    paper = list(dict.fromkeys(name for row in rows for name in row.row.paper))
    first = "row" if study.kind == "pretrain" else "model"
    ours = [column_head(name) for name in names]
    heads = [first, "parameters", *ours, *[f"paper: {name}" for name in paper]]
    control = next((row for row in rows if row.row.name == study.reference.name), None)
    lines = []
    for row in rows:
        cells = [_shown(name, row, control, marks=marks) for name in names]
        theirs = [str(row.row.paper.get(name, "–")) for name in paper]
        lines.append([row.row.name, f"{row.parameters:,}", *cells, *theirs])
    return heads, lines


def _shown(name: str, row: RowResult, control: RowResult | None, *, marks: bool) -> str:
    cell = row.cells.get(name)
    if cell is None:
        return "–"
    if not cell.learned:
        return NOT_LEARNED
    text = _value_of(name, cell.mean)
    if len(cell.values) > 1:
        text += f" ± {_value_of(name, cell.spread)}"
    if not marks or control is None or row is control:
        return text
    return text + _mark(cell, control.cells.get(name))


def _mark(cell: Cell, control: Cell | None) -> str:
    if control is None or not control.learned or not is_clear(cell, control):
        return ""
    return " ▲" if cell.mean > control.mean else " ▼"


def _markdown(heads: list[str], lines: list[list[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    escaped = ([cell.replace("|", r"\|") for cell in row] for row in rows)
    return "".join(f"| {' | '.join(row)} |\n" for row in escaped)


def _csv(heads: list[str], lines: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([heads, *lines])
    return text.getvalue()


_LATEX = str.maketrans(
    {
        **{each: f"\\{each}" for each in "%_&#${}"},
        "\\": r"\textbackslash{}",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "±": r"$\pm$",
        "×": r"$\times$",
        "÷": r"$\div$",
        "–": "--",
    }
)


def _latex(heads: list[str], lines: list[list[str]]) -> str:
    body = [" & ".join(cell.translate(_LATEX) for cell in row) + r" \\" for row in lines]
    head = " & ".join(name.translate(_LATEX) for name in heads) + r" \\"
    spec = "l" + "r" * (len(heads) - 1)
    rows = [rf"\begin{{tabular}}{{{spec}}}", r"\toprule", head, r"\midrule", *body]
    return "\n".join([*rows, r"\bottomrule", r"\end{tabular}", ""])


_WRITERS: dict[str, Callable[[list[str], list[list[str]]], str]] = {
    "markdown": _markdown,
    "csv": _csv,
    "latex": _latex,
}
