"""Rows in, a table on standard output out. Labels, texts and paths are printed as they are: [x] is
no markup, :cat: no emoji."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table


def open_console() -> Console:
    return Console(markup=False, emoji=False, highlight=False)


def score_table(first: str, *columns: str, width: int | None = None) -> Table:
    """A table of a column of names, at least `width` wide, and columns of numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, overflow="fold" if width else "ellipsis", min_width=width)
    for name in columns:
        table.add_column(name, justify="right")
    return table


def print_facts(title: str, facts: Iterable[tuple[str, str]]) -> None:
    """Names and their numbers, under a title."""
    table = Table(
        title=title, show_header=False, box=None, title_justify="left", title_style="bold"
    )
    table.add_column()
    table.add_column(justify="right")
    for fact in facts:
        table.add_row(*fact)
    open_console().print(table)
