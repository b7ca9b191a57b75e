"""Which annotations jaxtyping's import hook checks: those with shapes of arrays.

Whether a number is an int or a path a str is mypy's question, and options that are wrong on purpose
are the subject of many tests.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray


def has_shape(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(has_shape(each) for each in get_args(hint))


def shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check arguments and results with shapes against them, and leave the others alone."""
    checked = {name: hint for name, hint in function.__annotations__.items() if has_shape(hint)}
    if not checked or not isinstance(function, FunctionType):
        return function
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__dict__.update(function.__dict__)
    copy.__module__, copy.__qualname__ = function.__module__, function.__qualname__
    copy.__annotations__ = checked
    return beartype(copy)
