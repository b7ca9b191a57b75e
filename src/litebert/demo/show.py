"""What the demo prints: a block for each station, with its time."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.text import Text

from litebert.terminal import escape

_WORD_START = "▁"
_AROUND = 6
"""Tokens shown on each side of a masked one."""


class Show:
    """Prints blocks and remembers how long each took."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.seconds: dict[str, float] = {}

    @contextmanager
    def station(self, name: str, about: str) -> Iterator[None]:
        """A block: the station's name and purpose, its lines, and its time."""
        self.console.print()
        self.console.print(
            Text.assemble((f"{len(self.seconds) + 1}  {name}", "bold cyan"), f"  {about}"),
            soft_wrap=True,
        )
        start = time.monotonic()
        yield
        self.seconds[name.lower()] = round(time.monotonic() - start, 2)
        self.console.print(Text(f"   {self.seconds[name.lower()]:.1f} s", "dim"))

    def say(self, text: str | Text, style: str = "") -> None:
        """A line inside a block."""
        line = Text("   ")
        line.append(text if isinstance(text, Text) else Text(escape(text), style))
        self.console.print(line, soft_wrap=True)

    def scores(self, rows: Sequence[tuple[str, float, Sequence[tuple[str, float]]]]) -> None:
        """Measures, the model's number first and its baselines after it."""
        for name, ours, baselines in rows:
            line = Text.assemble(f"{name} ", (_percent(ours), "bold green"))
            for baseline, number in baselines:
                line.append(f"   {baseline} {_percent(number)}", "dim")
            self.say(line)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def filled_mask(example: dict[str, Any], mask: str) -> Text | None:
    """The first masked word of an example whose neighbors are all visible, with the guesses; None
    without any. The example is of train/pretrain/evaluate.py."""
    tokens, masked = example["pieces"], set(example["masked"])
    for position, truth, guesses in zip(
        example["masked"], example["truth"], example["guesses"], strict=True
    ):
        # [CLS] and [SEP] are at the ends
        first, last = max(position - _AROUND, 1), min(position + _AROUND, len(tokens) - 2)
        neighbors = {*range(first, last + 1)} - {position}
        is_end = any(tokens[each] == "[SEP]" for each in neighbors)
        is_visible = tokens[position] == mask and not neighbors & masked and not is_end
        if is_visible and truth.startswith(_WORD_START) and len(truth) > 2:
            parts = tokens[first:position], tokens[position + 1 : last + 1]
            left, right = ("".join(part).replace(_WORD_START, " ") for part in parts)
            return _guessed(f"… {left.strip()} ", truth, f"{right} …", guesses[:3])
    return None


def filled_sentence(text: str, word: str, guesses: Sequence[tuple[str, float]]) -> Text:
    """A sentence with its masked word in brackets, and the guesses."""
    before, after = text.split("[MASK]", 1)
    return _guessed(before, word, after, guesses)


def _guessed(before: str, truth: str, after: str, guesses: Sequence[Sequence[Any]]) -> Text:
    word = escape(truth.removeprefix(_WORD_START))
    line = Text.assemble(escape(before), (f"[{word}]", "bold"), f"{escape(after)}\n      ")
    for token, chance in guesses:
        shown = f"{escape(token.removeprefix(_WORD_START)) or '␣'} {100 * chance:.0f} %   "
        line.append(shown, "bold green" if token == truth else "dim")
    return line.append("right" if guesses and guesses[0][0] == truth else "", "green")


def excerpt(text: str, limit: int = 140) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[:limit].rsplit(" ", 1)[0] + " …"
