"""What strangers write reaches a terminal escaped, and a file or pipe as it is."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from litebert.terminal import escape, write_line

HOSTILE = "good\x1b]0;title\x07 \x9b31m\r\x7f\u202e"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_control_characters_are_escaped_on_a_terminal_only() -> None:
    assert escape("Ça va\t漢字\n") == "Ça va\t漢字\n"
    assert escape(HOSTILE) == r"good\u001b]0;title\u0007 \u009b31m\u000d\u007f\u202e"
    terminal, pipe = Terminal(), io.StringIO()
    write_line(HOSTILE, file=terminal)
    write_line(HOSTILE, file=pipe)
    assert terminal.getvalue() == escape(HOSTILE) + "\n"
    assert pipe.getvalue() == HOSTILE + "\n"


@pytest.mark.parametrize("command", [["data", "show"], ["report"], ["classify", "x", "--model"]])
def test_names_of_files_in_messages(command: list[str], tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "litebert.cli", *command, str(tmp_path / "\x1b[2Jname\udcff")],
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
    )
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.returncode in (1, 2, 3), shown
    assert "\x1b" not in shown
    assert "[2Jname" in shown
    assert "Traceback" not in shown
