"""One text, a list or an iterator in; results of the same form, in the same order, out.

An iterator is read one window ahead, so that texts of similar length share a batch: memory stays
bounded, and results arrive while the input is still being produced. A list goes through the same
windows, so that both give the same results bit for bit.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal, TypeVar

from litebert.checks import shorten
from litebert.errors import ConfigError, DataError

Item = TypeVar("Item")
Result = TypeVar("Result")
Form = Literal["one", "many", "stream"]

WINDOW_ITEMS = 1024
"""Items read ahead: enough for tens of batches, so that little padding is left."""
GPU_WINDOW_ITEMS = 8192
"""Items read ahead on a GPU, which synchronizes once per window."""
WINDOW_CHARACTERS = 2**20
"""Characters read ahead, whichever limit comes first: this bounds the memory."""

_FORM_NAMES: dict[Form, str] = {"one": "one", "many": "a list", "stream": "an iterator"}


def windows(
    items: Iterable[Item], size: Callable[[Item], int], *, max_items: int | None = None
) -> Iterator[list[Item]]:
    """Consecutive lists of at most `max_items` (default WINDOW_ITEMS) that end at the item which
    reaches WINDOW_CHARACTERS; `size` counts the characters of an item."""
    max_items = max_items or WINDOW_ITEMS
    window: list[Item] = []
    num_characters = 0
    for item in items:
        window.append(item)
        num_characters += size(item)
        if len(window) == max_items or num_characters >= WINDOW_CHARACTERS:
            yield window
            window, num_characters = [], 0
    if window:
        yield window


def map_windows(
    items: Iterable[Item],
    size: Callable[[Item], int],
    predict: Callable[[list[Item]], Sequence[Result]],
    *,
    max_items: int | None = None,
) -> Iterator[Result]:
    """The results of `predict` for all items, computed window by window."""
    for window in windows(items, size, max_items=max_items):
        yield from predict(window)


def to_rows(
    fields: Mapping[str, tuple[Any, Callable[[Any], bool]]],
) -> tuple[Form, Iterator[tuple[Any, ...]]]:
    """The form shared by all fields, and one tuple of their values per input.

    Each field comes with the predicate that recognizes a single value of it. DataError or
    ConfigError where forms or lengths differ.
    """
    forms = {name: _form(value, is_one) for name, (value, is_one) in fields.items()}
    if len(set(forms.values())) > 1:
        described = ", ".join(f"{name} is {_FORM_NAMES[form]}" for name, form in forms.items())
        raise ConfigError(f"{described}; give all of them in the same form")
    form = next(iter(forms.values()))
    values = [value for value, _ in fields.values()]
    if form == "one":
        return form, iter([tuple(values)])
    if form == "many" and len({len(value) for value in values}) > 1:
        counts = ", ".join(
            f"{len(value)} of {name}" for name, value in zip(fields, values, strict=True)
        )
        raise DataError(f"expected as many of each; got {counts}")
    return form, _zip(list(fields), values)


def to_form(form: Form, results: Iterator[Any]) -> Any:
    """`results` in the form of the input: the only one, a list, or the iterator itself."""
    if form == "one":
        return next(results)
    return list(results) if form == "many" else results


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_texts(value: object) -> bool:
    """Whether these are the options of one question: texts, not lists of texts."""
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(each, str) for each in value)
    )


def _form(value: object, is_one: Callable[[Any], bool]) -> Form:
    """Whatever has a length is a list, whatever has none is an iterator."""
    if is_one(value):
        return "one"
    # iterating a dict would give its keys, which nobody means
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return "many" if isinstance(value, Collection) else "stream"
    raise DataError(
        f"expected a text, a list or an iterator of texts; got {type(value).__name__}: "
        f"{shorten(value)}"
    )


def _zip(names: list[str], values: list[Iterable[Any]]) -> Iterator[tuple[Any, ...]]:
    end = object()
    for row in zip_longest(*values, fillvalue=end):
        if any(value is end for value in row):
            raise DataError(
                f"expected as many of each of {', '.join(names)}; one of the iterators ended first"
            )
        yield row
