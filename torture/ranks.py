"""Two ranks of a real pretraining under torchrun, signalled and killed at random moments. Prints
one JSON object.

    python -m torture.ranks --signals 20 --kills 10

Each signal goes to one of the two ranks: no hang, everything saved, and the resumed run equals the
undisturbed one bit for bit. Each kill (SIGKILL) hits a rank under --max-restarts: the run ends as
if nothing had happened.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.common import results as results_file
from litebert.testing import tiny_shards
from tests.helpers.launch import finish, ranks_of, start, state, wait_for_step
from tests.helpers.pretraining import assert_same_run, losses

STEPS = 40
FLAGS = ("--steps", str(STEPS), "--save-every", "5")


def same(one: Path, other: Path) -> bool:
    try:
        assert_same_run(one, other)
    except AssertionError:
        return False
    return True


def signal_once(shards: Path, out: Path, undisturbed: Path, draw: random.Random) -> str:
    """Interrupt one rank somewhere, look, let the same command finish."""
    process = start(shards, out, *FLAGS, ranks=2)
    if not wait_for_step(out, draw.randrange(STEPS - 4), process):
        return "ended too soon"
    time.sleep(draw.uniform(0, 0.05))
    os.kill(ranks_of(process.pid)[draw.randrange(2)], draw.choice([signal.SIGTERM, signal.SIGINT]))
    began = time.monotonic()
    code = finish(process)
    if code == 0:
        return "too late" if same(out, undisturbed) else "broken"
    if time.monotonic() - began > 25:
        return "slow"
    if state(out) != "interrupted":
        return f"not saved: {state(out)}"
    if finish(start(shards, out, *FLAGS, ranks=2)) != 0:
        return "not resumed"
    return "saved" if same(out, undisturbed) else "broken"


def kill_once(shards: Path, out: Path, undisturbed: Path, draw: random.Random) -> str:
    process = start(shards, out, *FLAGS, ranks=2, restarts=3)
    if not wait_for_step(out, draw.randrange(STEPS - 4), process):
        return "ended too soon"
    time.sleep(draw.uniform(0, 0.05))
    os.kill(ranks_of(process.pid)[draw.randrange(2)], signal.SIGKILL)
    if finish(process, 180) != 0:
        return "not restarted"
    return "recovered" if same(out, undisturbed) else "broken"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--signals", type=int, default=20)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--folder", help="where runs and their logs are kept; a temporary one otherwise"
    )
    results_file.add_out(parser)
    args = parser.parse_args()
    results_file.begin(args.out)
    draw, began = random.Random(args.seed), time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(args.folder or temporary)
        shards = tiny_shards(folder / "data")
        one, two = folder / "one", folder / "two"
        assert finish(start(shards, one, *FLAGS)) == 0
        assert finish(start(shards, two, *FLAGS, ranks=2)) == 0
        apart = max(abs(a - b) for a, b in zip(losses(one), losses(two), strict=True))
        outcomes: dict[str, Counter[str]] = {"signals": Counter(), "kills": Counter()}
        for kind, count, attempt in (
            ("signals", args.signals, signal_once),
            ("kills", args.kills, kill_once),
        ):
            for number in range(count):
                outcomes[kind][attempt(shards, folder / f"{kind}-{number}", two, draw)] += 1
                print(kind, number, dict(outcomes[kind]), file=sys.stderr, flush=True)
    good = (
        outcomes["signals"]["saved"] + outcomes["signals"]["too late"] == args.signals
        and outcomes["kills"]["recovered"] == args.kills
    )
    result = {
        "seed": args.seed,
        "seconds": round(time.monotonic() - began, 1),
        "largest_loss_difference_1_and_2_ranks": apart,
    }
    results_file.publish(result | {kind: dict(each) for kind, each in outcomes.items()}, args.out)
    return int(not good or apart > 1e-5)


if __name__ == "__main__":
    sys.exit(main())
