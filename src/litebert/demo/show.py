"""What a newcomer sees of the demo: facts in; a block for each station, with its time, out."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

SPACE = "▁"
AROUND = 7
"""Pieces shown on each side of a hidden one."""


class Show:
    """Prints blocks and remembers how long each took."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.seconds: dict[str, float] = {}

    @contextmanager
    def station(self, name: str, about: str) -> Iterator[None]:
        """A block: the station's name and purpose, what is said inside, and its time."""
        self.console.print()
        self.console.print(Text.assemble((f"{len(self.seconds) + 1}  {name}", "bold cyan"), f"  {about}"), soft_wrap=True)
        began = time.monotonic()
        yield
        self.seconds[name.lower()] = round(time.monotonic() - began, 2)
        self.console.print(Text(f"   {self.seconds[name.lower()]:.1f} s", "dim"))

    def say(self, text: str | Text, style: str = "") -> None:
        """A line inside a block."""
        line = Text("   ")
        line.append(text if isinstance(text, Text) else Text(text, style))
        self.console.print(line, soft_wrap=True)

    def scores(self, rows: Sequence[tuple[str, float, Sequence[tuple[str, float]]]]) -> None:
        """What was measured, the model's number first and its rivals after it."""
        table = Table(box=None, show_header=False, padding=(0, 3, 0, 3), pad_edge=True)
        for name, ours, rivals in rows:
            cells = [Text(f"{rival} {percent(number)}", "dim") for rival, number in rivals]
            table.add_row(Text(name), Text(percent(ours), "bold green"), *cells)
        self.console.print(table)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def filled(example: dict[str, Any], mask: str) -> Text | None:
    """One hidden piece of an example, the words around it, and the guesses; none where no piece is hidden alone.

    The example is as train/samples.py makes it. The first piece that begins a word, with visible neighbors, is taken.
    """
    pieces, hidden = example["pieces"], set(example["masked"])
    for place, truth, guesses in zip(example["masked"], example["truth"], example["guesses"], strict=True):
        around = {place + step for step in (-2, -1, 1, 2)}
        if pieces[place] == mask and truth.startswith(SPACE) and len(truth) > 2 and not around & hidden:
            return _line(pieces, place, truth, guesses)
    return None


def _line(pieces: list[str], place: int, truth: str, guesses: list[list[Any]]) -> Text:
    before = "".join(pieces[max(place - AROUND, 1) : place]).replace(SPACE, " ").strip()
    after = "".join(pieces[place + 1 : place + 1 + AROUND]).replace(SPACE, " ").rstrip()
    right = guesses[0][0] == truth
    line = Text.assemble(f"… {before} ", (f"[{truth[1:]}]", "bold"), f"{after} …\n      ")
    for piece, chance in guesses[:3]:
        style = "bold green" if piece == truth else "dim"
        line.append(f"{piece.removeprefix(SPACE) or piece} {100 * chance:.0f} %   ", style)
    return line.append("right" if right else "", "green")


def shortened(text: str, limit: int = 140) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[:limit].rsplit(" ", 1)[0] + " …"
