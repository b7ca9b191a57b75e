"""SIGTERM and Ctrl-C as a wish that the loop looks up, not as an exception in the middle of
something."""

import signal
from types import FrameType, TracebackType
from typing import Any


class StopSignal:
    """While entered, the first SIGTERM or SIGINT sets `wanted`; a second SIGINT raises
    KeyboardInterrupt at once."""

    def __init__(self) -> None:
        self.wanted = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignal":
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.wanted and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.wanted = True
