"""One, many or a stream: what a verb is given in, answers in the same form out, order kept.
 A stream is read some way ahead, so that like lengths can be put together, and no further: memory
stays bounded and answers come while it is still being written. A list is worked through in the same
way, and so gives the same answers bit for bit.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal, TypeVar

from litebert.errors import ConfigError, DataError

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Form = Literal["one", "many", "stream"]

WINDOW_ITEMS = 1024
"""How far a stream is read ahead, in items: enough for tens of batches, so that hardly any padding
is left."""
GPU_ITEMS = 8192
"""The same on a GPU, which is waited for once in a window."""
WINDOW_CHARACTERS = 2**20
"""The same in characters, whichever comes first: what is held in memory."""


def windows(
    items: Iterable[Item], size: Callable[[Item], int], *, most: int | None = None
) -> Iterator[list[Item]]:
    """`items` in stretches of at most `most` (WINDOW_ITEMS), and of WINDOW_CHARACTERS and what the
    last of them has beyond."""
    most = most or WINDOW_ITEMS
    window: list[Item] = []
    characters = 0
    for item in items:
        window.append(item)
        characters += size(item)
        if len(window) == most or characters >= WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def answered(
    items: Iterable[Item],
    size: Callable[[Item], int],
    answer: Callable[[list[Item]], Sequence[Answer]],
    *,
    most: int | None = None,
) -> Iterator[Answer]:
    """The answers to `items`, window by window."""
    for window in windows(items, size, most=most):
        yield from answer(window)


def in_form(form: Form, answers: Iterator[Any]) -> Any:
    """`answers` as the question came: one of them, a list, or the stream itself."""
    if form == "one":
        return next(answers)
    return list(answers) if form == "many" else answers


def form_of(value: object, is_one: Callable[[Any], bool]) -> Form:
    """How a field was given; whatever has a length is a list, whatever has none is a stream."""
    if is_one(value):
        return "one"
    if isinstance(value, Iterable) and not isinstance(
        value, Mapping
    ):  # what a dict gives are its keys, which nobody asks
        return "many" if isinstance(value, Collection) else "stream"
    raise DataError(
        f"expected a text, a list or an iterator of texts; got {type(value).__name__}: {value!r}"
    )


def rows(
    fields: Mapping[str, tuple[Any, Callable[[Any], bool]]],
) -> tuple[Form, Iterator[tuple[Any, ...]]]:
    """The fields of a question, each with what tells that it is one, as rows; all have the same
    form and length."""
    forms = {name: form_of(value, is_one) for name, (value, is_one) in fields.items()}
    if len(set(forms.values())) > 1:
        said = ", ".join(f"{name} is {SAID[form]}" for name, form in forms.items())
        raise ConfigError(f"{said}; give all of them in the same way")
    form = next(iter(forms.values()))
    values = [value for value, _ in fields.values()]
    if form == "one":
        return form, iter([tuple(values)])
    if form == "many" and len({len(value) for value in values}) > 1:
        said = ", ".join(
            f"{len(value)} of {name}" for name, value in zip(fields, values, strict=True)
        )
        raise DataError(f"expected as many of each; got {said}")
    return form, _together(list(fields), values)


def _together(names: list[str], values: list[Iterable[Any]]) -> Iterator[tuple[Any, ...]]:
    ended = object()
    for row in zip_longest(*values, fillvalue=ended):
        if any(value is ended for value in row):
            raise DataError(
                f"expected as many of each of {', '.join(names)}; one of these streams ended first"
            )
        yield row


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_texts(value: object) -> bool:
    """Whether these are the options of one question: texts, not lists of them."""
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(each, str) for each in value)
    )


SAID: dict[Form, str] = {"one": "one", "many": "a list", "stream": "an iterator"}
