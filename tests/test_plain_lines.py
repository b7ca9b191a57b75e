"""Plain command lines are read without tyro, and as tyro reads them; all others are tyro's."""

import importlib
import inspect
from functools import wraps
from typing import Any

import pytest

from litebert import cli
from litebert.commands.flags import call
from litebert.commands.marks import read_plain

PLAIN = {
    "classify": [
        "film",
        "film dull",
        "film --json",
        "--json film",
        "--model m --engine onnx --threads 2 film dull",
        "film --exit confidence --threshold 0.95",
        "film --threshold 4 --device cpu --unverified",
    ],
    "fill": ["a[MASK] --top 3", "a[MASK]"],
    "embed": ["a b --overwrite", "a --pooling cls --dimensions 8 --json"],
    "pair": ["a b", "a b --model m"],
    "regress": ["a b"],
    "choose": ["a b --context c --question d"],
    "answer": ["q --context c"],
    "tag": ["a --json"],
}
LEFT_TO_TYRO = {
    "classify": [
        "",
        "-",
        "--help",
        "film --jsn",
        "film --model",
        "film --model=m",
        "film --json dull",
        "film --json --json",
        "film --json True",
        "film --threads two",
        "film --threads -1",
        "film --threshold nan",
        "film --engine tensorflow",
        "film --model --json",
    ],
    "embed": ["a --normalize", "a --no-normalize", "a --out v.npy"],
    "pair": ["a", "a b c"],
    "regress": ["a"],
    "answer": ["q"],
    "info": ["tiny", "--name tiny"],
    "export": ["--format onnx", "--runtime onnx"],
}


def command_of(name: str) -> Any:
    module, function = cli.COMMANDS[name][0].split(":")
    return getattr(importlib.import_module(f"litebert.commands.{module}"), function)


def as_read_by_tyro(name: str, args: list[str]) -> tuple[list[Any], dict[str, Any]]:
    command, calls = command_of(name), []

    @wraps(command)
    def record(*positional: Any, **named: Any) -> None:
        calls.append((list(positional), named))

    record.__signature__ = inspect.signature(command)  # type: ignore[attr-defined]
    call(record, args, prog=name)
    return calls[0]


@pytest.mark.parametrize("name", PLAIN)
def test_plain_lines_mean_what_tyro_says(name: str) -> None:
    for line in PLAIN[name]:
        args = line.split()
        assert read_plain(command_of(name), args) == as_read_by_tyro(name, args), line


@pytest.mark.parametrize("name", LEFT_TO_TYRO)
def test_anything_else_is_left_to_tyro(name: str) -> None:
    for line in LEFT_TO_TYRO[name]:
        assert read_plain(command_of(name), line.split()) is None, line


def test_every_command_reads_no_argument_alike() -> None:
    for name in cli.COMMANDS:
        plain = read_plain(command_of(name), [])
        if plain is not None:
            assert plain == as_read_by_tyro(name, []), name
