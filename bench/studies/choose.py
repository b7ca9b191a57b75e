"""Settings of fine-tuning chosen on a part of train, so that dev stays unseen.

    python -m bench.studies.choose --model DIR --data DIR --out DIR [--tasks sst2 cola …] \\
        [--jobs 6] [--minutes 9] [--start rte=RUN …]

DATA holds glue/. A tenth of each task's train, chosen by a hash of the line, becomes dev; what is
tried is in GRID, each setting with one seed. OUT/chosen.json holds the best flags by task, for
`bench.studies.benchmarks --settings`, and OUT/table.json what every setting scored. A task whose
part of train has fewer than 300 examples keeps its defaults: the noise would choose. So does one
of which a run failed or was stopped by --minutes, until the same command has finished all.
"""

import argparse
import hashlib
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.common.results import begin
from bench.studies.benchmarks import worst
from litebert.errors import DivergedError
from litebert.files import write_json

FOLDERS = {"sst2": "SST-2", "cola": "CoLA", "mrpc": "MRPC", "stsb": "STS-B", "rte": "RTE"}
GRID: dict[str, tuple[str, ...]] = {
    "--learning-rate": ("3e-5", "6e-5", "1.2e-4"),
    "--encoder-dropout": ("0", "0.1"),
}
"""Learning rate times dropout; of lengths and batch sizes see LENGTH."""
LENGTH = {
    "sst2": ("--epochs", "3", "--batch-size", "64"),
    "cola": ("--epochs", "5", "--batch-size", "32"),
    "stsb": ("--epochs", "6", "--batch-size", "32"),
    "mrpc": ("--epochs", "6", "--batch-size", "32"),
    "rte": ("--epochs", "8", "--batch-size", "32"),
}
"""Those of the benchmark's runs, except mrpc and rte, whose runs follow Table 14 by their size."""
PART, FEWEST = 10, 300
_DIVERGED = DivergedError.exit_code


def cut(source: Path, target: Path, *, has_header: bool) -> int:
    """Write train and dev of train's own lines; how many dev has."""
    lines = source.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
    header, rows = (lines[:1], lines[1:]) if has_header else ([], lines)
    sides: dict[str, list[str]] = {"train": [], "dev": []}
    for row in rows:
        digest = hashlib.sha256(row.encode()).digest()
        sides["dev" if digest[0] * PART < 256 else "train"].append(row)
    target.mkdir(parents=True, exist_ok=True)
    for split, some in sides.items():
        (target / f"{split}.tsv").write_text("\n".join([*header, *some]) + "\n", encoding="utf-8")
    return len(sides["dev"])


def settings() -> Iterator[tuple[str, ...]]:
    """Every combination, as flags."""
    for values in itertools.product(*GRID.values()):
        yield tuple(itertools.chain.from_iterable(zip(GRID, values, strict=True)))


def run(task: str, flags: tuple[str, ...], args: argparse.Namespace) -> dict[str, Any]:
    """One setting of one task: its score on the part of train that was kept aside."""
    name = "-".join(each for each in flags if not each.startswith("--"))
    out = args.out / "runs" / task / name
    words = [sys.executable, "-m", "litebert.cli", "finetune", task, "--out", str(out), "--json"]
    words += ["--model", args.starts.get(task, args.model), "--data", str(args.out / "data" / task)]
    length = LENGTH[task] if args.steps is None else ("--steps", str(args.steps))
    words += [*length, "--evaluations", "3", *flags]
    if args.minutes is not None:
        left = args.minutes - (time.monotonic() - args.began) / 60
        words += ["--minutes", f"{max(left, 0.01):.2f}"]
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.with_suffix(".log").open("w") as log:
        status = subprocess.run(words, stdout=log, stderr=log).returncode
    path = out / "result.json"
    score = None if status else json.loads(path.read_text())["score"]
    return {"task": task, "flags": list(flags), "exit_code": status, "score": score}


def choose(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The best setting of each task of which every setting has a score, or has diverged."""
    unfinished = {
        row["task"] for row in rows if row["score"] is None and row["exit_code"] != _DIVERGED
    }
    best: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["task"] not in unfinished and row["score"] is not None:
            best[row["task"]] = max(best.get(row["task"], row), row, key=lambda row: row["score"])
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", default=list(FOLDERS), choices=FOLDERS)
    parser.add_argument("--start", nargs="+", default=[], metavar="TASK=DIR")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--steps", type=int, help="of each run, for a trial")
    args = parser.parse_args()
    args.began = time.monotonic()
    args.starts = dict(each.split("=", 1) for each in args.start)
    begin(args.out)
    runs = []
    for task in args.tasks:
        source = args.data / "glue" / FOLDERS[task] / "train.tsv"
        count = cut(source, args.out / "data" / task, has_header=task != "cola")
        if count >= FEWEST:
            runs += [(task, flags) for flags in settings()]
        else:
            print(f"{task}: {count} examples are too few to choose by; it keeps its defaults")
    with ThreadPoolExecutor(args.jobs) as pool:
        rows = list(pool.map(lambda each: run(*each, args), runs))
    best = choose(rows)
    write_json(args.out / "table.json", rows)
    write_json(args.out / "chosen.json", {task: row["flags"] for task, row in best.items()})
    for task, row in best.items():
        print(f"{task}: {' '.join(row['flags'])} ({row['score']:.4f})")
    return worst(row["exit_code"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
