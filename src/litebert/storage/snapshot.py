"""Snapshots, to resume from: a run's live objects in, a folder of files out; and the inverse.

One folder per snapshot, step-00000500, step-00001000, …, of which the newest valid one wins:

    model.safetensors       parameters and buffers
    optimizer.safetensors   moments, in their own dtype
    random.safetensors      states of torch's generators
    snapshot.json           step, position in the data, the run with its recipe and inputs, the
                            optimizer's other values

A damaged snapshot is renamed to *.bad and reported. Old ones are removed, never the last valid one.
A full disk costs a snapshot, not the run. No pickle.
"""

import contextlib
import itertools
import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.optim import Optimizer

from litebert.checks import shorten
from litebert.errors import CheckpointError
from litebert.files import (
    DISK_FULL,
    remove_folder,
    remove_leftovers,
    utf8_path,
    verify_folder,
    write_folder,
)
from litebert.storage.checkpoint import save_tensors

FORMAT = "litebert-snapshot"
VERSION = 1
_TENSOR_FILES = ("model", "optimizer", "random")
_KERNELS = ("foreach", "fused", "capturable", "differentiable")
"""Settings of a torch optimizer that depend on the machine, not on the run."""
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
_SPARE_BYTES = 2**20
"""For folders and the file system's journal."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What a run resumes from."""

    step: int
    """Steps done; the next one has this number."""
    epoch: int
    """Epoch of the next example."""
    index: int
    """Index of the next example in its epoch. Randomness is counted, so epoch and index are the
    complete position in the data."""
    recipe: str
    """Fingerprint of the recipe."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """The run that it is of: its id, recipe and inputs; empty in the first snapshots of 0.1.0."""
    metrics_offset: int = 0
    """Bytes of metrics.jsonl written by the steps done; the rest is from steps that are redone."""
    model: Mapping[str, Tensor]
    """Parameters and buffers by name."""
    optimizer: Mapping[str, Any]
    """The optimizer's state_dict."""
    random: Mapping[str, Tensor] = field(default_factory=dict)
    """States of torch's generators by device."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Other plain values of the loop: tokens read, seconds, best score, skipped steps."""

    @classmethod
    def capture(cls, model: torch.nn.Module, optimizer: Optimizer, **where: Any) -> "Snapshot":
        """It shares the run's tensors, so write it before the next step; `where`: other fields."""
        return cls(
            model=model.state_dict(),
            optimizer=optimizer.state_dict(),
            random=_random_states(),
            **where,
        )

    def restore(self, model: torch.nn.Module, optimizer: Optimizer) -> None:
        """Load it into a model and an optimizer of the same recipe, and into torch's generators."""
        _check_model(self.model, model.state_dict())
        current = optimizer.state_dict()
        _check_groups(self.optimizer["param_groups"], current["param_groups"])
        model.load_state_dict(dict(self.model))
        pairs = zip(self.optimizer["param_groups"], current["param_groups"], strict=True)
        groups = [
            saved | {key: group[key] for key in _KERNELS if key in group} for saved, group in pairs
        ]
        optimizer.load_state_dict({"state": self.optimizer["state"], "param_groups": groups})
        _restore_random_states(self.random)

    def num_bytes(self) -> int:
        """Approximate size on disk."""
        tensors: dict[str, Tensor] = {}
        _flatten([self.model, self.optimizer, self.random], tensors)
        return sum(tensor.nbytes + 256 for tensor in tensors.values()) + 2**16

    def write(self, folder: Path) -> None:
        """Write the files into a folder that the caller publishes."""
        moments: dict[str, Tensor] = {}
        header = {
            "format": FORMAT,
            "version": VERSION,
            **{name: getattr(self, name) for name in ("step", "epoch", "index", "recipe")},
            "run": dict(self.run),
            "metrics_offset": self.metrics_offset,
            "extra": _flatten(self.extra, {}),
            "optimizer": _flatten(self.optimizer, moments),
        }
        for name, tensors in zip(_TENSOR_FILES, (self.model, moments, self.random), strict=True):
            _save_tensors(folder / f"{name}.safetensors", tensors)
        (folder / "snapshot.json").write_text(json.dumps(header, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Snapshot":
        """The snapshot of a verified folder; CheckpointError if it holds something else."""
        try:
            header = json.loads((folder / "snapshot.json").read_text(encoding="utf-8"))
            if (header.pop("format"), header.pop("version")) != (FORMAT, VERSION):
                raise ValueError("it is of another format or version")
            model, moments, random = (
                _load_tensors(folder / f"{name}.safetensors") for name in _TENSOR_FILES
            )
            optimizer = _unflatten(header.pop("optimizer"), moments)
            extra = _unflatten(header.pop("extra"), {})
            return cls(model=model, random=random, optimizer=optimizer, extra=extra, **header)
        except (*_UNREADABLE, SafetensorError) as error:
            raise CheckpointError(
                f"{folder} is not a snapshot that this litebert reads: {error}"
            ) from error


class SnapshotStore:
    """The folder of a run's snapshots. One process of a run may save; all may read."""

    def __init__(
        self,
        folder: Path | str,
        *,
        keep: int = 2,
        report: Callable[[str], None] = lambda message: None,
    ) -> None:
        """`keep` snapshots remain after a save; `report` is called with one sentence for the user,
        about damage or a full disk."""
        assert keep >= 1
        self.folder, self.keep, self.report = Path(folder), keep, report

    def paths(self) -> list[Path]:
        """The published snapshots, oldest first; not yet verified."""
        paths = self.folder.glob("step-*")
        return sorted(
            (path for path in paths if re.fullmatch(r"step-\d{8,}", path.name)),
            key=lambda path: int(path.name.removeprefix("step-")),
        )

    def save(self, snapshot: Snapshot) -> Path | None:
        """Publish `snapshot` and remove the oldest; None, and a report, if the disk is full."""
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.folder)
        needed, free = snapshot.num_bytes() + _SPARE_BYTES, shutil.disk_usage(self.folder).free
        if free < needed:
            self._disk_full(
                snapshot, f"it needs {needed / 1e6:.1f} MB and {free / 1e6:.1f} MB are free"
            )
            return None
        path = self.folder / f"step-{snapshot.step:08d}"
        try:
            write_folder(path, snapshot.write, replace=True)
        except OSError as error:
            if error.errno in DISK_FULL:
                self._disk_full(snapshot, str(error.strerror))
                return None
            raise CheckpointError(
                f"the snapshot of step {snapshot.step} could not be written: {error}"
            ) from error
        self.prune()
        return path

    def latest(self, *, set_aside: bool = True) -> Snapshot | None:
        """The newest valid snapshot, or None; `set_aside` renames newer ones that are damaged."""
        for path in reversed(self.paths()):
            try:
                verify_folder(path)
                return Snapshot.read(path)
            except CheckpointError as error:
                name = (_set_aside(path) if set_aside else path).name
                self.report(f"a bad snapshot is passed over, kept as {name}: {error}")
        return None

    def prune(self) -> None:
        """Remove all but the newest `keep`, and the newest valid one if none of those is valid."""
        older, newer = self.paths()[: -self.keep], self.paths()[-self.keep :]
        if older and not any(_is_valid(path) for path in reversed(newer)):
            last = next((path for path in reversed(older) if _is_valid(path)), None)
            older = [path for path in older if path != last]
        for path in older:
            with contextlib.suppress(OSError):
                remove_folder(path)

    def _disk_full(self, snapshot: Snapshot, reason: str) -> None:
        last = self.paths()[-1].name if self.paths() else "none yet"
        self.report(
            f"no snapshot of step {snapshot.step}, the disk of {self.folder} is full: {reason}. "
            f"The run continues; the last good snapshot is {last}. Free some space"
        )


def _random_states() -> dict[str, Tensor]:
    """States of torch's generators by device; no other generator carries state."""
    states = {"cpu": torch.get_rng_state()}
    # reading a state initializes CUDA, which a run on the CPU does not need
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for i in range(torch.cuda.device_count()):
            states[f"cuda:{i}"] = torch.cuda.get_rng_state(i)
    return states


def _restore_random_states(states: Mapping[str, Tensor]) -> None:
    """The inverse of `_random_states`; devices that this machine does not have are skipped."""
    for device, state in states.items():
        if device == "cpu":
            torch.set_rng_state(state)
        elif torch.cuda.is_available() and torch.device(device).index < torch.cuda.device_count():
            torch.cuda.set_rng_state(state, device)


def _save_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    owned: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        # safetensors refuses tensors that share memory; each gets its own copy in the file
        pointer = plain.untyped_storage().data_ptr()
        shares = pointer in seen or plain.nbytes != plain.untyped_storage().nbytes()
        owned[name] = plain.clone() if shares else plain
        seen.add(pointer)
    save_tensors(owned, file)


def _load_tensors(file: Path) -> dict[str, Tensor]:
    # cloned, since safetensors may return memory of the mapped file
    with utf8_path(file) as utf8:
        return {name: tensor.clone() for name, tensor in load_file(utf8).items()}


def _check_model(saved: Mapping[str, Tensor], current: Mapping[str, Tensor]) -> None:
    for name in sorted(saved.keys() | current.keys()):
        pair = [tensors.get(name) for tensors in (saved, current)]
        then, now = ("absent" if t is None else f"{t.dtype} {list(t.shape)}" for t in pair)
        if then != now:
            raise CheckpointError(
                f"the snapshot is of another model: {name} is {then} in it, {now} here"
            )


def _check_groups(saved: list[dict[str, Any]], current: list[dict[str, Any]]) -> None:
    then, now = (
        [group.get("param_names", len(group["params"])) for group in groups]
        for groups in (saved, current)
    )
    if then != now:
        raise CheckpointError(
            "the snapshot's optimizer has other parameters or another order of them than this one"
        )


def _is_valid(path: Path) -> bool:
    with contextlib.suppress(CheckpointError):
        verify_folder(path)
        return True
    return False


def _set_aside(path: Path) -> Path:
    """Rename to the first free of NAME.bad, NAME.bad-2, …"""
    names = itertools.chain([".bad"], (f".bad-{number}" for number in itertools.count(2)))
    targets = (path.with_name(path.name + name) for name in names)
    try:
        return path.rename(next(target for target in targets if not target.exists()))
    except OSError:  # a read-only folder: the report has to do
        return path


def _flatten(value: Any, tensors: dict[str, Tensor], name: str = "") -> Any:
    """`value` as JSON; its tensors go into `tensors` by path, such as state.0.first. JSON has
    neither tuples nor integer keys: tuples, dicts and tensors become {kind: content}."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, list | tuple):
        items = [_flatten(item, tensors, _join(name, index)) for index, item in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, Mapping):
        for key in value:
            if isinstance(key, bool) or not isinstance(key, str | int):
                raise CheckpointError(
                    f"a snapshot's keys are strings or integers; got {shorten(key)}"
                )
        items = [[key, _flatten(item, tensors, _join(name, key))] for key, item in value.items()]
        return {"dict": items}
    raise CheckpointError(
        f"a snapshot cannot hold {name or 'a value'} of type {type(value).__name__}; use plain "
        "values"
    )


def _unflatten(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `_flatten`."""
    if isinstance(value, list):
        return [_unflatten(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(_unflatten(item, tensors) for item in content)
    if kind == "dict":
        return {key: _unflatten(item, tensors) for key, item in content}
    raise ValueError(f"unknown kind {shorten(kind)}")


def _join(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)
