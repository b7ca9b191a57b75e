"""A real pretraining, ended again and again: does it end as if it had never been? Prints one JSON
object.

    python -m torture.pretrain --points 20 --signals 50 --kills 20

points: in one process, a SIGTERM before a microbatch, at so many places of a run that crosses
stages of batch size, sequence length and depth, with 0 and with 2 data workers. signals and kills:
through the command line, SIGTERM or Ctrl-C and SIGKILL at random moments, evaluation included; the
same command resumes it. Weights, best weights, metrics and scores are compared bit for bit with
those of an undisturbed run.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

from bench.common import results as results_file
from litebert.errors import InterruptedRunError
from litebert.testing import tiny_shards
from tests.helpers.launch import finish, start
from tests.helpers.pretraining import assert_same_run, signalled, staged_recipe, train
from torture.harness import campaign

FLAGS = ("--steps", "240", "--save-every", "20", "--evaluate-every", "7")


def same(one: Path, other: Path) -> bool:
    try:
        assert_same_run(one, other)
    except AssertionError:
        return False
    return True


def points(shards: Path, folder: Path, count: int) -> dict[str, object]:
    """One interruption at each of `count` places, evenly over the microbatches and evaluations of a
    run."""
    recipe = staged_recipe()
    calls = train(recipe, shards, folder / "whole").calls
    result: Counter[str] = Counter()
    for workers in (0, 2):
        for number in range(count):
            out = folder / f"{workers}-{number}"
            try:
                train(recipe, shards, out, at=signalled(number * calls // count), workers=workers)
                result["not interrupted"] += 1
                continue
            except InterruptedRunError:
                train(recipe, shards, out, workers=workers)
            result["equal" if same(out, folder / "whole") else "broken"] += 1
    return {"microbatches_in_the_run": calls, **result}


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
        shards = tiny_shards(folder / "data")
        (folder / "points").mkdir()
        results = {"points": points(shards, folder / "points", args.points)}
        print(results, file=sys.stderr, flush=True)
        assert finish(start(shards, folder / "whole", *FLAGS), 300) == 0
        for name in ("signals", "kills"):
            results[name] = campaign(
                lambda out: start(shards, out, *FLAGS, workers=draw.choice([0, 0, 2])),
                lambda out: start(shards, out, *FLAGS),
                same,
                folder,
                name,
                getattr(args, name),
                draw,
                most=0.25,
            )
    expected = {
        "points": {"equal": 2 * args.points},
        "signals": {"saved": args.signals},
        "kills": {"killed": args.kills},
    }
    good = all(
        results[name].get(word) == number
        for name, words in expected.items()
        for word, number in words.items()
        if number
    )
    good = good and not any(result.get("broken") for result in results.values())
    seconds = round(time.monotonic() - began, 1)
    record = {"seed": args.seed, "seconds": seconds, **results, "good": good}
    results_file.publish(record, args.out)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
