"""Text for a terminal: control characters in, their escapes out.

Labels, texts and file names are anyone's. A control sequence among them would move the cursor, set
the window's title or hide what follows.
"""

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

_BIDIRECTIONAL = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {
    code: f"\\u{code:04x}"  # as JSON writes them, which stays JSON
    for code in (*range(0x20), *range(0x7F, 0xA0), *_BIDIRECTIONAL)
    if chr(code) not in "\n\t"
}


def escape(text: str) -> str:
    """The text with control characters escaped, line feeds and tabs aside."""
    return text.translate(_ESCAPES)


def write_line(text: str, *, file: TextIO | None = None) -> None:
    """Print a text, by default to standard output; escaped where that is a terminal."""
    stream = sys.stdout if file is None else file
    if not text.isascii():  # names of files may hold bytes that are no text
        text = text.encode(errors="backslashreplace").decode()
    print(escape(text) if stream.isatty() else text, file=stream)


def write_stderr(text: str) -> None:
    write_line(text, file=sys.stderr)


class Progress:
    """A line on stderr every few seconds: of the seconds so far, and of what is reported."""

    def __init__(self, line: Callable[[float, Any], str], *, every_seconds: float = 5.0) -> None:
        self._line, self._every = line, every_seconds
        self._began = self._printed = time.monotonic()

    def __call__(self, done: Any) -> None:
        now = time.monotonic()
        if now - self._printed >= self._every:
            self._printed = now
            write_stderr(self._line(now - self._began, done))
