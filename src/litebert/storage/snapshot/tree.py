"""Nested Python values ↔ JSON and named tensors, exactly. In: what an optimizer calls its state.
Out: no pickle.
 JSON has no tuples and its keys are strings; so tuples, dicts and tensors become objects with one
key that says which.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from litebert.errors import CheckpointError


def flatten(value: Any, tensors: dict[str, Tensor], name: str = "") -> Any:
    """`value` in JSON's types; its tensors go into `tensors` under their path, as in
    state.0.first."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, list | tuple):
        items = [flatten(item, tensors, _join(name, index)) for index, item in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, Mapping):
        return {
            "dict": [
                [_key(key), flatten(item, tensors, _join(name, key))] for key, item in value.items()
            ]
        }
    raise CheckpointError(
        f"a snapshot cannot hold {name or 'a value'} of type {type(value).__name__}; use plain "
        "values"
    )


def unflatten(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `flatten`."""
    if isinstance(value, list):
        return [unflatten(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(unflatten(item, tensors) for item in content)
    if kind == "dict":
        return {key: unflatten(item, tensors) for key, item in content}
    raise ValueError(f"unknown kind {kind!r}")


def _key(key: Any) -> str | int:
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise CheckpointError(f"a snapshot's keys are strings or whole numbers; got {key!r}")
    return key


def _join(name: str, part: object) -> str:
    return f"{name}.{part}" if name else str(part)
