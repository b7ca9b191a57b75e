"""What strangers write reaches a terminal escaped, and a file or pipe as it is."""

import io
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from litebert import cli
from litebert.commands.score_tables import print_scores
from litebert.data.batch import Batch
from litebert.data.show import describe
from litebert.demo.show import Show, filled_sentence
from litebert.tasks.scores.score import score
from litebert.terminal import escape, write_line
from litebert.testing import tiny_shards
from tests.helpers.predictions import made

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


def test_tables_of_scores_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    task, examples, predictions = made("classify", 10)
    scores = score(task, examples, predictions)
    print_scores(replace(task, name=HOSTILE), {HOSTILE: scores}, {})
    assert "\x1b" not in capsys.readouterr().out
    batch = Batch(
        token_ids=np.array([[2, 5, 5, 3]], np.int32),
        segment_ids=np.array([[0, 0, 0, 0]], np.uint8),
        mask=np.ones((1, 4), bool),
        masked_positions=np.array([1]),
        masked_labels=np.array([6], np.int32),
        order_labels=np.array([0], np.int32),
        indices=np.array([0]),
    )
    tokens = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁a\x1b[2J", "\x9bb"]
    [example] = describe(batch, tokens, mask_id=4, order="none")
    assert "⟦\\u009bb→a\\u001b[2J⟧ a\\u001b[2J" in example.render().plain


def test_texts_of_the_demo() -> None:
    terminal = Terminal()
    show = Show(Console(file=terminal, force_terminal=True, color_system=None))
    show.say(HOSTILE)
    show.say(filled_sentence(f"{HOSTILE} [MASK] {HOSTILE}", HOSTILE, [(HOSTILE, 0.5)]))
    shown = terminal.getvalue()
    assert shown.count(escape(HOSTILE)) == 5
    assert set(shown).isdisjoint("\x1b\x07\x9b\r\x7f\u202e")


def test_names_of_folders_that_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shards = tiny_shards(tmp_path)
    folder = tmp_path / "\x1b[2J[red]shards"
    shards.rename(folder)
    assert cli.run(["data", "show", str(folder)]) == 0
    build = ["data", "build", str(tmp_path / "corpus.txt"), "--split", "lines", "--tokenizer"]
    assert cli.run([*build, str(tmp_path / "tokenizer"), "--out", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "".join(shown.split()).count("\\u001b[2J[red]shards") == 2
