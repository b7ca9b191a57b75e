"""Kill litebert predict at random moments, again and again; its file must be what an undisturbed
run writes.

    python -m torture.predict --kills 50 --out torture.json

A kill is SIGKILL at a moment drawn evenly over what an undisturbed run takes, its start included;
one in five is SIGTERM (exit code 75 once the command runs). Input and output change kind from file
to file.
"""

import argparse
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.common.results import add_out, begin, publish
from bench.cpu.predict import made_texts, save
from litebert.testing import tiny_tokenizer
from litebert.text.tokenizer import Tokenizer

INPUTS, OUTPUTS = (".jsonl", ".csv", ".txt.gz"), (".jsonl", ".csv", ".tsv")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    add_out(parser)
    options = parser.parse_args()
    begin(options.out)
    draw = random.Random(options.seed)
    kills, files, identical, codes = 0, 0, 0, Counter[str]()
    with tempfile.TemporaryDirectory(prefix="litebert-torture-") as name:
        folder = Path(name)
        model = save(
            folder / "m", Tokenizer.load(tiny_tokenizer(folder / "t")), hidden_size=64, num_layers=2
        )
        while kills < options.kills:
            source = write(folder / f"in{INPUTS[files % len(INPUTS)]}", made_texts(options.rows))
            suffix = OUTPUTS[files // len(INPUTS) % len(OUTPUTS)]
            whole, out = folder / f"whole-{files}{suffix}", folder / f"killed-{files}{suffix}"
            begun = time.monotonic()
            assert launch(model, source, whole).wait() == 0
            seconds = time.monotonic() - begun
            while kills < options.kills and not out.exists():
                code = kill(launch(model, source, out), draw.uniform(0, seconds), draw)
                kills += code != 0
                codes[str(code)] += 1
            assert launch(model, source, out).wait() == 0
            files += 1
            identical += out.read_bytes() == whole.read_bytes()
    figures = {
        "kills": kills,
        "files": files,
        "byte_identical": identical,
        "exit_codes": dict(codes),
        "rows": options.rows,
    }
    publish(figures, options.out)
    sys.exit(identical != files)


def launch(model: Path, source: Path, out: Path) -> "subprocess.Popen[bytes]":
    command = [
        sys.executable,
        "-m",
        "litebert.cli",
        "predict",
        str(source),
        "--model",
        str(model),
        "--out",
        str(out),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, "--verb", "classify", "--keep", "text"],
        stderr=subprocess.DEVNULL,
        env=environment,
    )


def kill(process: "subprocess.Popen[bytes]", after: float, draw: random.Random) -> int:
    """End a run, one in five softly; its exit code."""
    try:
        return process.wait(after)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM if draw.random() < 0.2 else signal.SIGKILL)
        return process.wait()


def write(path: Path, texts: list[str]) -> Path:
    lines = {
        ".jsonl": (json.dumps({"text": text}) for text in texts),
        ".csv": ("text", *(f'"{text}"' for text in texts)),
        ".gz": texts,
    }[path.suffix]
    data = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return path


if __name__ == "__main__":
    main()
