"""Filled masks: examples with hidden pieces, their truth and the model's guesses in; text a person
can read out."""

import math
from collections.abc import Sequence
from typing import Any

from litebert.report.curve import pick
from litebert.report.markup import fold, text

MOST_EXAMPLES, MOST_PIECES, MOST_MASKED, MOST_GUESSES = 6, 600, 60, 5
MOST_MOMENTS = 4
SPACE = "\u2581"
"""SentencePiece's mark of a piece that begins a word."""
SPECIAL = frozenset({"[CLS]", "[SEP]", "<pad>", "[PAD]"})


def masks_section(records: Sequence[dict[str, Any]]) -> str:
    """The newest examples open, some earlier ones of the same run to open below, so that one sees
    it learn."""
    if not records:
        return ""
    chosen = [records[i] for i in pick(len(records), MOST_MOMENTS)]
    newest = _moment(chosen[-1])
    before = "".join(
        fold(f"The same after {each['step']:,} steps", _moment(each))
        for each in reversed(chosen[:-1])
    )
    legend = (
        '<p class="quiet">Hidden pieces show their truth: <span class="slot right">first guess '
        "right</span> "
        '<span class="slot among">among the guesses</span> <span class="slot wrong">missed</span>. '
        "Below each text, the guesses with their probabilities.</p>"
    )
    return f"{legend}<p>After {chosen[-1]['step']:,} steps:</p>{newest}{before}"


def _moment(record: dict[str, Any]) -> str:
    return "".join(
        _example(each) for each in record["examples"][:MOST_EXAMPLES] if isinstance(each, dict)
    )


def _example(example: dict[str, Any]) -> str:
    slots = _slots(example)
    pieces = [str(piece) for piece in _list(example.get("pieces"))]
    parts = []
    for place, piece in enumerate(pieces[:MOST_PIECES]):
        if place in slots:
            number, (truth, guesses) = slots[place]
            space = " " if truth.startswith(SPACE) else ""
            parts.append(
                f'{space}<span class="slot '
                f'{_verdict(truth, guesses)}">{_word(truth)}<sup>{number}</sup></span>'
            )
        elif piece in SPECIAL:
            parts.append(f' <span class="special">{text(piece)}</span> ')
        else:
            parts.append(text(piece.replace(SPACE, " "), 100))
    more = " …" if len(pieces) > MOST_PIECES else ""
    rows = "".join(_guesses(number, truth, guesses) for number, (truth, guesses) in slots.values())
    return f'<article class="example"><p>{"".join(parts).strip()}{more}</p><ol class="slots">{rows}</ol></article>'


def _slots(example: dict[str, Any]) -> dict[int, tuple[int, tuple[str, list[tuple[str, float]]]]]:
    """By place: a number, the truth, and the guesses with their probabilities."""
    found: dict[int, tuple[int, tuple[str, list[tuple[str, float]]]]] = {}
    columns = (_list(example.get(name)) for name in ("masked", "truth", "guesses"))
    for place, truth, guesses in list(zip(*columns, strict=False))[:MOST_MASKED]:
        if isinstance(place, int):
            pairs = [
                (str(each[0]), _probability(each[1]))
                for each in _list(guesses)
                if isinstance(each, list) and len(each) == 2
            ]
            found[place] = (len(found) + 1, (str(truth), pairs[:MOST_GUESSES]))
    return found


def _guesses(number: int, truth: str, guesses: list[tuple[str, float]]) -> str:
    bars = "".join(
        f'<li{" class=hit" if guess == truth else ""}><span class="bar" '
        f'style="width:{100 * chance:.1f}%"></span>'
        f"<span>{_word(guess)}</span><span>{_percent(chance)}</span></li>"
        for guess, chance in guesses
    )
    head = f'<span class="slot {_verdict(truth, guesses)}">{_word(truth)}</span>'
    return f'<li class="card"><header><sup>{number}</sup> {head}</header><ul>{bars}</ul></li>'


def _verdict(truth: str, guesses: list[tuple[str, float]]) -> str:
    names = [guess for guess, _ in guesses]
    return "right" if names[:1] == [truth] else "among" if truth in names else "wrong"


def _word(piece: str) -> str:
    """A piece without the mark of a word's beginning; one that goes on inside a word begins with a
    hyphen instead."""
    if piece.startswith(SPACE):
        return text(piece[1:] or "␣", 60)
    return ("‑" if piece[:1].isalnum() else "") + text(piece or "∅", 60)


def _percent(chance: float) -> str:
    return "&lt;1 %" if chance < 0.01 else f"{100 * chance:.0f} %"


def _probability(value: Any) -> float:
    known = isinstance(value, int | float) and math.isfinite(value)
    return min(max(float(value), 0.0), 1.0) if known else 0.0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
