"""The training record of a model: the legs of its pretraining in; what they cost and where they
came to out.

    python -m tools.model_record RESULTS LEG[:STEP]… [--vocab-size 30000]

A leg is the folder of a run, each started from the weights of the one before: those of its end, or
of the evaluation at STEP. What a leg cost is what all of it cost. Writes RESULTS/pretraining.json
(GPU minutes, tokens, FLOPs, speeds, held-out losses of every leg), curve.json and pretraining.svg
(training loss, means of 50 steps), each leg's recipe and environment, and run.json about itself.
"""

import argparse
import json
import shutil
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

from bench.common.results import begin
from litebert.config import HeadConfig
from litebert.model.count import count_encoder, count_head, flops_per_token
from litebert.recipes import PretrainRecipe

WINDOW = 50
HELD = ("step", "tokens", "masked_loss", "masked_accuracy", "sop_accuracy", "heldout_tokens")


def read(leg: str, vocab_size: int) -> dict[str, Any]:
    """One leg: its cost, its evaluations, its curve."""
    folder, stop = place(leg)
    recipe = PretrainRecipe.from_dict(json.loads((folder / "recipe.json").read_text())["recipe"])
    environment = json.loads((folder / "environment.json").read_text())
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "step"]
    evaluations = [record for record in records if record["kind"] == "evaluation"]
    encoder = replace(recipe.encoder, vocab_size=vocab_size)
    real, flops = 0.0, 0.0
    for step in steps:
        length = step["sequence_length"]
        fraction = recipe.mask_fraction.at(step["step"], recipe.total_steps)
        tokens = length * step["batch_size"] * (1 - step["padding"])
        at_depth = replace(encoder, num_layers=step["depth"])
        real += tokens
        flops += tokens * flops_per_token(
            at_depth, seq=length, masked_fraction=fraction, training=True
        )
    ends = range(WINDOW, len(steps) + 1, WINDOW)
    heads = (HeadConfig(kind="masked"), HeadConfig(kind="order"))
    return {
        "leg": folder.name,
        "kept_step": stop or len(steps),
        "device": environment["device"],
        "parameters": sum(count_encoder(encoder).values()),
        "parameters_of_heads": sum(count_head(encoder, head) for head in heads),
        "steps": len(steps),
        "positions": steps[-1]["tokens"],
        "tokens": round(real),
        "flops": flops,
        "minutes": round(steps[-1]["seconds"] / 60, 2),
        "stages": speeds(steps),
        "evaluations": [{name: record.get(name) for name in HELD} for record in evaluations],
        "curve": [
            [
                steps[end - 1]["tokens"],
                round(mean(s["masked_loss"] for s in steps[end - WINDOW : end]), 4),
            ]
            for end in ends
        ],
    }


def speeds(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Positions a second in each stage, by the median of its steps: the first ones compile and
    record."""
    by_stage = []
    for (length, batch_size), group in groupby(
        steps, lambda step: (step["sequence_length"], step["batch_size"])
    ):
        seconds = [after["seconds"] - before["seconds"] for before, after in pairwise(group)]
        if seconds:
            speed = {"sequence_length": length, "batch_size": batch_size, "steps": len(seconds) + 1}
            by_stage.append(
                speed | {"positions_per_second": round(length * batch_size / median(seconds))}
            )
    return by_stage


def place(leg: str) -> tuple[Path, int | None]:
    """The leg's folder, and the step whose weights were kept where that is not the last."""
    folder, _, step = leg.partition(":")
    return Path(folder), int(step) if step else None


def record(legs: list[dict[str, Any]]) -> dict[str, Any]:
    """All legs together."""
    last = legs[-1]
    return {
        "device": last["device"].removeprefix("NVIDIA "),
        "gpu_minutes": round(sum(leg["minutes"] for leg in legs), 2),
        **{
            name: sum(leg[name] for leg in legs)
            for name in ("steps", "positions", "tokens", "flops")
        },
        **{name: last[name] for name in ("parameters", "parameters_of_heads")},
        "heldout": next(each for each in last["evaluations"] if each["step"] == last["kept_step"]),
        "legs": [{name: value for name, value in leg.items() if name != "curve"} for leg in legs],
    }


def plot(legs: list[dict[str, Any]], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 4))
    before = 0
    for leg in legs:
        positions = [(before + tokens) / 1e6 for tokens, _ in leg["curve"]]
        axes.plot(positions, [loss for _, loss in leg["curve"]], label=f"{leg['leg']}, training")
        held = [(before + each["tokens"], each["masked_loss"]) for each in leg["evaluations"]]
        axes.plot(
            [tokens / 1e6 for tokens, _ in held],
            [loss for _, loss in held],
            "k.",
            label=f"{leg['leg']}, held out",
        )
        before += leg["positions"]
    axes.set_xlabel("positions read, millions")
    axes.set_ylabel("masked-token loss")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("legs", nargs="+")
    parser.add_argument("--vocab-size", type=int, default=30_000)
    args = parser.parse_args()
    begin(args.results)
    legs = [read(leg, args.vocab_size) for leg in args.legs]
    recorded = record(legs)
    (args.results / "pretraining.json").write_text(json.dumps(recorded, indent=1) + "\n")
    (args.results / "curve.json").write_text(
        json.dumps({leg["leg"]: leg["curve"] for leg in legs}) + "\n"
    )
    plot(legs, args.results / "pretraining.svg")
    for folder, _ in map(place, args.legs):
        shutil.copyfile(
            folder / "environment.json", args.results / f"environment_{folder.name}.json"
        )
        recipe = json.loads((folder / "recipe.json").read_text())
        if recipe["inputs"].get("init"):  # where it lay on that machine says nothing here
            recipe["inputs"]["init"] = Path(recipe["inputs"]["init"]).name
        (args.results / f"recipe_{folder.name}.json").write_text(
            json.dumps(recipe, indent=2) + "\n"
        )
    print(json.dumps({name: value for name, value in recorded.items() if name != "legs"}, indent=1))


if __name__ == "__main__":
    main()
