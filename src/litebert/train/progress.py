"""What a person sees of a run: records in; a progress bar on a terminal, a line every few seconds
elsewhere, or TensorBoard events, out.

The time left counts from the speed of the last minutes, so it is right after resuming too.
TensorBoard needs the extra `tensorboard`; a step is counted there as in the report, by the steps
done after it, so that training and held-out points lie over one another.
"""

import atexit
import sys
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from litebert.errors import MissingExtraError
from litebert.terminal import escape
from litebert.train.log import Record

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

EVERY_SECONDS = 5.0
HELD_OUT = ("masked_loss", "masked_accuracy", "sop_accuracy", "nsp_accuracy", "perplexity")
"""What is shown of an evaluation in pretraining."""
FLUSH_SECONDS = 30
NOT_DRAWN = frozenset({"kind", "step", "event", "message", "examples"})
NOT_FINITE = ("nan", "inf", "-inf")


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
                escape(self._evaluation(record)), highlight=False, markup=False, soft_wrap=True
            )
        elif record["kind"] == "event":
            self.console.print(
                escape(f"step {record['step']:,}: {record['message']}"),
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
        speed = (last_tokens - first_tokens) / (end - start)
        return f"  {_count(speed)} tokens/s  {duration(left)} left"

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


class TensorBoardSink:
    """A sink of records. Closing it is optional: what is unwritten is written when the process
    ends."""

    def __init__(self, folder: Path | str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtraError(
                "tensorboard", extra="tensorboard", purpose="writing TensorBoard events"
            ) from error
        self._make = SummaryWriter
        self._folder = str(folder)
        self._writer: SummaryWriter | None = None
        self._last = -1
        atexit.register(self.close)

    def __call__(self, record: Record) -> None:
        done = record["step"] + (record["kind"] == "step")
        writer = self._at(done, record["kind"])
        if record["kind"] == "event":
            writer.add_text(str(record.get("event", "event")), str(record.get("message", "")), done)
        group = {"step": "training", "evaluation": "held_out"}.get(record["kind"])
        if group is None:
            return
        for name, value in record.items():
            if name not in NOT_DRAWN and (number := _number(value)) is not None:
                writer.add_scalar(f"{group}/{name}", number, done)
        if group == "held_out":
            writer.flush()

    def close(self) -> None:
        """Write what is left and end the file; a later record begins a new one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        atexit.unregister(self.close)

    def _at(self, done: int, kind: str) -> "SummaryWriter":
        """The writer for a record after `done` steps. Where a run resumes or goes back, what stood
        after it is void.

        An event removes nothing: it is written after its step. Only that step itself writes again
        what is at `done`.
        """
        if self._writer is not None and done < self._last and kind != "event":
            self._writer.close()
            self._writer = None
        if self._writer is None:
            void = done if kind == "step" else done + 1
            self._writer = self._make(self._folder, purge_step=void, flush_secs=FLUSH_SECONDS)
        self._last = max(done, self._last) if kind == "event" else done
        return self._writer


def _number(value: object) -> float | None:
    """A number, also one that is not finite and was written as its name."""
    named = isinstance(value, str) and value in NOT_FINITE
    counted = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return float(value) if named or counted else None  # type: ignore[arg-type]
    except OverflowError:  # a whole number beyond all floats
        return None


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
