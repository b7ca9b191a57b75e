"""Nested values come back exactly, types included."""

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from litebert.errors import CheckpointError
from litebert.storage.snapshot.tree import flatten, unflatten

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner)
    ),
)


def kinds(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value), [kinds(item) for item in value]
    return (
        [(key, kinds(item)) for key, item in value.items()]
        if isinstance(value, dict)
        else type(value)
    )


@given(TREES)
def test_round_trip_through_json_is_exact(value: Any) -> None:
    again = unflatten(json.loads(json.dumps(flatten(value, {}))), {})
    assert again == value
    assert kinds(again) == kinds(value)


def test_tensors_are_named_by_their_path() -> None:
    tensors: dict[str, torch.Tensor] = {}
    value = {
        "state": {0: {"first": torch.ones(2), "step": 3}},
        "groups": [{"lr": torch.tensor(0.1)}],
    }
    plain = flatten(value, tensors)
    assert set(tensors) == {"state.0.first", "groups.0.lr"}
    again = unflatten(json.loads(json.dumps(plain)), tensors)
    assert again["state"][0]["first"] is tensors["state.0.first"]
    assert again["state"][0]["step"] == 3


def test_what_has_no_exact_form_is_refused() -> None:
    with pytest.raises(
        CheckpointError, match=r"cannot hold extra\.when of type object; use plain values"
    ):
        flatten({"extra": {"when": object()}}, {})
    with pytest.raises(CheckpointError, match=r"keys are strings or whole numbers; got 1\.5"):
        flatten({1.5: 0}, {})
    with pytest.raises(ValueError, match="unknown kind 'set'"):
        unflatten({"set": []}, {})
