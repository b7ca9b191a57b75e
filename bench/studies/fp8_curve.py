"""Does training in 8 bits learn what bfloat16 learns? The same text, seed and steps in both
arithmetics; two curves out.

    # 3,000 steps of 96 × 128 tokens, twice
    python -m bench.studies.fp8_curve --data SHARDS --out DIR
    # and bfloat16 with another seed, to know what chance does
    python -m bench.studies.fp8_curve --data SHARDS --out DIR --other-seed
    python -m bench.studies.fp8_curve --out DIR --plot  # draw again what DIR/curves.json holds
    python -m bench.studies.fp8_curve --out DIR --tiny  # the same on a CPU, in seconds

DIR/curves.json has for each run its training loss as means of some steps, its held-out losses on
the same text, its speed, and what fp8's are above bfloat16's; curves.svg draws them where
matplotlib is there. Runs that are done are not done again.
"""

import argparse
import json
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch

from bench.common.results import begin
from litebert.files import write_json
from litebert.recipes import FractionStages, PretrainRecipe, Stages
from litebert.recipes.pretrain import PretrainDType
from litebert.testing import SHAPE, tiny_shards
from litebert.train.pretrain.run import Pretraining
from litebert.train.runtime import Runtime

RUNS: dict[str, tuple[PretrainDType, int]] = {"bfloat16": ("bfloat16", 0), "fp8": ("fp8", 0)}
"""Dtype and seed of each."""
OTHER: dict[str, tuple[PretrainDType, int]] = {"bfloat16, another seed": ("bfloat16", 1)}
LAST = 5
"""The last of this many parts of a run is compared as a whole."""


def recipe(args: argparse.Namespace) -> PretrainRecipe:
    """The affordable recipe, short; the same held-out text for all."""
    short = PretrainRecipe(
        preset=args.preset,
        steps=args.steps,
        tokens=None,
        batch_size=Stages.constant(args.rows),
        sequence_length=Stages.constant(args.length),
        evaluate_every=-(-args.steps // LAST),
        evaluate_tokens=400_000,
        mask_fraction=FractionStages.constant(0.15),
        save_every=0,
        plateau_steps=0,
    )
    if args.tiny:
        short = replace(short, overrides=SHAPE, heldout_fraction=0.2, evaluate_tokens=500)
    return short


def run(name: str, dtype: PretrainDType, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Train, and tell what the run's own metrics say."""
    folder = args.out / "runs" / name.replace(", ", "-").replace(" ", "-")
    records = metrics(folder)
    if sum(record["kind"] == "step" for record in records) < args.steps:
        runtime = Runtime.start(device="cpu" if args.tiny else "auto", dtype=dtype)
        chosen = replace(recipe(args), dtype=dtype, seed=seed)
        Pretraining(chosen, args.data, runtime, workers=args.workers).train(folder, progress=False)
        records = metrics(folder)
    steps = [record for record in records if record["kind"] == "step"]
    ends = range(args.window, len(steps) + 1, args.window)
    seconds = [after["seconds"] - before["seconds"] for before, after in pairwise(steps)]
    held = ("step", "masked_loss", "masked_accuracy", "sop_accuracy")
    return {
        "dtype": dtype,
        "seed": seed,
        "steps": len(steps),
        "tokens": steps[-1]["tokens"],
        "step_ms": round(1000 * median(seconds), 2),
        "skipped": sum(
            record["kind"] == "event" and record.get("event") == "skip" for record in records
        ),
        "curve": [
            [end, round(mean(step["masked_loss"] for step in steps[end - args.window : end]), 4)]
            for end in ends
        ],
        "heldout": [
            {key: record.get(key) for key in held}
            for record in records
            if record["kind"] == "evaluation"
        ],
    }


def metrics(folder: Path) -> list[dict[str, Any]]:
    """What a run has written so far."""
    place = folder / "metrics.jsonl"
    return [json.loads(line) for line in place.read_text().splitlines()] if place.exists() else []


def compare(runs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What each run's loss is above bfloat16's: along the way, over the last part of the run, and
    on held-out text."""
    base, differences = runs["bfloat16"], {}
    for name, other in runs.items():
        if other is base:
            continue
        above = [
            [end, round(mine - its, 4)]
            for (end, mine), (_, its) in zip(other["curve"], base["curve"], strict=True)
        ]
        held = zip(other["heldout"], base["heldout"], strict=True)
        differences[name] = {
            "curve": above,
            "last_part": round(mean(loss for _, loss in above[-max(len(above) // LAST, 1) :]), 4),
            "heldout": [
                [mine["step"], round(mine["masked_loss"] - its["masked_loss"], 4)]
                for mine, its in held
            ],
        }
    return differences


def plot(results: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, (losses, above) = plt.subplots(2, 1, figsize=(8, 6), sharex=True, height_ratios=(3, 1))
    for name, each in results["runs"].items():
        (line,) = losses.plot(*zip(*each["curve"], strict=True), label=name, linewidth=1)
        losses.plot(
            [held["step"] for held in each["heldout"]],
            [held["masked_loss"] for held in each["heldout"]],
            ".",
            color=line.get_color(),
        )
        if name in results["above_bfloat16"]:
            above.plot(
                *zip(*results["above_bfloat16"][name]["curve"], strict=True),
                color=line.get_color(),
                linewidth=1,
            )
    losses.set_ylabel("masked-token loss; dots: held-out text")
    losses.legend()
    above.axhline(0, color="gray", linewidth=0.8)
    above.set_ylabel("above bfloat16")
    above.set_xlabel("steps")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="folder of shards; --tiny makes its own")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--preset", default="albert-base-v2")
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--rows", type=int, default=96)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--window", type=int, default=50, help="steps in a point of the curve")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--other-seed", action="store_true")
    parser.add_argument("--plot", action="store_true", help="only draw what is there")
    parser.add_argument("--tiny", action="store_true", help="a tiny model on a CPU")
    args = parser.parse_args()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    begin(args.out, device=device, cuda=torch.version.cuda)
    place = args.out / "curves.json"
    if not args.plot:
        with tempfile.TemporaryDirectory(prefix="litebert-bench-") as folder:
            if args.tiny:
                args.data, args.workers = str(tiny_shards(Path(folder), documents=80)), 0
                args.preset, args.rows, args.length, args.steps, args.window = (
                    "tiny",
                    8,
                    24,
                    min(args.steps, 20),
                    4,
                )
            runs = {}
            for name, (dtype, seed) in (RUNS | (OTHER if args.other_seed else {})).items():
                runs[name] = run(name, dtype, seed, args)
                print(
                    json.dumps(
                        {"run": name}
                        | {key: value for key, value in runs[name].items() if key != "curve"}
                    ),
                    flush=True,
                )
        write_json(
            place,
            {
                "recipe": recipe(args).to_dict(),
                "runs": runs,
                "above_bfloat16": compare(runs),
            },
        )
    curves = json.loads(place.read_text())
    print(
        json.dumps(
            {
                name: {"last_part": each["last_part"], "heldout": each["heldout"][-1:]}
                for name, each in curves["above_bfloat16"].items()
            }
        )
    )
    if find_spec("matplotlib"):
        plot(curves, args.out / "curves.svg")
    else:
        print("matplotlib is not installed, so nothing was drawn; --plot does it elsewhere")


if __name__ == "__main__":
    main()
