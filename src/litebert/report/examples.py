"""Examples as cards: filled masks with guesses, and the most confidently wrong predictions."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

from litebert.report.lines import evenly_spaced
from litebert.report.markup import escape, fold
from litebert.report.run import DevResults
from litebert.tasks.examples import AnswerExample, ChoiceExample, TagExample, TextExample
from litebert.tasks.predictions import ChoicePrediction, Prediction, SpanPrediction, TagPrediction
from litebert.tasks.scores.evaluation import Wrong

_MAX_EXAMPLES, _MAX_TOKENS, _MAX_MASKED, _MAX_GUESSES = 6, 600, 60, 5
_MAX_MOMENTS = 4
_WORD_START = "\u2581"
"""SentencePiece's mark of a token that begins a word."""
_SPECIAL = frozenset({"[CLS]", "[SEP]", "<pad>", "[PAD]"})
_AROUND = 160
"""Characters shown on either side of an answer."""
_MAX_TEXT = 600


def masks_section(records: Sequence[dict[str, Any]]) -> str:
    """The newest examples, and some earlier ones of the same run, folded, that show it learn."""
    if not records:
        return ""
    chosen = [records[i] for i in evenly_spaced(len(records), _MAX_MOMENTS)]
    newest = _moment(chosen[-1])
    before = "".join(
        fold(f"The same after {each['step']:,} steps", _moment(each))
        for each in reversed(chosen[:-1])
    )
    legend = (
        '<p class="quiet">Hidden tokens show their truth: <span class="slot right">first guess '
        "right</span> "
        '<span class="slot among">among the guesses</span> <span class="slot wrong">missed</span>. '
        "Below each text, the guesses with their probabilities.</p>"
    )
    return f"{legend}<p>After {chosen[-1]['step']:,} steps:</p>{newest}{before}"


def _moment(record: dict[str, Any]) -> str:
    return "".join(
        _example(each) for each in record["examples"][:_MAX_EXAMPLES] if isinstance(each, dict)
    )


def _example(example: dict[str, Any]) -> str:
    slots = _slots(example)
    tokens = [str(token) for token in _list(example.get("pieces", example.get("tokens")))]
    parts = []
    for position, token in enumerate(tokens[:_MAX_TOKENS]):
        if position in slots:
            number, (truth, guesses) = slots[position]
            space = " " if truth.startswith(_WORD_START) else ""
            parts.append(
                f'{space}<span class="slot '
                f'{_verdict(truth, guesses)}">{_word(truth)}<sup>{number}</sup></span>'
            )
        elif token in _SPECIAL:
            parts.append(f' <span class="special">{escape(token)}</span> ')
        else:
            parts.append(escape(token.replace(_WORD_START, " "), 100))
    more = " …" if len(tokens) > _MAX_TOKENS else ""
    rows = "".join(_guesses(number, truth, guesses) for number, (truth, guesses) in slots.values())
    text = "".join(parts).strip()
    return f'<article class="example"><p>{text}{more}</p><ol class="slots">{rows}</ol></article>'


def _slots(example: dict[str, Any]) -> dict[int, tuple[int, tuple[str, list[tuple[str, float]]]]]:
    """By position: a number, the truth, and the guesses with their probabilities."""
    slots: dict[int, tuple[int, tuple[str, list[tuple[str, float]]]]] = {}
    columns = (_list(example.get(name)) for name in ("masked", "truth", "guesses"))
    for position, truth, guesses in list(zip(*columns, strict=False))[:_MAX_MASKED]:
        if isinstance(position, int):
            pairs = [
                (str(each[0]), _probability(each[1]))
                for each in _list(guesses)
                if isinstance(each, list) and len(each) == 2
            ]
            slots[position] = (len(slots) + 1, (str(truth), pairs[:_MAX_GUESSES]))
    return slots


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


def _word(token: str) -> str:
    """A token without the mark of a word start; one inside a word begins with a hyphen instead."""
    if token.startswith(_WORD_START):
        return escape(token[1:] or "␣", 60)
    return ("‑" if token[:1].isalnum() else "") + escape(token or "∅", 60)


def _percent(chance: float) -> str:
    return "&lt;1 %" if chance < 0.01 else f"{100 * chance:.0f} %"


def _probability(value: Any) -> float:
    known = isinstance(value, int | float) and math.isfinite(value)
    return min(max(float(value), 0.0), 1.0) if known else 0.0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def worst_section(dev: DevResults) -> str:
    """A card for each of the most confidently wrong predictions."""
    if not dev.evaluation.worst:
        return '<p class="quiet">Every prediction is right.</p>'
    cards = "".join(_card(each, dev.predictions[each.number]) for each in dev.evaluation.worst)
    note = (
        "Wrong predictions that the model was most confident of, the worst first; mislabeled data "
        "gathers here."
    )
    return f'<p class="quiet">{note}</p>{cards}'


def _card(wrong: Wrong, prediction: Prediction) -> str:
    example = wrong.example
    where = " · ".join(filter(None, [example.where or f"example {example.key}", example.slice]))
    return (
        '<article class="example"><p class="quiet '
        f'where">{escape(where)}</p>{_body(wrong, prediction)}'
        f'<p class="verdict"><span class="slot right">{escape(wrong.true)}</span> '
        f'<span class="slot wrong">{escape(wrong.predicted)}</span></p></article>'
    )


def _body(wrong: Wrong, prediction: Prediction) -> str:
    example = wrong.example
    if isinstance(example, ChoiceExample) and isinstance(prediction, ChoicePrediction):
        chances = zip(example.options, prediction.probabilities, strict=True)
        options = "".join(
            f"<li>{escape(option, 200)} <span>{chance:.0%}</span></li>"
            for option, chance in chances
        )
        context = fold("The text", f"<p>{escape(example.context, 4 * _MAX_TEXT)}</p>")
        return (
            f'<p>{escape(example.question)}</p><ol class="options" type="A">{options}</ol>{context}'
        )
    if isinstance(example, AnswerExample) and isinstance(prediction, SpanPrediction):
        return f"<p><b>{escape(example.question)}</b></p><p>{_excerpt(example, prediction)}</p>"
    if isinstance(example, TagExample) and isinstance(prediction, TagPrediction):
        return f"<p>{_tagged(example, prediction)}</p>"
    assert isinstance(example, TextExample)
    second = "" if example.second is None else f"<p>{escape(example.second, _MAX_TEXT)}</p>"
    return f"<p>{escape(example.first, _MAX_TEXT)}</p>{second}"


def _excerpt(example: AnswerExample, prediction: SpanPrediction) -> str:
    """The context around the true and the predicted answer, both marked."""
    predicted = [(prediction.best.start, prediction.best.end, "wrong")] if prediction.best else []
    answers = (example.answers or ())[:1]
    true = [(each.start, each.start + len(each.text), "right") for each in answers]
    spans = sorted(chain(true, predicted)) or [(0, 0, "")]
    at = _word_start(example.context, spans[0][0] - _AROUND)
    parts = ["… " if at else ""]
    for start, end, kind in spans:
        start = max(start, at)
        if start - at > 2 * _AROUND:
            stop = _word_start(example.context, at + _AROUND)
            parts.append(f"{escape(example.context[at:stop])}… ")
            at = _word_start(example.context, start - _AROUND)
        parts.append(escape(example.context[at:start]))
        if end > start:
            parts.append(f'<span class="slot {kind}">{escape(example.context[start:end])}</span>')
        at = max(at, end)
    stop = _word_start(example.context, at + _AROUND)
    more = "…" if stop < len(example.context) else ""
    return "".join(parts) + escape(example.context[at:stop]) + more


def _word_start(context: str, index: int) -> int:
    """Where the next word starts at or after `index`; `index` itself where none starts near."""
    if index <= 0 or index >= len(context):
        return min(max(index, 0), len(context))
    space = context.find(" ", index - 1, index + 30)
    return space + 1 if space >= 0 else index


def _tagged(example: TagExample, prediction: TagPrediction) -> str:
    """Words, those with a wrong tag marked with it."""
    marked = []
    rows = zip(example.words, example.tags or (), prediction.tags, strict=False)
    for word, tag, guess in list(rows)[:200]:
        text, tags = escape(word, 60), f"{escape(guess, 30)}, not {escape(tag, 30)}"
        wrong = f'<span class="slot wrong">{text} <sup>{tags}</sup></span>'
        marked.append(wrong if tag != guess else text)
    return " ".join(marked)
