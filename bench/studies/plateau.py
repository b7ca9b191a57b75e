"""Which recipes leave the plateau: variants of albert-base at 128 tokens, each a run of its own on
one GPU.

    python -m bench.studies.plateau --data SHARDS --out DIR --variants pre post --seeds 0 1 2

Held-out loss on a fixed million tokens, the tokens after which the entropy of single tokens was
left behind, and minutes, into DIR/table.json; the curves stand in each run's metrics.jsonl. With
--miniature the same variants on a CPU: six layers of width 128, 64 sequences of 16 tokens a step;
the shards that `litebert demo` leaves will do.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.common.results import begin
from litebert.recipes import NAMED, OptimizerName, OptimizerSpec, PretrainRecipe, Stages
from litebert.train.pretrain.run import Pretraining
from litebert.train.runtime import Runtime

LEFT = 6.5
"""A training loss (mean of fifty steps) below this has left the entropy of single tokens: about 7.3
with 30,000 pieces."""
DEPTH = Stages.parse("0:3,0.15:6,0.3:12")
GENTLE = {"residual_init": 0.1, "positions": "sinusoidal"}


def variant(
    rate: float,
    batch_size: int = 256,
    *,
    depth: Stages | None = None,
    optimizer: OptimizerName = "adamw",
    **encoder: Any,
) -> PretrainRecipe:
    """albert-base with these settings; a held-out million wants more documents than the default of
    one in a hundred."""
    return replace(
        NAMED["affordable-post"],
        overrides=tuple(encoder.items()),
        batch_size=Stages.constant(batch_size),
        depth=depth,
        optimizer=OptimizerSpec(name=optimizer, learning_rate=rate),
        heldout_fraction=0.03,
        save_every=0,
    )


VARIANTS: dict[str, PretrainRecipe] = {
    "pre-256": variant(5e-4, norm="pre"),
    "pre-128": variant(5e-4, 128, norm="pre"),
    "pre-depth": variant(5e-4, norm="pre", depth=DEPTH),
    "pre-depth-1e-3": variant(1e-3, norm="pre", depth=DEPTH),
    "pre-depth-128": variant(7e-4, 128, norm="pre", depth=DEPTH),
    "post-128": variant(2e-4, 128, norm="post"),
    "post-depth": variant(3e-4, norm="post", depth=DEPTH),
    "post-depth-128": variant(5e-4, 128, norm="post", depth=DEPTH),
    "pre-gentle": variant(5e-4, 128, norm="pre", **GENTLE),
    "pre-gentle-1e-3": variant(1e-3, 128, norm="pre", **GENTLE),
    "pre-gentle-64": variant(5e-4, 64, norm="pre", **GENTLE),
    "post-gentle": variant(5e-4, 128, norm="post", **GENTLE),
    "post-gentle-1e-3": variant(1e-3, 128, norm="post", **GENTLE),
    **{
        f"{norm}-muon-{rate:g}": variant(rate, norm=norm, optimizer="muon")
        for norm in ("pre", "post")
        for rate in (5e-4, 1e-3, 2e-3)
    },
    "post-gentle-64": variant(5e-4, 64, norm="post", **GENTLE),
}


MINIATURE = {"hidden_size": 128, "num_layers": 6, "num_attention_heads": 2, "ffn_size": 512}
FASTER = 4
"""What a rate is multiplied with in miniature: a narrow model takes larger ones."""


def in_miniature(recipe: PretrainRecipe) -> PretrainRecipe:
    """The same recipe at a size that two cores train in minutes, on short sequences, where
    neighbors are soon found."""
    return replace(
        recipe,
        overrides=tuple((dict(recipe.overrides) | MINIATURE).items()),
        batch_size=Stages.constant(64),
        sequence_length=Stages.constant(16),
        depth=None,
        max_ngram=1,
        optimizer=replace(recipe.optimizer, learning_rate=FASTER * recipe.optimizer.learning_rate),
        evaluate_tokens=50_000,
        heldout_fraction=0.1,
    )


def summarize(run: Path, *, left_at: float) -> dict[str, Any]:
    """What a run came to, from its metrics alone."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "step"]
    evaluations = [record for record in records if record["kind"] == "evaluation"]
    losses = [record["masked_loss"] for record in steps]
    left = next(
        (i for i in range(49, len(steps)) if sum(losses[i - 49 : i + 1]) / 50 < left_at), None
    )
    keys = (
        "step",
        "tokens",
        "seconds",
        "masked_loss",
        "masked_accuracy",
        "sop_accuracy",
        "nsp_accuracy",
        "heldout_tokens",
    )
    return {
        "run": run.name,
        **{key: evaluations[-1].get(key) for key in keys},
        "left_plateau_at_tokens": None if left is None else steps[left]["tokens"],
        "left_plateau_at_minutes": None if left is None else round(steps[left]["seconds"] / 60, 2),
        "curve": [[record["tokens"], round(record["masked_loss"], 3)] for record in evaluations],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", required=True, help="folder of shards, original 30,000 vocabulary"
    )
    parser.add_argument("--out", required=True, help="folder for the runs and table.json")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--tokens", type=int, default=60_000_000)
    parser.add_argument("--evaluations", type=int, default=6, help="evaluations in a run")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument(
        "--left-at",
        type=float,
        default=LEFT,
        help="training loss that counts as having left the plateau",
    )
    parser.add_argument("--miniature", action="store_true", help="small enough for a CPU")
    args = parser.parse_args()
    begin(Path(args.out))
    runtime, table = Runtime.start(), []
    for name in args.variants:
        for seed in args.seeds:
            recipe = replace(VARIANTS[name], seed=seed, tokens=args.tokens)
            recipe = in_miniature(recipe) if args.miniature else recipe
            recipe = replace(recipe, evaluate_every=-(-recipe.total_steps // args.evaluations))
            run = Path(args.out) / f"{name}-seed{seed}"
            Pretraining(recipe, args.data, runtime, workers=args.workers).train(run, progress=False)
            table.append(summarize(run, left_at=args.left_at))
            print(json.dumps(table[-1]), flush=True)
            (Path(args.out) / "table.json").write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
