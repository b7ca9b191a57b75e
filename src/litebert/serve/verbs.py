"""litebert's own endpoints: the body of a request in; items that a model reads, with their tokens,
out. /v1/fill, classify, pair, regress, choose, answer, tag and layers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from litebert.errors import LitebertError
from litebert.infer.verbs import (
    MASK,
    Verb,
    answer_example,
    choice_example,
    encode_masked,
    tag_example,
    text_example,
)
from litebert.packing import num_special
from litebert.serve.models import Key, ServedModel, Task
from litebert.serve.requests import (
    MAX_GUESSES,
    MAX_ITEM_TOKENS,
    MAX_TOP,
    RequestError,
    check_fields,
    read_flag,
    read_list,
    read_number,
    read_object_field,
    read_text,
)
from litebert.tasks.encode.encode import fill_in, max_choice
from litebert.tasks.encode.windows import max_question, window_tokens
from litebert.text.tokenizer import Tokenizer

_CHUNK = 64
"""Texts tokenized at a time: other threads run in between."""


class Work(NamedTuple):
    """What a request asks a model for."""

    key: Key
    items: list[Any]
    sizes: list[int]
    """Tokens that the model reads of each item, in all its rows."""


VERBS: tuple[Verb, ...] = ("fill", "classify", "pair", "regress", "choose", "answer", "tag")
_ITEMS: dict[Task, tuple[str, ...]] = {
    "fill": ("texts",),
    "classify": ("texts",),
    "pair": ("pairs",),
    "regress": ("texts", "pairs"),
    "choose": ("items",),
    "answer": ("items",),
    "tag": ("texts",),
    "layers": ("texts", "pairs"),
}
"""Fields that hold the inputs, of which a request has one."""


def items_field(verb: Task, body: Mapping[str, Any]) -> str:
    known = ["model", *_ITEMS[verb], "truncate", *(["top"] if verb == "fill" else [])]
    check_fields(body, known)
    present = [name for name in _ITEMS[verb] if name in body]
    if len(present) > 1:
        raise RequestError(400, f"send either {' or '.join(present)}, not both", param=present[1])
    return present[0] if present else _ITEMS[verb][0]


def read_work(
    verb: Task, body: Mapping[str, Any], model: ServedModel, name: str | None = None
) -> Work:
    """The items of a request; RequestError for what the model cannot read. `name` is what the
    client calls the field, where that is another word."""
    field = items_field(verb, body)
    name = name or field
    truncate = read_flag(body, "truncate")
    top = read_number(body, "top", 5, MAX_TOP) if verb == "fill" else 0
    read = _read_pair if field == "pairs" else _READERS[verb]
    items: list[Any] = []
    for number, value in enumerate(read_list(body, field, _WHAT[field])):
        where = f"{name}[{number}]"
        try:
            items.append(read(value, where))
        except LitebertError as error:
            raise RequestError(422, f"{where}: {error}", param=where) from error
    names = [f"{name}[{number}]" for number in range(len(items))]
    if verb == "fill":
        _check_guesses(items, top, name)
        sizes = _fill_sizes(items, names, model, truncate=truncate)
    else:
        sizes = _sizes(verb, items, names, model, truncate=truncate)
    return Work(Key(model.name, verb, top), items, sizes)


def _check_guesses(texts: Sequence[str], top: int, name: str) -> None:
    """Refuse masks whose guesses would fill the memory."""
    num_masks = sum(text.count(MASK) for text in texts)
    if num_masks * top > MAX_GUESSES:
        raise RequestError(
            413,
            f"{name} has {num_masks:,} masks with {top} guesses each, one request has at most "
            f"{MAX_GUESSES:,} guesses; send several requests",
            param=name,
        )


def text_sizes(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """Tokens of each text, without special tokens."""
    sizes: list[int] = []
    for start in range(0, len(texts), _CHUNK):
        _, bounds = tokenizer.encode_flat(texts[start : start + _CHUNK])
        sizes += (bounds[1:] - bounds[:-1]).tolist()
    return sizes


def check_sizes(
    sizes: Sequence[int],
    names: Sequence[str],
    limit: int,
    *,
    truncate: bool,
    what: str = "tokens",
) -> list[int]:
    """The tokens that are read of each text; RequestError for one that would lose some."""
    for name, size in zip(names, sizes, strict=True):
        if size > limit and not truncate:
            raise RequestError(
                422,
                f"{name} has {size} {what}, the model reads {limit}; shorten it, or send "
                '"truncate": true',
                param=name,
                code="context_length_exceeded",
            )
    return [min(size, limit) for size in sizes]


def _fill_sizes(
    texts: Sequence[str], names: Sequence[str], model: ServedModel, *, truncate: bool
) -> list[int]:
    """Tokens that are read of each text with masks; RequestError for one that would lose some."""
    tokenizer, limit = model.predictor.tokenizer, model.max_length("fill")
    sizes: list[int] = []
    for name, text in zip(names, texts, strict=True):
        try:
            sizes.append(len(encode_masked(tokenizer, text, max_length=None)))
            if sizes[-1] > limit:  # no mask may be cut off
                encode_masked(tokenizer, text, max_length=limit)
        except LitebertError as error:
            raise RequestError(422, str(error), param=name) from error
    return check_sizes(sizes, names, limit, truncate=truncate)


def _sizes(
    verb: Task, items: Sequence[Any], names: Sequence[str], model: ServedModel, *, truncate: bool
) -> list[int]:
    """Tokens that are read of each item, in all its rows; RequestError for one that would lose
    some."""
    texts = [_TEXTS[verb](item) for item in items]
    flat = iter(text_sizes(model.predictor.tokenizer, [text for each in texts for text in each]))
    counts = [[next(flat) for _ in each] for each in texts]
    questions = [f"{name}.question" for name in names]
    if verb in ("answer", "tag"):  # a row for each window over the last text
        card = model.predictor.cards[verb]
        asked = [sum(each[:-1]) for each in counts]
        asked = check_sizes(asked, questions, max_question(card), truncate=truncate)
        beside = np.array(asked) + num_special(verb == "answer")
        sizes = window_tokens(card, np.array([each[-1] for each in counts]), beside).tolist()
        return _bounded(sizes, names, "send it in parts")
    limit = model.max_length(verb)
    if verb == "choose":  # a row for each option: the context, and the question with the option
        most = max_choice(model.predictor.cards[verb])
        choices = [max(each[1:]) for each in counts]
        what = "tokens with its longest option"
        check_sizes(choices, questions, most, truncate=truncate, what=what)
        special = num_special(True)
        sizes = [each[0] + choice + special for each, choice in zip(counts, choices, strict=True)]
        sizes = check_sizes(sizes, names, limit, truncate=truncate)
        rows = [size * len(item.options) for size, item in zip(sizes, items, strict=True)]
        return _bounded(rows, names, "send fewer options")
    sizes = [sum(each) + num_special(len(each) > 1) for each in counts]
    return check_sizes(sizes, names, limit, truncate=truncate)


def _bounded(sizes: list[int], names: Sequence[str], remedy: str) -> list[int]:
    """The sizes; RequestError for an item that would keep the model from all others."""
    for name, size in zip(names, sizes, strict=True):
        if size > MAX_ITEM_TOKENS:
            raise RequestError(
                413,
                f"{name} makes the model read {size:,} tokens, one item at most "
                f"{MAX_ITEM_TOKENS:,}; {remedy}",
                param=name,
            )
    return sizes


_TEXTS: dict[Task, Callable[[Any], list[str]]] = {
    "classify": lambda example: [example.first],
    "pair": lambda example: [example.first, example.second],
    "regress": lambda example: [text for text in (example.first, example.second) if text],
    "choose": lambda example: [
        example.context,
        *(fill_in(example.question, option) for option in example.options),
    ],
    "answer": lambda example: [example.question, example.context],
    "tag": lambda example: [" ".join(example.words)],
    "layers": lambda example: [text for text in (example.first, example.second) if text],
}


def _read_pair(value: Any, where: str) -> Any:
    if not isinstance(value, list) or len(value) != 2:
        raise RequestError(400, f"{where} is a list of two texts", param=where)
    return text_example(*(read_text(each, f"{where}[{i}]") for i, each in enumerate(value)))


def _read_choice(value: Any, where: str) -> Any:
    fields = read_object_field(value, where, ("context", "question", "options"))
    options = read_list(fields, "options", "texts")
    return choice_example(
        read_text(fields["context"], f"{where}.context", empty=True),
        read_text(fields["question"], f"{where}.question", empty=True),
        [read_text(each, f"{where}.options[{i}]") for i, each in enumerate(options)],
    )


def _read_answer(value: Any, where: str) -> Any:
    fields = read_object_field(value, where, ("question", "context"))
    return answer_example(
        *(read_text(fields[name], f"{where}.{name}") for name in ("question", "context"))
    )


def _read_tag(value: Any, where: str) -> Any:
    if isinstance(value, list):
        return tag_example([read_text(word, f"{where}[{i}]") for i, word in enumerate(value)])
    return tag_example(read_text(value, where))


_READERS: dict[Task, Callable[[Any, str], Any]] = {
    "fill": read_text,
    "classify": lambda value, where: text_example(read_text(value, where)),
    "pair": _read_pair,
    "regress": lambda value, where: text_example(read_text(value, where)),
    "choose": _read_choice,
    "answer": _read_answer,
    "tag": _read_tag,
    "layers": lambda value, where: text_example(read_text(value, where)),
}
_WHAT = {"texts": "texts", "pairs": "pairs of texts", "items": "objects"}
