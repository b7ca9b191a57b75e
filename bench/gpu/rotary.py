"""What do rotary positions cost? Pretraining steps with learned and with rotary positions,
alternately in one process on one GPU, as a ratio of speeds.

    python -m bench.gpu.rotary --data SHARDS --out DIR
    python -m bench.gpu.rotary --tiny  # the same code on a CPU, in seconds

Both are real runs (contenders.py): losses, gradients, clipping, optimizer, log and loader, compiled
and replayed as CUDA graphs. First both gradients are checked against float32: each may err 1.1
times as much as plain bfloat16. Then blocks of steps alternate, and begin with the other one each
time. `ratio` is the time of a learned step by that of a rotary one, of the same pair of blocks.
With --out rotary.json has all times.
"""

import argparse
import gc
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bench.common.results import begin, publish
from bench.gpu.cases import TINY
from bench.gpu.contenders import Case, Ours
from litebert.testing import tiny_shards

SHAPES = {
    "base-512": (Case(preset="albert-base-v2", length=512, ours=((64, 64),), theirs=()), 64),
    "base-128": (Case(preset="albert-base-v2", length=128, ours=((256, 256),), theirs=()), 256),
    "tiny": (replace(TINY["tiny"], overrides=(*TINY["tiny"].overrides, ("norm", "pre"))), 8),
}
"""The step, and its sequences."""
WORSE = 1.1
"""Times as much as plain bfloat16 a gradient may err."""


def compare(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Times of both kinds of positions, by turns."""
    case, rows = SHAPES[name]
    device = "cpu" if args.tiny else "cuda"
    with ExitStack() as stack:
        runs: dict[str, Ours] = {}
        for positions in ("learned", "rotary"):
            overrides = tuple((dict(case.overrides) | {"positions": positions}).items())
            run = Ours(
                replace(case, overrides=overrides),
                *(rows, rows),
                data=args.data,
                device=device,
                workers=args.workers,
            )
            stack.callback(run.close)
            runs[positions] = run
        # two models share the compiled function: each may be compiled for all its shapes
        torch._dynamo.config.recompile_limit *= 2
        row: dict[str, Any] = {"shape": name, "rows": rows}
        for positions, run in runs.items():
            for _ in range(args.warm):
                run()
            row[f"{positions}_gradient"] = run.check()
            row[f"{positions}_graphs"] = run.num_recorded
            row[f"{positions}_messages"] = run.messages
        times: dict[str, list[float]] = {"learned": [], "rotary": []}
        for repeat in range(args.repeats):
            for positions in ("learned", "rotary")[:: 1 if repeat % 2 == 0 else -1]:
                times[positions].append(1000 * block(runs[positions], args.steps, device))
    ratios = [one / other for one, other in zip(times["learned"], times["rotary"], strict=True)]
    return row | {
        "learned_ms": [round(each, 3) for each in times["learned"]],
        "rotary_ms": [round(each, 3) for each in times["rotary"]],
        "ratio_median": round(statistics.median(ratios), 4),
        "ratio_range": [round(min(ratios), 4), round(max(ratios), 4)],
    }


def block(run: Ours, steps: int, device: str) -> float:
    """Seconds a step; the first is of the change from the other run, and left out."""
    run()
    synchronize(device)
    began = time.monotonic()
    for _ in range(steps):
        run()
    synchronize(device)
    return (time.monotonic() - began) / steps


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def is_exact(errors: dict[str, float]) -> bool:
    return errors["ours"] <= WORSE * errors["plain"]


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="folder of shards; --tiny makes its own")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["base-512", "base-128"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40, help="in a block")
    parser.add_argument("--warm", type=int, default=30, help="steps before timing")
    parser.add_argument("--workers", type=int, default=6, help="loader processes of each run")
    parser.add_argument("--out", type=Path, help="folder for run.json and rotary.json")
    parser.add_argument("--tiny", action="store_true", help="a tiny model on a CPU")
    args = parser.parse_args(words)
    if not args.tiny and not args.data:
        parser.error("--data is the folder of shards")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    begin(args.out, arguments=words or sys.argv[1:], device=device, cuda=torch.version.cuda)
    with tempfile.TemporaryDirectory(prefix="litebert-bench-") as folder:
        if args.tiny:
            args.data = str(tiny_shards(Path(folder), documents=200))
            args.shapes, args.workers = ["tiny"], 1
            args.steps, args.warm, args.repeats = 1, 1, min(args.repeats, 2)
        rows = []
        for name in args.shapes:
            rows.append(compare(name, args))
            gc.collect()
            torch._dynamo.reset()
            if not args.tiny:
                torch.cuda.empty_cache()
    publish(rows, args.out and args.out / "rotary.json")
    return int(
        not all(is_exact(row[f"{kind}_gradient"]) for row in rows for kind in ("learned", "rotary"))
    )


if __name__ == "__main__":
    sys.exit(main())
