"""The most confidently wrong examples as cards: what was asked, what is true, what was said.
Examples in; HTML out."""

from collections.abc import Sequence
from itertools import chain

from litebert.report.dev import Dev
from litebert.report.markup import fold, text
from litebert.tasks.examples import AnswerExample, ChoiceExample, TagExample, TextExample
from litebert.tasks.predictions import ChoicePrediction, Prediction, SpanPrediction, TagPrediction
from litebert.tasks.scores.worst import Wrong

AROUND = 160
"""Characters shown on either side of an answer."""
MOST_TEXT = 600


def worst_section(dev: Dev) -> str:
    """A card for each."""
    if not dev.evaluation.worst:
        return '<p class="quiet">Every example was answered rightly.</p>'
    cards = "".join(_card(each, dev.predictions[each.number]) for each in dev.evaluation.worst)
    note = "Those that the model was surest of and wrong about, the worst first; mistakes in the data gather here."
    return f'<p class="quiet">{note}</p>{cards}'


def _card(wrong: Wrong, prediction: Prediction) -> str:
    example = wrong.example
    where = " · ".join(filter(None, [example.where or f"example {example.key}", example.slice]))
    return (
        '<article class="example"><p class="quiet '
        f'where">{text(where)}</p>{_body(wrong, prediction)}'
        f'<p class="verdict"><span class="slot right">{text(wrong.true)}</span> '
        f'<span class="slot wrong">{text(wrong.guessed)}</span></p></article>'
    )


def _body(wrong: Wrong, prediction: Prediction) -> str:
    example = wrong.example
    if isinstance(example, ChoiceExample) and isinstance(prediction, ChoicePrediction):
        chances = zip(example.options, prediction.probabilities, strict=True)
        options = "".join(
            f"<li>{text(option, 200)} <span>{chance:.0%}</span></li>" for option, chance in chances
        )
        context = fold("The text", f"<p>{text(example.context, 4 * MOST_TEXT)}</p>")
        return (
            f'<p>{text(example.question)}</p><ol class="options" type="A">{options}</ol>{context}'
        )
    if isinstance(example, AnswerExample) and isinstance(prediction, SpanPrediction):
        return f"<p><b>{text(example.question)}</b></p><p>{_excerpt(example, prediction)}</p>"
    if isinstance(example, TagExample) and isinstance(prediction, TagPrediction):
        return f"<p>{_tagged(example, prediction)}</p>"
    assert isinstance(example, TextExample)
    second = "" if example.second is None else f"<p>{text(example.second, MOST_TEXT)}</p>"
    return f"<p>{text(example.first, MOST_TEXT)}</p>{second}"


def _excerpt(example: AnswerExample, prediction: SpanPrediction) -> str:
    """The context around the true answer and around what was said, either marked."""
    said = [(prediction.best.start, prediction.best.end, "wrong")] if prediction.best else []
    true = [
        (answer.start, answer.start + len(answer.text), "right")
        for answer in (example.answers or ())[:1]
    ]
    spans = sorted(chain(true, said)) or [(0, 0, "")]
    at = _word(example.context, spans[0][0] - AROUND)
    parts = ["… " if at else ""]
    for start, end, kind in spans:
        start = max(start, at)
        if start - at > 2 * AROUND:
            stop, next_at = (
                _word(example.context, at + AROUND),
                _word(example.context, start - AROUND),
            )
            parts.append(f"{text(example.context[at:stop])}… ")
            at = next_at
        parts.append(text(example.context[at:start]))
        if end > start:
            parts.append(f'<span class="slot {kind}">{text(example.context[start:end])}</span>')
        at = max(at, end)
    stop = _word(example.context, at + AROUND)
    return (
        "".join(parts)
        + text(example.context[at:stop])
        + ("…" if stop < len(example.context) else "")
    )


def _word(context: str, place: int) -> int:
    """The beginning of the word at or after a place; the place itself where no word begins near."""
    if place <= 0 or place >= len(context):
        return min(max(place, 0), len(context))
    space = context.find(" ", place - 1, place + 30)
    return space + 1 if space >= 0 else place


def _tagged(example: TagExample, prediction: TagPrediction) -> str:
    """Words, those with a wrong tag marked with it."""
    return " ".join(_words(example.words, example.tags or (), prediction.tags))


def _words(words: Sequence[str], true: Sequence[str], said: Sequence[str]) -> list[str]:
    made = []
    for word, tag, guess in list(zip(words, true, said, strict=False))[:200]:
        wrong = f'<span class="slot wrong">{text(word, 60)} <sup>{text(guess, 30)}, not {text(tag, 30)}</sup></span>'
        made.append(wrong if tag != guess else text(word, 60))
    return made
