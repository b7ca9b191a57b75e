"""Contenders that take turns, by the process's CPU time and by the clock."""

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class Times(Generic[T]):
    """Seconds of each round, and what the last one returned."""

    cpu: list[float] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    last: T | None = None

    @property
    def cpu_seconds(self) -> float:
        return statistics.median(self.cpu)

    @property
    def seconds(self) -> float:
        return statistics.median(self.clock)


def in_turns(
    contenders: Mapping[str, Callable[[], T]],
    rounds: int,
    *,
    calls: int = 1,
    pause: float = 0.0,
    verbose: bool = False,
) -> dict[str, Times[T]]:
    """Each contender once a round, round after round, so that a busy machine disturbs all alike.

    A turn is `calls` calls, each with a time of its own. Before it come `pause` seconds: threads of
    the contender before may wait for more work in a busy loop, and would disturb this one alone.
    """
    times: dict[str, Times[T]] = {name: Times() for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            time.sleep(pause)
            for _ in range(calls):
                cpu, clock = time.process_time(), time.perf_counter()
                times[name].last = call()
                times[name].cpu.append(time.process_time() - cpu)
                times[name].clock.append(time.perf_counter() - clock)
            if verbose:
                print(f"{name} {times[name].clock[-1]:.1f} s", file=sys.stderr, flush=True)
    return times


def ratios(slow: Times[T], fast: Times[T]) -> list[float]:
    """CPU seconds of `slow` by those of `fast`, round by round."""
    return [a / b for a, b in zip(slow.cpu, fast.cpu, strict=True)]
