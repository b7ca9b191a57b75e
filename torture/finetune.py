"""A real fine-tuning, ended again and again: does it end as if it had never been? Prints one JSON
object.

    python -m torture.finetune --points 20 --signals 50 --kills 20

points: in one process, a SIGTERM before a microbatch or a batch of dev, at so many places of a run
of two epochs with dropout, for a task of every kind and for one that fails and begins again.
signals and kills: through the command line, SIGTERM or Ctrl-C and SIGKILL at random moments,
evaluation included; the same command resumes it. Weights, card, predictions, metrics and result are
compared bit for bit with those of an undisturbed run.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

from bench.common import results as results_file
from litebert.errors import InterruptedRunError
from litebert.recipes import FinetuneRecipe
from litebert.testing import tiny_task
from tests.helpers.finetuning import TASKS, assert_same_tuning, recipe, source, tune
from tests.helpers.launch import finish, start_command
from tests.helpers.pretraining import signalled
from torture.harness import campaign

FLAGS = [
    "--max-length",
    "32",
    "--device",
    "cpu",
    "--retries",
    "1",
    "--steps",
    "400",
    "--evaluations",
    "40",
    "--patience",
    "0",
]
FLAGS += ["--save-every", "30", "--encoder-dropout", "0.1", "--microbatch-tokens", "128"]


def same(one: Path, other: Path) -> bool:
    try:
        assert_same_tuning(one, other)
    except AssertionError:
        return False
    return True


def points(folder: Path, count: int) -> dict[str, dict[str, int]]:
    """One interruption at each of `count` places, evenly over the microbatches and batches of dev
    of a run."""
    wishes: dict[str, FinetuneRecipe] = {kind: recipe(kind) for kind in TASKS}
    wishes["classify, begins again"] = recipe(learning_rate=1e-9, retries=2, evaluations=1)
    result: dict[str, dict[str, int]] = {}
    for name, wish in wishes.items():
        counted: Counter[str] = Counter()
        calls = tune(wish, folder / name / "whole").calls
        for number in range(count):
            out = folder / name / str(number)
            try:
                tune(wish, out, at=signalled(number * calls // count))
                counted["not interrupted"] += 1
                continue
            except InterruptedRunError:
                tune(wish, out)
            counted["equal" if same(out, folder / name / "whole") else "broken"] += 1
        result[name] = dict(counted)
        print(name, result[name], file=sys.stderr, flush=True)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--signals", type=int, default=50)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    results_file.add_out(parser)
    args = parser.parse_args()
    results_file.begin(args.out)
    torch.set_num_threads(1)
    draw, began = random.Random(args.seed), time.monotonic()
    os.environ["PYTHONUNBUFFERED"] = "1"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        results: dict[str, dict[str, object]] = {
            "points": dict(points(folder / "points", args.points))
        }
        model, data = source().save(folder / "model"), tiny_task(folder / "data", "sst2", scale=4)
        command = ["finetune", "sst2", "--model", str(model), "--data", str(data), *FLAGS]

        def begin(out: Path) -> "subprocess.Popen[str]":
            return start_command([*command, "--out", str(out)], out)

        assert finish(begin(folder / "whole"), 300) == 0
        for name in ("signals", "kills"):
            results[name] = dict(
                campaign(begin, begin, same, folder, name, getattr(args, name), draw, most=0.15)
            )
    expected = {"signals": {"saved": args.signals}, "kills": {"killed": args.kills}}
    good = (
        all(found == {"equal": args.points} for found in results["points"].values())
        or not args.points
    )
    for name, words in expected.items():
        good = good and all(
            results[name].get(word) == number for word, number in words.items() if number
        )
        good = good and not results[name].get("broken")
    seconds = round(time.monotonic() - began, 1)
    record = {"seed": args.seed, "seconds": seconds, **results, "good": good}
    results_file.publish(record, args.out)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
