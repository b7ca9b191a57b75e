"""TensorBoard events, for who watches several runs at once: records in; an event file out.
metrics.jsonl stays the truth.
 Needs the extra `tensorboard`, imported when the sink is made, so that a run does not begin without
it. A step is counted here as in the report, by the steps done after it, so that training and
held-out points lie over one another.
"""

import atexit
from pathlib import Path
from typing import TYPE_CHECKING

from litebert.errors import MissingExtraError
from litebert.train.log import Record, Sink

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FLUSH_SECONDS = 30
NOT_DRAWN = frozenset({"kind", "step", "event", "message", "examples"})
NOT_FINITE = ("nan", "inf", "-inf")


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

        An event goes back nowhere: it is told after its step. What stands at `done` itself only
        that step writes again.
        """
        if self._writer is not None and done < self._last and kind != "event":
            self._writer.close()
            self._writer = None
        if self._writer is None:
            void = done if kind == "step" else done + 1
            self._writer = self._make(self._folder, purge_step=void, flush_secs=FLUSH_SECONDS)
        self._last = max(done, self._last) if kind == "event" else done
        return self._writer


def tensorboard_sinks(run: Path | str) -> tuple[Sink, ...]:
    """Events in the folder tensorboard/ of a run."""
    return (TensorBoardSink(Path(run) / "tensorboard"),)


def _number(value: object) -> float | None:
    """A number, also one that is not finite and was written as its name."""
    named = isinstance(value, str) and value in NOT_FINITE
    counted = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return float(value) if named or counted else None  # type: ignore[arg-type]
    except OverflowError:  # a whole number beyond all floats
        return None
