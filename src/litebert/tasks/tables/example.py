"""One row of a user's table and its Columns in; an example out, or a BadRowError that tells why
not."""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from string import ascii_uppercase
from typing import Any

from litebert.checks import list_names, shorten
from litebert.data.bad_rows import BadRowError
from litebert.tasks.examples import (
    Answer,
    AnswerExample,
    ChoiceExample,
    Kind,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.tasks.tables.columns import TRUTH, Columns

Row = Mapping[str, Any]
_FOREIGN_LIST = re.compile(r"""\[\s*(['"].*|[\d\s]+)\]""", re.DOTALL)
"""['a', 'b'], ['a' 'b'] or [0 1], as Python and numpy print lists, and pandas writes them into a
CSV file."""


def row_to_example(
    kind: Kind,
    row: Row,
    columns: Columns,
    *,
    key: str = "",
    where: str = "",
    labeled: bool = False,
) -> TaskExample:
    """The example of a row. `labeled`: a row without a target is bad, instead of an unlabeled
    example."""
    if columns.key is not None:
        key = _label(row.get(columns.key), columns.key) or key
    name = _label(row.get(columns.slice), columns.slice) if columns.slice is not None else None
    about = {"key": key, "slice": name or "", "where": where}
    example: TaskExample = _MAKERS[kind](row, columns, about)
    if labeled and not example.is_labeled:
        raise BadRowError(f"the row has no {TRUTH[kind]}")
    return example


def _text_example(
    row: Row,
    columns: Columns,
    about: dict[str, str],
    *,
    read: Callable[[Any, str], str | float | tuple[str, ...] | None],
) -> TextExample:
    second = None if columns.second is None else _text(row, columns.second)
    label = read(_value(row, columns.label), columns.label) if columns.label else None
    return TextExample(first=_text(row, columns.text), second=second, label=label, **about)


def _choice_example(row: Row, columns: Columns, about: dict[str, str]) -> ChoiceExample:
    if len(columns.options) == 1:
        value = _value(row, columns.options[0])
        options = _list(_parsed(value) if isinstance(value, str) else value, columns.options[0])
    else:
        options = tuple(_text(row, name) for name in columns.options)
    if len(options) < 2:
        raise BadRowError(f"there are {len(options)} options, expected two or more")
    label = None
    if columns.label:
        label = _choice(_value(row, columns.label), columns.label, options)
    return ChoiceExample(
        context=_text(row, columns.context) if columns.context else "",
        question=_text(row, columns.question) if columns.question else "",
        options=options,
        label=label,
        **about,
    )


def _choice(value: Any, name: str, options: tuple[str, ...]) -> int | None:
    """The number of the right option, given as a letter, a number from 0, or the option's text."""
    text = _label(value, name)
    if text is None:
        return None
    is_text = not isinstance(value, int)
    meant = {number for number, option in enumerate(options) if is_text and option.strip() == text}
    letters = ascii_uppercase[: len(options)]
    if len(text) == 1 and text.upper() in letters:
        meant.add(letters.index(text.upper()))
    if text.isdecimal() and len(text) < 20 and int(text) < len(options):
        meant.add(int(text))
    if len(meant) == 1:
        return meant.pop()
    if meant:
        raise BadRowError(
            f"the right option {shorten(text)} may be option "
            f"{' or '.join(map(str, sorted(meant)))}, counted from 0"
        )
    raise BadRowError(
        f"the right option is {shorten(text)}, expected a letter A to {letters[-1]}, a number 0 to "
        f"{len(options) - 1}, or an option"
    )


def _answer_example(row: Row, columns: Columns, about: dict[str, str]) -> AnswerExample:
    context = _text(row, columns.context)
    answers = None
    if columns.answer is not None:
        answers = _answers(_value(row, columns.answer), row, columns, context)
    return AnswerExample(
        question=_text(row, columns.question), context=context, answers=answers, **about
    )


def _answers(value: Any, row: Row, columns: Columns, context: str) -> tuple[Answer, ...]:
    """Of a text, a list of texts, SQuAD's list of objects, or Hugging Face's object of two lists;
    none where it is empty."""
    if isinstance(value, str):
        value = _parsed(value)
    start = row.get(columns.answer_start) if columns.answer_start else None
    texts, starts = [value], [start]
    if isinstance(value, dict):
        texts, starts = _listed(value.get("text")), _listed(value.get("answer_start"))
    elif isinstance(value, list):
        objects = [each if isinstance(each, dict) else {"text": each} for each in value]
        texts = [each.get("text") for each in objects]
        starts = [each.get("answer_start") for each in objects] if start is None else _listed(start)
    starts = starts if len(starts) == len(texts) else [None] * len(texts)
    stated: list[tuple[str, int | None]] = []
    for text, first in zip(texts, starts, strict=True):
        if text is None or text == "":
            continue
        if not isinstance(text, str):
            raise BadRowError(f"an answer is {type(text).__name__}, expected text")
        stated.append((text, None if first in (None, "") else _whole(first)))
    return find_answers(context, stated)


def find_answers(context: str, stated: Iterable[tuple[str, int | None]]) -> tuple[Answer, ...]:
    """Answers, each once and where the context has it, by their texts and starts."""
    answers: dict[Answer, None] = {}
    for text, start in stated:
        answer = Answer.find(context, text, start)
        if answer is None:
            raise BadRowError(f"the answer {shorten(text)} is not in the context")
        answers[answer] = None
    return tuple(answers)


def _tag_example(row: Row, columns: Columns, about: dict[str, str]) -> TagExample:
    assert columns.words is not None
    words = _words(_value(row, columns.words), columns.words)
    if not words or not all(word.strip() for word in words):
        raise BadRowError("there are no words" if not words else f"word {_empty(words)} is empty")
    tags = None
    if columns.tags is not None and (value := _value(row, columns.tags)) not in (None, "", []):
        tags = _words(value, columns.tags)
        if len(tags) != len(words):
            raise BadRowError(f"there are {len(words)} words and {len(tags)} tags")
        if not all(tags):
            raise BadRowError(f"tag {_empty(tags)} is empty")
    return TagExample(words=words, tags=tags, **about)


def _empty(texts: tuple[str, ...]) -> int:
    return next(number for number, text in enumerate(texts, 1) if not text.strip())


def _value(row: Row, name: str) -> Any:
    if name not in row:
        raise BadRowError(
            f"the row has no field {shorten(name)}; it has: {list_names(row) or 'none'}"
        )
    return row[name]


def _text(row: Row, name: str | None) -> str:
    assert name is not None
    value = _value(row, name)
    if not isinstance(value, str):
        held = "is null" if value is None else f"holds {type(value).__name__}, expected text"
        raise BadRowError(f"the field {shorten(name)} {held}")
    if not value.strip():
        raise BadRowError(f"the field {shorten(name)} is empty")
    return _clean(value, name)


def _clean(text: str, name: str) -> str:
    if "\0" in text:
        raise BadRowError(f"the field {shorten(name)} holds a NUL character, which no text has")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise BadRowError(
                f"the field {shorten(name)} holds half of a surrogate pair (\\ud800 to \\udfff)"
            ) from None
    return text


def _label(value: Any, name: str) -> str | None:
    """A label or a name as text, whatever the file's type; None for an empty one."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a table with gaps turns whole numbers into floats
    if not isinstance(value, str | int | float):
        raise BadRowError(
            f"the field {shorten(name)} holds {type(value).__name__}, expected a word or a number"
        )
    return _clean(str(value).strip(), name) or None


def _labels(value: Any, name: str) -> str | tuple[str, ...] | None:
    """A label; or several, each once, where the value is a list or its JSON."""
    if isinstance(value, str):
        parsed = _parsed(value)
        value = parsed if isinstance(parsed, list) else value
    if not isinstance(value, list | tuple):
        return _label(value, name)
    labels = tuple(dict.fromkeys(_label(item, name) for item in value))
    if None in labels:
        raise BadRowError(f"the field {shorten(name)} is a list with an empty label")
    return tuple(label for label in labels if label is not None)


def _number(value: Any, name: str) -> float | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise BadRowError(
            f"the field {shorten(name)} is {shorten(str(value))}, expected a finite number"
        )
    return number


def _whole(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise BadRowError(
            f"the answer's start is {shorten(str(value))}, expected a whole number"
        ) from None


def _list(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str | int) for item in value):
        raise BadRowError(f"the field {shorten(name)} is no list of texts")
    return tuple(_clean(str(item), name) for item in value)


def _words(value: Any, name: str) -> tuple[str, ...]:
    """A list; or, where the file can hold only text, its JSON or words with white space between."""
    items = _parsed(value) if isinstance(value, str) else value
    if isinstance(items, str) and _FOREIGN_LIST.fullmatch(items.strip()):
        raise BadRowError(
            f"the field {shorten(name)} is a list that is no JSON; expected it written as "
            '["a", "b"], or as a b'
        )
    return _list(items.split() if isinstance(items, str) else items, name)


def _parsed(text: str) -> Any:
    """A list or an object written as JSON into a file that can hold only text; any other text as it
    is."""
    if text[:1] not in ("[", "{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


_MAKERS: Mapping[Kind, Callable[[Row, Columns, dict[str, str]], TaskExample]] = {
    "classify": partial(_text_example, read=_labels),
    "pair": partial(_text_example, read=_labels),
    "regress": partial(_text_example, read=_number),
    "choose": _choice_example,
    "answer": _answer_example,
    "tag": _tag_example,
}
