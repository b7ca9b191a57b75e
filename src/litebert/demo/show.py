"""What a newcomer sees of the demo: facts in; a block for each station, with its time, out."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.text import Text

SPACE = "▁"
AROUND = 6
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
        self.console.print(
            Text.assemble((f"{len(self.seconds) + 1}  {name}", "bold cyan"), f"  {about}"),
            soft_wrap=True,
        )
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
        for name, ours, rivals in rows:
            line = Text.assemble(f"{name} ", (percent(ours), "bold green"))
            for rival, number in rivals:
                line.append(f"   {rival} {percent(number)}", "dim")
            self.say(line)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def filled(example: dict[str, Any], mask: str) -> Text | None:
    """The first hidden word of an example whose neighbors can all be seen, with the guesses; none
    where there is none.

    The example is as train/pretrain/samples.py makes it.
    """
    pieces, hidden = example["pieces"], set(example["masked"])
    for place, truth, guesses in zip(
        example["masked"], example["truth"], example["guesses"], strict=True
    ):
        first, last = (
            max(place - AROUND, 1),
            min(place + AROUND, len(pieces) - 2),
        )  # [CLS] and [SEP] are at the ends
        around = {*range(first, last + 1)} - {place}
        seen = not around & hidden and not any(pieces[each] == "[SEP]" for each in around)
        if pieces[place] == mask and truth.startswith(SPACE) and len(truth) > 2 and seen:
            return _line(pieces[first:place], pieces[place + 1 : last + 1], truth, guesses)
    return None


def _line(before: list[str], after: list[str], truth: str, guesses: list[list[Any]]) -> Text:
    left, right = ("".join(pieces).replace(SPACE, " ") for pieces in (before, after))
    line = Text.assemble(f"… {left.strip()} ", (f"[{truth[1:]}]", "bold"), f"{right} …\n      ")
    for piece, chance in guesses[:3]:
        line.append(
            f"{piece.removeprefix(SPACE) or '␣'} {100 * chance:.0f} %   ",
            "bold green" if piece == truth else "dim",
        )
    return line.append("right" if guesses[0][0] == truth else "", "green")


def sentence(text: str, word: str, guesses: Sequence[tuple[str, float]]) -> Text:
    """A sentence with its hidden word in brackets, and the guesses."""
    before, after = text.split("[MASK]", 1)
    line = Text.assemble(before, (f"[{word}]", "bold"), f"{after}\n      ")
    for guess, chance in guesses:
        line.append(f"{guess} {100 * chance:.0f} %   ", "bold green" if guess == word else "dim")
    return line.append("right" if guesses and guesses[0][0] == word else "", "green")


def shortened(text: str, limit: int = 140) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[:limit].rsplit(" ", 1)[0] + " …"
