"""A snapshot's nested values are read back exactly, types included."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from litebert.errors import CheckpointError
from litebert.storage.snapshot import Snapshot

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


def read_back(**fields: Any) -> Snapshot:
    with TemporaryDirectory() as folder:
        snapshot = {"step": 0, "epoch": 0, "index": 0, "recipe": "", "model": {}, "optimizer": {}}
        Snapshot(**snapshot | fields).write(Path(folder))
        return Snapshot.read(Path(folder))


@given(TREES)
def test_values_survive_exactly(value: Any) -> None:
    again = read_back(extra={"value": value}).extra["value"]
    assert again == value
    assert kinds(again) == kinds(value)


def test_tensors_survive_inside_other_values() -> None:
    state = {0: {"first": torch.ones(2), "step": 3}}
    again = read_back(optimizer={"state": state, "groups": ({"lr": torch.tensor(0.1)},)}).optimizer
    assert torch.equal(again["state"][0]["first"], torch.ones(2))
    assert again["state"][0]["step"] == 3
    assert torch.equal(again["groups"][0]["lr"], torch.tensor(0.1))


def test_other_types_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"cannot hold extra\.when of type object; use plain values"
    ):
        read_back(extra={"extra": {"when": object()}})
    with pytest.raises(CheckpointError, match=r"keys are strings or integers; got 1\.5"):
        read_back(extra={"extra": {1.5: 0}})
    Snapshot(step=0, epoch=0, index=0, recipe="", model={}, optimizer={}).write(tmp_path)
    header = json.loads((tmp_path / "snapshot.json").read_text())
    (tmp_path / "snapshot.json").write_text(json.dumps(header | {"extra": {"set": []}}))
    with pytest.raises(CheckpointError, match="unknown kind 'set'"):
        Snapshot.read(tmp_path)
