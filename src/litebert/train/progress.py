"""What a person sees of a run: records in; a bar on a terminal, or a line every few seconds
elsewhere, out.

The time left counts from the speed of the last minutes, so it is right after resuming too.
"""

import sys
import time
from collections import deque
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from litebert.train.log import Record

EVERY_SECONDS = 5.0
HELD_OUT = ("masked_loss", "masked_accuracy", "sop_accuracy", "nsp_accuracy", "perplexity")
"""What is shown of an evaluation in pretraining."""


class ProgressSink:
    """A sink of records. Use it as a context manager, so that the bar is taken down."""

    def __init__(self, steps: int, *, stream: TextIO | None = None, silent: bool = False) -> None:
        self.steps, self.silent = steps, silent
        self.console = Console(file=stream or sys.stderr)
        self.recent: deque[tuple[float, int, int]] = deque(maxlen=200)
        self.next_line = 0.0
        self.bar: Progress | None = None
        if self.console.is_terminal and not silent:
            self.bar = Progress(TextColumn("{task.description}"), BarColumn(), console=self.console)
            self.task = self.bar.add_task("starting", total=steps)

    def __enter__(self) -> "ProgressSink":
        if self.bar:
            self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar:
            self.bar.stop()

    def lengthen(self, steps: int) -> None:
        """The run has another number of steps now."""
        self.steps = steps
        if self.bar:
            self.bar.update(self.task, total=steps)

    def __call__(self, record: Record) -> None:
        if self.silent:
            return
        if record["kind"] == "step":
            self._step(record)
        elif record["kind"] == "evaluation":
            self.console.print(
                self._evaluation(record), highlight=False, markup=False, soft_wrap=True
            )
        elif record["kind"] == "event":
            self.console.print(
                f"step {record['step']:,}: {record['message']}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
            if record["event"] in ("resumed", "rollback"):
                self.recent.clear()  # speed is measured from here on
                if self.bar:
                    self.bar.update(self.task, completed=record["step"])

    def _step(self, record: Record) -> None:
        now = time.monotonic()
        self.recent.append((now, record["step"], record["tokens"]))
        loss = record["loss"] if isinstance(record["loss"], str) else f"{record['loss']:.3f}"
        text = f"step {record['step'] + 1:,}/{self.steps:,}  loss {loss}" + self._speed()
        if self.bar:
            self.bar.update(self.task, completed=record["step"] + 1, description=text)
        elif now >= self.next_line or record["step"] + 1 == self.steps:
            self.next_line = now + EVERY_SECONDS
            self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _speed(self) -> str:
        (start, first_step, first_tokens), (end, last_step, last_tokens) = (
            self.recent[0],
            self.recent[-1],
        )
        if end <= start:
            return ""
        left = (self.steps - last_step - 1) * (end - start) / max(last_step - first_step, 1)
        return f"  {_count((last_tokens - first_tokens) / (end - start))} tokens/s  {duration(left)} left"

    def _evaluation(self, record: Record) -> str:
        where, shown = "held out", [name for name in HELD_OUT if name in record]
        if "score" in record:  # of a task: all of them, the first being the one that counts
            where, shown = (
                "dev",
                [
                    name
                    for name in record
                    if name not in ("kind", "step", "score", "tokens", "seconds")
                ],
            )
        parts = [
            f"{name.replace('_', ' ')} {record[name]:.3f}"
            for name in shown
            if isinstance(record[name], float)
        ]
        return f"step {record['step']:,}: {where}: " + ", ".join(parts)


def duration(seconds: float) -> str:
    """3725 as 1 h 02 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60:02} min"


def _count(number: float) -> str:
    return (
        f"{number / 1e6:.2f} M"
        if number >= 1e6
        else f"{number / 1e3:.1f} k"
        if number >= 1e3
        else f"{number:.0f}"
    )
