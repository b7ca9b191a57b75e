"""Checks of frozen settings, for configs and recipes: a dataclass instance in; nothing, or a
ConfigError, out."""

import difflib
from collections.abc import Callable, Collection, Iterable
from dataclasses import fields
from itertools import islice
from typing import Any, Literal, get_args, get_origin

from litebert.errors import ConfigError


def shorten(value: object, limit: int = 80) -> str:
    """A value as an error shows it: its repr, of a long one the beginning and the length."""
    text = repr(value[: 2 * limit] if isinstance(value, str | bytes) else value)
    size = len(value) if isinstance(value, str | bytes) else len(text)
    if size <= limit:
        return text
    return f"{text[: limit - 20]}… ({size:,} characters)"


def clip(text: str, limit: int = 80) -> str:
    """The text; of a long one the beginning and the length."""
    return text if len(text) <= limit else f"{text[: limit - 20]}… ({len(text):,} characters)"


def list_names(
    names: Iterable[object], *, show: Callable[[object], str] = str, limit: int = 20
) -> str:
    """Names as an error lists them: the first ones, each shortened, and an ellipsis."""
    first = [clip(show(name)) for name in islice(names, limit + 1)]
    return ", ".join(first if len(first) <= limit else [*first[:limit], "…"])


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_number(
    owner: object, name: str, low: float, high: float, *, optional: bool = False
) -> None:
    value = getattr(owner, name)
    if not (optional and value is None) and not (is_number(value) and low <= value <= high):
        raise ConfigError(
            f"{name} is a number from {low:g} to {high:g}{_or_none(optional)}; got {shorten(value)}"
        )


def check_whole(owner: object, name: str, low: int, high: int, *, optional: bool = False) -> None:
    value = getattr(owner, name)
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if not (optional and value is None) and not (is_int and low <= value <= high):
        raise ConfigError(
            f"{name} is a whole number from {low} to {high}{_or_none(optional)}; got "
            f"{shorten(value)}"
        )


def check_choice(owner: object, name: str, choices: Collection[Any]) -> None:
    value = getattr(owner, name)
    if value not in choices:
        raise ConfigError(f"{name} is one of {list_names(choices)}; got {shorten(value)}")


def check_choices(settings: Any) -> None:
    """Refuse a value that a field of literal type does not list, and one of a bool that is none."""
    for each in fields(settings):
        if get_origin(each.type) is Literal:
            check_choice(settings, each.name, get_args(each.type))
        elif each.type is bool:
            check_type(settings, each.name, bool, "true or false")


def check_type(owner: object, name: str, kind: type, what: str) -> None:
    value = getattr(owner, name)
    if not isinstance(value, kind):
        raise ConfigError(f"{name} is {what}; got {shorten(value)}")


def check_known(what: str, name: object, known: Collection[str]) -> None:
    if name not in known:
        close = difflib.get_close_matches(str(name), known, n=1)
        meant = f"did you mean {shorten(close[0])}? " if close else ""
        raise ConfigError(
            f"there is no {what} {shorten(name)}; {meant}known: {list_names(known, limit=60)}"
        )


def _or_none(optional: bool) -> str:
    return ", or none" if optional else ""
