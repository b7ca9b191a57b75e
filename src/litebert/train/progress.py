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
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from litebert.errors import MissingExtraError
from litebert.terminal import escape
from litebert.train.log import Record

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_EVERY_SECONDS = 5.0
_HELD_OUT = (
    "masked_loss",
    "masked_accuracy",
    "detection_accuracy",
    "replaced_fraction",
    "sop_accuracy",
    "nsp_accuracy",
    "perplexity",
)
"""What is shown of an evaluation in pretraining."""
_FLUSH_SECONDS = 30
_MEASURED_SECONDS = 10.0
"""Time in steps after which the rest of a run is estimated."""
_LONG_SECONDS = 300.0
"""Time left from which the estimate is printed."""
_NOT_DRAWN = frozenset({"kind", "step", "event", "message", "examples"})
_NOT_FINITE = ("nan", "inf", "-inf")


class ProgressSink:
    """A sink of records. Use it as a context manager, so that the bar is taken down."""

    def __init__(self, steps: int, *, stream: TextIO | None = None, silent: bool = False) -> None:
        self.steps, self.silent = steps, silent
        self.console = Console(file=stream or sys.stderr)
        self.recent: deque[tuple[float, int, int]] = deque(maxlen=200)
        self.next_line = 0.0
        self.last_step: Record = {}
        self.bar: Progress | None = None
        if self.console.is_terminal and not silent:
            self.bar = Progress(TextColumn("{task.description}"), BarColumn(), console=self.console)
            self.task = self.bar.add_task("starting", total=steps)

    def __enter__(self) -> "ProgressSink":
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *reason: object) -> None:
        if self.bar:
            self.bar.stop()

    def lengthen(self, steps: int) -> None:
        self.steps = steps
        if self.bar:
            self.bar.update(self.task, total=steps)

    def __call__(self, record: Record) -> None:
        if self.silent:
            return
        if record["kind"] == "step":
            self._step(record)
        elif record["kind"] == "evaluation":
            self._print(self._evaluation(record))
        elif record["kind"] == "event":
            self._print(f"step {record['step']:,}: {record['message']}")
            if record["event"] in ("resumed", "rollback"):
                self.recent.clear()  # speed is measured from here on
                if self.bar:
                    self.bar.update(self.task, completed=record["step"])

    def _step(self, record: Record) -> None:
        if stage := stage_change(self.last_step, record):
            self.recent.clear()  # its steps take another time
            self._print(f"step {record['step']:,}: {stage}")
        self.last_step = record
        now = time.monotonic()
        self.recent.append((now, record["step"], record["tokens"]))
        loss = record["loss"] if isinstance(record["loss"], str) else f"{record['loss']:.3f}"
        text = f"step {record['step'] + 1:,}/{self.steps:,}  loss {loss}" + self._speed()
        if self.bar:
            self.bar.update(self.task, completed=record["step"] + 1, description=text)
        elif now >= self.next_line or record["step"] + 1 == self.steps:
            self.next_line = now + _EVERY_SECONDS
            self._print(text)

    def _print(self, text: str) -> None:
        self.console.print(escape(text), highlight=False, markup=False, soft_wrap=True)

    def _speed(self) -> str:
        start, first_step, first_tokens = self.recent[0]
        end, last_step, last_tokens = self.recent[-1]
        if end <= start:
            return ""
        left = (self.steps - last_step - 1) * (end - start) / max(last_step - first_step, 1)
        speed = (last_tokens - first_tokens) / (end - start)
        return f"  {_count(speed)} tokens/s  {duration(left)} left"

    def _evaluation(self, record: Record) -> str:
        where, shown = "held out", [name for name in _HELD_OUT if name in record]
        if "score" in record:  # of a task: all of them, the first being the one that counts
            others = ("score", "tokens", "seconds")
            where, shown = "dev", [name for name in record if name not in others]
        parts = [
            f"{name.replace('_', ' ')} {record[name]:.3f}"
            for name in shown
            if isinstance(record[name], float)
        ]
        return f"step {record['step']:,}: {where}: " + ", ".join(parts)


def stage_change(before: Record, record: Record) -> str:
    """What a stage of pretraining changes between two steps, in words; "" where none begins."""
    if "depth" not in before or "depth" not in record:
        return ""  # the first step, or fine-tuning, whose batches are of any length
    changes = [
        f"{words(record[name])} instead of {_value(before[name])}"
        for name, words in _STAGED.items()
        if name in before and record[name] != before[name]
    ]
    if not changes:
        return ""
    is_comparable = all(
        record[name] == before.get(name) for name in _STAGED if name != "batch_size"
    )
    note = "" if is_comparable else "; the loss is not comparable with that before"
    return f"a stage begins: {', '.join(changes)}{note}"


def _value(number: float) -> str:
    return f"{number:.0%}" if isinstance(number, float) else f"{number:,}"


_STAGED: dict[str, Callable[[float], str]] = {
    "sequence_length": lambda value: f"sequences of {_value(value)} tokens",
    "batch_size": lambda value: f"batches of {_value(value)}",
    "depth": lambda value: f"{_value(value)} layers",
    "mask_fraction": lambda value: f"{_value(value)} of the tokens masked",
}
"""What a stage may change, in words."""


class ExpectedTime:
    """Measures the first steps of a process, and once tells how long the rest will take, where that
    is long."""

    def __init__(
        self,
        work: Callable[[Record], float],
        work_left: Callable[[int], float],
        tell: Callable[[int, str], None],
    ) -> None:
        """`work` is the relative cost of a step by its metrics, `work_left` that of all steps from
        one on; `tell` receives the step and the message."""
        self._work, self._work_left, self._tell = work, work_left, tell
        self._start: float | None = None
        """Seconds of the run after this process's first step, which also warms up."""
        self._done = 0.0
        self._is_told = False

    def __call__(self, step: int, metrics: Record) -> None:
        """`metrics` are those of a step that was just done."""
        if self._is_told:
            return
        if self._start is None:
            self._start = metrics["seconds"]
            return
        self._done += self._work(metrics)
        seconds = metrics["seconds"] - self._start
        if seconds < _MEASURED_SECONDS or not self._done:
            return
        self._is_told = True
        left = self._work_left(step + 1) * seconds / self._done
        if left >= _LONG_SECONDS:
            self._tell(
                step + 1,
                f"about {duration(left)} left on this machine, evaluations not counted, at the "
                "speed of the first steps",
            )


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
            if name not in _NOT_DRAWN and (number := _number(value)) is not None:
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
            self._writer = self._make(self._folder, purge_step=void, flush_secs=_FLUSH_SECONDS)
        self._last = max(done, self._last) if kind == "event" else done
        return self._writer


def _number(value: object) -> float | None:
    """A number, also one that is not finite and was written as its name."""
    named = isinstance(value, str) and value in _NOT_FINITE
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
    if number >= 1e6:
        return f"{number / 1e6:.2f} M"
    return f"{number / 1e3:.1f} k" if number >= 1e3 else f"{number:.0f}"
