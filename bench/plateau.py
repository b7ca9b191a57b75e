"""Which recipes leave the plateau: variants of albert-base at 128 tokens, each a whole run of 60 M tokens on one GPU.

    python bench/plateau.py --data SHARDS --out DIR --variants pre-5e-4 post-depth --seeds 0 1 2

Writes DIR/table.json with the held-out loss, the tokens after which the loss was left behind, and minutes. One process
a run, `--together` of them side by side: small batches leave a large GPU half idle.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from litebert.recipes import NAMED

DEPTH = "0:3,0.15:6,0.3:12"
LEFT = 6.5
"""A training loss (mean of fifty steps) below this has left the entropy of single tokens, about 7.3 here."""

# name → flags of litebert pretrain, beside the common ones
VARIANTS: dict[str, list[str]] = {
    "pre": ["--encoder", "norm=pre", "--rate", "5e-4", "--batch-size", "256"],
    "pre-128": ["--encoder", "norm=pre", "--rate", "5e-4", "--batch-size", "128"],
    "pre-depth": ["--encoder", "norm=pre", "--rate", "5e-4", "--batch-size", "256", "--depth", DEPTH],
    "pre-depth-1e-3": ["--encoder", "norm=pre", "--rate", "1e-3", "--batch-size", "256", "--depth", DEPTH],
    "pre-depth-128": ["--encoder", "norm=pre", "--rate", "7e-4", "--batch-size", "128", "--depth", DEPTH],
    "post-128": ["--encoder", "norm=post", "--rate", "2e-4", "--batch-size", "128"],
    "post-depth": ["--encoder", "norm=post", "--rate", "3e-4", "--batch-size", "256", "--depth", DEPTH],
    "post-depth-128": ["--encoder", "norm=post", "--rate", "5e-4", "--batch-size", "128", "--depth", DEPTH],
    "post-depth-1e-3": ["--encoder", "norm=post", "--rate", "1e-3", "--batch-size", "256", "--depth", DEPTH],
}
COMMON = ["--sequence-length", "128", "--evaluate-every", "500", "--save-every", "0"]


def start(name: str, seed: int, args: argparse.Namespace) -> subprocess.Popen[bytes]:
    run = Path(args.out) / f"{name}-{seed}"
    flags = [
        *COMMON,
        *VARIANTS[name],
        "--data",
        args.data,
        "--out",
        str(run),
        "--seed",
        str(seed),
        "--workers",
        str(args.workers),
    ]
    command = [sys.executable, "-m", "litebert.cli", "pretrain", *flags, "--tokens", str(args.tokens)]
    with run.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def summarize(run: Path) -> dict[str, object]:
    """What a run came to, from its metrics alone."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "step"]
    evaluations = [record for record in records if record["kind"] == "evaluation"]
    losses = [record["masked_loss"] for record in steps]
    left = next((i for i in range(49, len(steps)) if sum(losses[i - 49 : i + 1]) / 50 < LEFT), None)
    keys = ("step", "tokens", "seconds", "masked_loss", "masked_accuracy", "sop_accuracy", "nsp_accuracy")
    return {
        "run": run.name,
        "final": {key: evaluations[-1].get(key) for key in keys} if evaluations else None,
        "left_plateau_at_tokens": None if left is None else steps[left]["tokens"],
        "left_plateau_at_minutes": None if left is None else round(steps[left]["seconds"] / 60, 2),
        "curve": [[record["tokens"], round(record["masked_loss"], 3)] for record in evaluations],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder of shards, original 30,000 vocabulary")
    parser.add_argument("--out", required=True, help="folder for the runs and table.json")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--tokens", type=int, default=60_000_000)
    parser.add_argument("--together", type=int, default=1, help="runs side by side; their minutes are then not a run's own")
    parser.add_argument("--workers", type=int, default=3)
    args = parser.parse_args()
    Path(args.out).mkdir(parents=True, exist_ok=True)
    # a held-out million wants more documents than the default of one in a hundred
    recipe = replace(NAMED["affordable"], heldout_fraction=0.03)
    (Path(args.out) / "recipe.json").write_text(recipe.to_json())
    waiting = [(name, seed) for name in args.variants for seed in args.seeds]
    running: list[tuple[subprocess.Popen[bytes], str]] = []
    table = []
    while waiting or running:
        while waiting and len(running) < args.together:
            name, seed = waiting.pop(0)
            running.append((start(name, seed, args), f"{name}-{seed}"))
        time.sleep(0.5)
        for process, name in [pair for pair in running if pair[0].poll() is not None]:
            running.remove((process, name))
            row = summarize(Path(args.out) / name) if process.returncode == 0 else {"run": name, "exit": process.returncode}
            table.append(row)
            print(json.dumps(row), flush=True)
            (Path(args.out) / "table.json").write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
