"""Where a study's commands run: on this machine, or as actors of a Ray cluster. A command in; a
process that can be polled and asked to end out.

On a cluster the study's folder, shards and tasks have to be on a file system that all machines
share.
"""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from litebert.cluster import connected_ray

RunnerName = Literal["processes", "ray"]


class Process(Protocol):
    """A command under way."""

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""

    def terminate(self) -> None:
        """Ask it to save and end."""

    def kill(self) -> None:
        """End it now."""


Launch = Callable[[Sequence[str], Path, Path], Process]
"""(Python module and its arguments, file for its output, file that its messages are added to) → a
process."""


class _LocalProcess:
    """A process of its own group: Ctrl-C at the terminal is for the study alone."""

    def __init__(self, words: Sequence[str], output: Path, log: Path) -> None:
        command = [sys.executable, "-m", *words]
        with output.open("wb") as out, log.open("ab") as messages:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=messages, process_group=0
            )

    def poll(self) -> int | None:
        return self._process.poll()

    def terminate(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def open_runner(name: RunnerName, *, jobs: int, device: str) -> Iterator[Launch]:
    """What starts a command; `jobs` of them run at a time."""
    if name == "processes":
        yield _LocalProcess
        return
    with connected_ray(num_cpus=jobs) as ray:
        gpus = 0.0 if device == "cpu" else float(ray.cluster_resources().get("GPU", 0))
        share = min(gpus / jobs, 1.0)
        actor = ray.remote(num_cpus=1, num_gpus=share)(_LocalProcess)
        yield lambda words, output, log: _RayProcess(ray, actor, words, output, log)


class _RayProcess:
    """A process that an actor holds, on whichever machine has room for it."""

    def __init__(self, ray: Any, actor: Any, words: Sequence[str], output: Path, log: Path) -> None:
        self._ray, self._log = ray, log
        self._actor = actor.remote(list(words), output.resolve(), log.resolve())
        self._question: Any = None
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is not None:
            return self._code
        if self._question is None:
            self._question = self._actor.poll.remote()
        ready, _ = self._ray.wait([self._question], timeout=0)
        if ready:
            try:
                self._code = self._ray.get(self._question)
            except self._ray.exceptions.RayError as error:
                self._fail(str(error).splitlines()[0])
            self._question = None
            if self._code is not None:
                self._ray.kill(self._actor)
        return self._code

    def terminate(self) -> None:
        if self._code is None:
            self._actor.terminate.remote()

    def kill(self) -> None:
        if self._code is None:
            self._actor.kill.remote()

    def _fail(self, reason: str) -> None:
        with self._log.open("a", encoding="utf-8") as log:
            log.write(f"a Ray worker failed: {reason}\n")
        self._code = 1
