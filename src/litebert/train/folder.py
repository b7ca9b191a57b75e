"""A run folder: recipe, environment, metrics, snapshots, best, final, status. A path in; a folder
held by one run out, which resumes only with the recipe and the inputs that it began with."""

import contextlib
import importlib.metadata
import os
import platform
import secrets
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litebert import __version__
from litebert.checks import clip
from litebert.errors import ConfigError
from litebert.files import (
    Lock,
    check_local,
    parse_json,
    read_bytes,
    remove_leftovers,
    write_json,
)
from litebert.recipes import Recipe, difference

if TYPE_CHECKING:
    from litebert.train.runtime import Runtime

_WRITTEN = (
    *("metrics.jsonl", "status.json", "snapshots", "best", "final"),
    *("result.json", "summary.json", "dev_predictions.jsonl"),
)
"""What a run replaces or deletes in its folder."""
_EXACT = ("device", "dtype", "world_size", "threads", "packages")
"""What rounding depends on: a run that resumes elsewhere learns the same, and not bit for bit."""


class RunFolder:
    """The places of a run, and the lock that keeps a second process out of it."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.recipe = self.path / "recipe.json"
        self.environment = self.path / "environment.json"
        self.metrics = self.path / "metrics.jsonl"
        self.snapshots = self.path / "snapshots"
        self.best = self.path / "best"
        self.final = self.path / "final"
        self.status = self.path / "status.json"
        self.run_id: str | None = None
        """Distinguishes the run from others of the same recipe; None for one of 0.1.0's first
        folders."""
        self._lock: Lock | None = None
        self._known: dict[str, Any] = {}

    def hold(self) -> None:
        """Make the folder and take its lock; ConfigError where another run has it."""
        check_local(self.path)
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file; --out takes a folder for the run")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / ".lock").touch()
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be made or written to: {error.strerror}; choose another --out"
            ) from error
        try:
            self._lock = Lock(self.path / ".lock")
        except OSError:
            raise ConfigError(
                f"another process is running in {self.path}; wait for it, or choose another --out"
            ) from None
        remove_leftovers(self.path)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def write_status(self, state: str, **details: Any) -> None:
        """What the run is doing, for people and scripts that look in from outside; details stay
        until they change.

        States: running, finished, interrupted, diverged, stopped. A full disk keeps the old status.
        """
        self._known |= details
        with contextlib.suppress(OSError):
            write_json(
                self.status,
                {"state": state, "pid": os.getpid(), "time": time.time(), **self._known},
            )


def stored_threads(path: Path | str) -> int | None:
    """How many threads the run in the folder `path`, or its first seed, began with; None where
    there is none."""
    for folder in (RunFolder(path), RunFolder(Path(path) / "seed-0")):
        with contextlib.suppress(ValueError, OSError, AttributeError):
            count = parse_json(read_bytes(folder.environment)).get("threads")
            return count if type(count) is int else None
    return None


def environment(**more: Any) -> dict[str, Any]:
    """What a number may depend on: versions, processor, revision of the code."""
    packages = ("torch", "numpy", "safetensors", "sentencepiece")
    return {
        "litebert": __version__,
        "revision": _revision(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "packages": {name: importlib.metadata.version(name) for name in packages},
        **more,
    }


def claim(
    folder: RunFolder, recipe: Recipe, inputs: Mapping[str, str | None], runtime: "Runtime"
) -> list[str]:
    """Write down the recipe and the inputs (fingerprints and folders by name), or refuse a folder
    of another run; what has changed of the environment since the run began."""
    here = environment(**runtime.facts())
    changes: list[str] = []
    if folder.recipe.exists():
        differing = differences(read_record(folder.recipe), recipe, inputs)
        if differing:
            raise ConfigError(
                f"{folder.path} holds another run, so it cannot be resumed; choose another --out, "
                f"take its own recipe (--recipe {folder.recipe}), or undo: " + "; ".join(differing)
            )
        changes = _environment_changes(folder, here)
    else:
        check_unused(folder.path)
        if runtime.is_main:
            write_json(folder.environment, here)
            record = {"recipe": recipe.to_dict(), "inputs": dict(inputs)}
            # last: it marks the folder
            write_json(folder.recipe, record | {"id": secrets.token_hex(8)})
    runtime.wait()
    # absent where a rank does not see the same folder, which `Run` reports
    folder.run_id = read_record(folder.recipe).get("id") if folder.recipe.exists() else None
    return changes


def check_unused(path: Path) -> None:
    """Refuse a folder without a run that holds files by the names of a run's."""
    names = [name for name in _WRITTEN if (path / name).exists()]
    if names:
        raise ConfigError(
            f"{path} holds {', '.join(names)} and no recipe.json of a run, so nothing there is "
            "replaced; choose another --out"
        )


def differences(
    record: Mapping[str, Any], recipe: Recipe, inputs: Mapping[str, str | None]
) -> list[str]:
    """One readable line for each thing in which a run's record of its recipe and inputs differs
    from these. Records of earlier releases are read by their old names."""
    try:
        before, known = type(recipe).from_dict(record["recipe"]), dict(record["inputs"])
    except (ConfigError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the recipe of the run cannot be read: {error}; choose another --out"
        ) from error
    lines = [
        f"{name}: {_short(known.get(name))} in the run, {_short(value)} now"
        for name, value in inputs.items()
        if known.get(name) != value
    ]
    return difference(before, recipe) + lines


def read_record(path: Path) -> dict[str, Any]:
    """A run's recipe.json: its recipe, inputs and id."""
    try:
        return dict(parse_json(read_bytes(path)))
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(
            f"{path} cannot be read as the recipe of a run: {error}; choose another --out"
        ) from error


def _environment_changes(folder: RunFolder, here: dict[str, Any]) -> list[str]:
    try:
        there = dict(parse_json(read_bytes(folder.environment)))
    except (ValueError, TypeError, OSError):
        return []
    return [
        f"{name} {there.get(name)} then, {here[name]} now"
        for name in _EXACT
        if there.get(name) != here[name]
    ]


def _short(value: object) -> str:
    """A fingerprint by its beginning; nobody compares 64 digits."""
    text = "none" if value is None else str(value)
    return text[:12] + "…" if len(text) == 64 and text.isalnum() else clip(text)


def _revision() -> str | None:
    """The commit of a source checkout; where its history is not there, what LITEBERT_REVISION says,
    or None."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return os.environ.get("LITEBERT_REVISION") or None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
