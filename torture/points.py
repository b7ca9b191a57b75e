"""End a command at each of its fsyncs, renames and removals as SIGKILL would, give it again, and
compare the folder with that of an undisturbed one.

    python -m torture.points --out torture.json

A process is forked for each moment, so that imports are paid for once. Where a command has many
moments, a random sample of them is taken.
"""

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.common.results import add_out, begin, publish
from litebert import cli
from litebert.files import sha256
from litebert.testing import tiny_corpus, tiny_task, tiny_tokenizer
from tests.helpers.models import save_model

_CALLS = ("fsync", "rename", "replace", "unlink", "rmdir")
_KILLED = 137
_EQUAL = (".npy", ".safetensors", ".model", ".onnx")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--most", type=int, default=1000, help="moments of a command")
    parser.add_argument("--only", nargs="+", help="these commands")
    parser.add_argument("--seed", type=int, default=0)
    add_out(parser)
    options = parser.parse_args()
    begin(options.out)
    draw = random.Random(options.seed)
    moments, failures = {}, []
    with tempfile.TemporaryDirectory(prefix="litebert-points-") as name:
        inputs = Path(name) / "inputs"
        inputs.mkdir()
        for command, args in _commands(inputs).items():
            if options.only and command not in options.only:
                continue
            folder = Path(name) / command.replace(" ", "-")
            undisturbed = folder / "undisturbed"
            undisturbed.mkdir(parents=True)
            count = _count(args(undisturbed))
            numbers = draw.sample(range(count), min(count, options.most))
            moments[command] = len(numbers)
            for number in numbers:
                out = folder / str(number)
                out.mkdir()
                codes = [_run(args(out), end_at=number), _run(args(out))]
                different = sorted({*_contents(out).items()} ^ {*_contents(undisturbed).items()})
                # 2: the work was done, and what is there is not replaced unasked
                if codes[0] not in (_KILLED, 0) or codes[1] not in (0, 2) or different:
                    failures.append([command, number, codes, [name for name, _ in different]])
    publish({"moments": moments, "failures": failures}, options.out)
    sys.exit(bool(failures))


def _commands(folder: Path) -> dict[str, Callable[[Path], list[str]]]:
    """Each of a second or less, with its whole output in the folder that it is called with."""
    corpus, tokenizer = tiny_corpus(folder / "corpus.txt"), tiny_tokenizer(folder / "tokenizer")
    model = save_model(folder / "model", "masked", "classify")
    table = tiny_task(folder, "classify")
    rows = folder / "rows.txt"
    rows.write_text("the sailor sees a boat\n" * 20)
    return {
        "tokenizer train": lambda out: _words(
            "tokenizer train", corpus, vocab_size=90, language="en", out=out, overwrite=None
        ),
        "data build": lambda out: _words(
            "data build", corpus, tokenizer=tokenizer, shard_tokens=2000, out=out
        ),
        "convert": lambda out: _words("convert", model, out / "model", weights="int8"),
        "predict": lambda out: _words(
            "predict", rows, model=model, verb="classify", device="cpu", out=out / "out.jsonl"
        ),
        "embed": lambda out: _words(
            "embed", "a text", model=model, device="cpu", overwrite=None, out=out / "out.npy"
        ),
        "export": lambda out: _words("export", model=model, out=out / "model"),
        "finetune": lambda out: _words(
            "finetune classify", model=model, data=table, out=out, steps=2, device="cpu"
        ),
    }


def _words(command: str, *inputs: Path | str, **flags: Any) -> list[str]:
    words = [*command.split(), *map(str, inputs)]
    for name, value in flags.items():
        words += [f"--{name.replace('_', '-')}"] + ([] if value is None else [str(value)])
    return words


def _run(args: list[str], *, end_at: int | None = None, count: int | None = None) -> int:
    """The exit code of a command in a forked process, which ends before its call `end_at` of those
    that change a disk; `count` is a descriptor to write their number to."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    code, calls = 1, 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **options: Any) -> Any:
            nonlocal calls
            if calls == end_at:
                os._exit(_KILLED)
            calls += 1
            return call(*args, **options)

        return counting

    try:
        for name in _CALLS:
            setattr(os, name, counted(getattr(os, name)))
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        code = cli.run(args)
        if count is not None:
            os.write(count, str(calls).encode())
    finally:
        os._exit(code)


def _count(args: list[str]) -> int:
    """Run the whole command; how many moments it has."""
    reader, writer = os.pipe()
    code = _run(args, count=writer)
    assert code == 0, (args, code)
    os.close(writer)
    with os.fdopen(reader) as file:
        return int(file.read())


def _contents(folder: Path) -> dict[str, str]:
    """The files of a folder, with a sum where they hold no times."""
    return {
        path.relative_to(folder).as_posix(): sha256(path) if path.suffix in _EQUAL else ""
        for path in folder.rglob("*")
        if path.is_file()
    }


if __name__ == "__main__":
    main()
