"""A run folder: recipe, environment, metrics, snapshots, best, final, status. A path in; a folder
held by one run out."""

import contextlib
import importlib.metadata
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

from litebert import __version__
from litebert.errors import ConfigError
from litebert.files import Lock, remove_leftovers, write_json


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
        self._lock: Lock | None = None
        self._known: dict[str, Any] = {}

    def hold(self) -> None:
        """Make the folder and take its lock; ConfigError where another run has it."""
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


def _revision() -> str | None:
    """The commit of a source checkout; None for an installed package."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
