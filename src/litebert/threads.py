"""How many threads compute on a CPU: a request, the machine and its load in; a number and its
reason out. No torch: every engine sets the number its own way.

Threads that share a core wait for each other at the end of every matmul, and OpenMP's spin while
they wait. One thread too many therefore costs far more than one too few.
"""

import hashlib
import math
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from litebert.errors import ConfigError

_MAX_THREADS = 1024
_PROBE_SECONDS = 0.05
"""How long cores are tried out; shorter measures the start of threads."""
_ROUNDING = 0.25
"""A core that was free this much less than always still counts."""
_BLOCK = bytes(1 << 16)
"""Hashing one releases Python's lock and takes tens of microseconds."""


@dataclass(frozen=True)
class Threads:
    """A number of threads, and why."""

    count: int
    reason: str

    def __str__(self) -> str:
        return f"{self.count} thread{'s' if self.count > 1 else ''} ({self.reason})"


def choose_threads(
    requested: int | None = None, *, stored: int | None = None, limit: int | None = None
) -> Threads:
    """The number that was `requested`, else that of the environment variable OMP_NUM_THREADS, else
    the `stored` one (of a run that resumes) where there are as many cores, else the cores that are
    free now; the last two at most `limit`, what the process already keeps to."""
    if requested is not None:
        if type(requested) is not int or not 1 <= requested <= _MAX_THREADS:
            raise ConfigError(f"threads is a number from 1 to {_MAX_THREADS}; got {requested!r}")
        return Threads(requested, "as requested")
    if (explicit := _environment_threads()) is not None:
        return Threads(explicit, "OMP_NUM_THREADS")
    cores = num_cores()
    most = min(cores, limit or cores)
    if stored is not None and 1 <= stored <= most:
        return Threads(stored, "as the run began")
    if most == 1:
        return Threads(1, "1 core" if cores == 1 else f"{cores} cores, as set before")
    free = free_cores(most)
    count = max(1, min(most, math.floor(free + _ROUNDING)))
    return Threads(count, f"{free:.1f} of {cores} cores are free")


def num_cores(root: Path | str = "/") -> int:
    """Cores that this process may use: its affinity, each physical core once, at most what its
    control groups allow. `root` is where /proc and /sys are."""
    root = Path(root)
    if hasattr(os, "sched_getaffinity"):
        logical = os.sched_getaffinity(0)
    else:
        logical = set(range(os.cpu_count() or 1))
    # two hyperthreads of a core share its multipliers
    topology = root / "sys/devices/system/cpu"
    physical = {
        _read(topology / f"cpu{number}/topology/thread_siblings_list") or str(number)
        for number in logical
    }
    return max(1, min([len(physical), *map(math.ceil, _quotas(root))]))


def free_cores(threads: int, seconds: float = _PROBE_SECONDS) -> float:
    """How many cores `threads` busy threads get now, from their processor time."""
    barrier = threading.Barrier(threads)
    shares = [0.0] * threads

    def work(number: int) -> None:
        barrier.wait()
        began, used = time.perf_counter(), time.thread_time()
        while (elapsed := time.perf_counter() - began) < seconds:
            hashlib.sha256(_BLOCK).digest()
        shares[number] = (time.thread_time() - used) / elapsed

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return min(sum(shares), float(threads))


def worker_environment() -> dict[str, str]:
    """For a Python process that is one core's work: this process's modules, and one thread for each
    of numpy's libraries, which would start one for each core and hold memory for each."""
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return os.environ | single | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _environment_threads() -> int | None:
    """OMP_NUM_THREADS, where it is a number that OpenMP takes."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(first) if first.isdecimal() and 1 <= int(first) <= _MAX_THREADS else None


def _quotas(root: Path) -> list[float]:
    """In cores, the quotas of this process's control group and of those above it (cgroup 2, then
    1)."""
    quotas = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, group = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / ("sys/fs/cgroup/cpu" if controllers else "sys/fs/cgroup")
        folder = base / group.lstrip("/")
        for each in (folder, *folder.parents):
            if not each.is_relative_to(base):
                break
            if controllers:
                parts = [_read(each / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
            else:
                parts = _read(each / "cpu.max").split()
            if len(parts) == 2 and all(number.isdecimal() and int(number) for number in parts):
                quotas.append(int(parts[0]) / int(parts[1]))
    return quotas


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
