"""Send SIGTERM or SIGINT to litebert's commands at random moments; the exit code must be 75, or 0
where the work was done, with no traceback.

    python -m torture.signals --signals 300 --out torture.json

A moment is counted from when the command catches signals, a few hundredths of a second after exec:
before that the interpreter itself starts. Half of the moments lie in a command's imports.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import litebert
from bench.common.results import add_out, begin, publish
from litebert.testing import tiny_shards, tiny_task, tiny_tokenizer
from tests.helpers.models import save_model

_CODES = (0, 75)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--signals", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    add_out(parser)
    options = parser.parse_args()
    begin(options.out)
    draw = random.Random(options.seed)
    codes: dict[str, Counter[int]] = {}
    failures = []
    with tempfile.TemporaryDirectory(prefix="litebert-signals-") as name:
        commands = _commands(Path(name))
        for number in range(options.signals):
            command = commands[number % len(commands)]
            sent = draw.choice((signal.SIGTERM, signal.SIGINT))
            after = draw.uniform(0, draw.choice((0.6, 4.0)))
            code, errors = _interrupt([part.format(number) for part in command], sent, after)
            codes.setdefault(command[0], Counter())[code] += 1
            if code not in _CODES or "Traceback" in errors or "Exception ignored" in errors:
                failures.append([command[0], sent.name, round(after, 3), code, errors[-2000:]])
    figures = {
        "signals": options.signals,
        "exit_codes": {command: dict(counter) for command, counter in codes.items()},
        "failures": failures,
    }
    publish(figures, options.out)
    sys.exit(bool(failures))


def _commands(folder: Path) -> list[list[str]]:
    """One of each kind; {} stands for the number of the trial."""
    shards = str(tiny_shards(folder))
    corpus, tokenizer = str(folder / "corpus.txt"), str(tiny_tokenizer(folder / "tokenizer"))
    large = folder / "large.txt"
    large.write_text("\n".join(f"{i} {i * 7919 % 10007:x} a b" for i in range(200_000)))
    table = str(tiny_task(folder, "classify"))
    model = [
        "--preset",
        "tiny",
        "--sequence-length",
        "64",
        "--heldout-fraction",
        "0.1",
        "--steps",
        "200",
        "--save-every",
        "50",
        "--device",
        "cpu",
    ]
    train = ["--vocab-size", "2000", "--out", str(folder / "vocabulary-{}")]
    tuned = str(folder / "tuned")
    settings = {"device": "cpu", "progress": False, "steps": 2, "retries": 0}
    base = str(save_model(folder / "model", "masked"))
    litebert.finetune("classify", model=base, data=table, out=tuned, **settings)
    pairs = folder / "pairs.csv"
    pairs.write_text("anchor,positive\n" + "".join(f"a {i},b {i}\n" for i in range(200)))
    (folder / "speeches").mkdir()
    for year in range(1800, 1960, 4):
        text = "\n\n".join(f"In the year {year} paragraph {i} was short." * 5 for i in range(50))
        (folder / "speeches" / f"{year}-speaker.txt").write_text(text)
    model_flags = ["--model", base, "--device", "cpu", "--steps", "50", "--max-length", "32"]
    return [
        ["tokenizer", "train", str(large), *train],
        ["pretrain", "--data", shards, *model, "--out", str(folder / "run-{}")],
        ["data", "build", corpus, "--tokenizer", tokenizer, "--out", str(folder / "shards-{}")],
        ["info", "tiny", "--seq", "64"],
        ["classify", "a good day", "--model", "sentiment"],
        ["predict", table, "--model", "sentiment", "--out", str(folder / "predictions-{}.jsonl")],
        ["doctor"],
        ["models"],
        ["data", "show", shards],
        ["serve", "--model", "sentiment", "--port", "0"],
        ["finetune", "classify", "--data", table, *model_flags, "--out", str(folder / "tuned-{}")],
        [
            "finetune",
            "embed",
            "--data",
            str(pairs),
            *model_flags,
            "--out",
            str(folder / "embed-{}"),
        ],
        ["evaluate", "classify", "--model", tuned, "--data", table],
        ["evaluate", "masked", "--model", base, "--data", corpus],
        ["ensemble", "classify", "--models", tuned, f"{tuned}/final", "--data", table],
        ["fill", "a good [MASK]", "--device", "cpu"],
        ["embed", "a good day", "--out", str(folder / "vectors-{}.npy")],
        ["convert", f"{tuned}/final", str(folder / "converted-{}")],
        ["export", "--model", tuned, "--out", str(folder / "exported-{}")],
        ["report", tuned, "--out", str(folder / "page-{}.html")],
        ["demo", "--corpus", str(folder / "speeches"), "--out", str(folder / "demo-{}")],
        ["lab", "list", "--no-probe"],
    ]


def _interrupt(args: list[str], sent: signal.Signals, after: float) -> tuple[int, str]:
    """The exit code and stderr of a command that gets a signal `after` so many seconds."""
    process = subprocess.Popen(
        [sys.executable, "-m", "litebert.cli", *args],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        text=True,
    )
    while process.poll() is None and not _catches(process.pid, sent):
        time.sleep(0.002)
    time.sleep(after)
    process.send_signal(sent)
    errors = process.communicate(timeout=120)[1]
    return process.returncode, errors


def _catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process handles both signals itself: Python alone catches SIGINT from its start."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = int(status.split("SigCgt:")[1].split()[0], 16)
    return all(caught >> each - 1 & 1 for each in (signal.SIGTERM, number))


if __name__ == "__main__":
    main()
