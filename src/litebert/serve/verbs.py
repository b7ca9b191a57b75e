"""litebert's own endpoints: the body of a request in; items that a model reads, with their tokens,
out. /v1/fill, classify, pair, regress, choose, answer, tag and layers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

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
    MAX_TOP,
    RequestError,
    check_fields,
    read_flag,
    read_list,
    read_number,
    read_object_field,
    read_text,
)
from litebert.tasks.encode.encode import fill_in
from litebert.text.tokenizer import Tokenizer

_WINDOWED_TOKENS = 32_768
"""Tokens of one context to answer from, or of one list of words to tag."""
_CHUNK = 64
"""Texts tokenized at a time: other threads run in between."""


class Work(NamedTuple):
    """What a request asks a model for."""

    key: Key
    items: list[Any]
    sizes: list[int]
    """Tokens that the model reads of each item."""


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
    tokenizer, limit = model.predictor.tokenizer, model.max_length(verb)
    if verb == "fill":
        _check_guesses(items, top, name)
        for number, text in enumerate(items):
            try:
                encode_masked(tokenizer, text, max_length=limit)
            except LitebertError as error:
                raise RequestError(422, str(error), param=f"{name}[{number}]") from error
    sizes = _sizes(verb, items, tokenizer)
    names = [f"{name}[{number}]" for number in range(len(items))]
    checked = check_sizes(sizes, names, verb, limit, truncate=truncate)
    if verb == "choose":
        checked = [size * len(item.options) for size, item in zip(checked, items, strict=True)]
    return Work(Key(model.name, verb, top), items, checked)


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
    sizes: Sequence[int], names: Sequence[str], verb: Task, limit: int, *, truncate: bool
) -> list[int]:
    """The tokens that are read of each item; RequestError for one that would lose some."""
    windowed = verb in ("answer", "tag")
    if windowed or not truncate:
        remedy = "send it in parts" if windowed else 'shorten it, or send "truncate": true'
        most = _WINDOWED_TOKENS if windowed else limit
        for name, size in zip(names, sizes, strict=True):
            if size > most:
                raise RequestError(
                    422,
                    f"{name} has {size} tokens, the model reads {most}; {remedy}",
                    param=name,
                    code="context_length_exceeded",
                )
    return list(sizes) if windowed else [min(size, limit) for size in sizes]


def _sizes(verb: Task, items: Sequence[Any], tokenizer: Tokenizer) -> list[int]:
    """Tokens of each item, special ones included."""
    texts = [_TEXTS[verb](item) for item in items]
    flat = iter(text_sizes(tokenizer, [text for each in texts for text in each]))
    counts = [[next(flat) for _ in each] for each in texts]
    if verb == "choose":  # a row for each option: the context, and the question with the option
        return [max(each[0] + size for size in each[1:]) + num_special(True) for each in counts]
    return [sum(each) + num_special(len(each) > 1) for each in counts]


_TEXTS: dict[Task, Callable[[Any], list[str]]] = {
    "fill": lambda text: [text],
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
