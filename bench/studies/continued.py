"""Continued pretraining: does a model that has read one corpus learn another sooner than one that
begins with nothing?

    python -m bench.studies.continued --first SHARDS --then SHARDS --out DIR [--recipe demo] \\
        [--first-tokens N] [--then-tokens N]

Three runs of one recipe: on the first corpus; on the second from that run's weights (`--init`); on
the second from random weights. Held-out loss on the second corpus along the way, and before the
first step, into OUT/continued.json.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.common.results import begin
from litebert.recipes import PretrainRecipe, named
from litebert.train.pretrain.run import Pretraining
from litebert.train.runtime import Runtime


def run(
    recipe: PretrainRecipe, data: str, out: Path, args: argparse.Namespace, init: Path | None = None
) -> dict[str, Any]:
    """One run: held-out loss and accuracy by tokens."""
    training = Pretraining(recipe, data, Runtime.start(), init=init, workers=args.workers)
    curve = []
    if not (out / "status.json").exists():
        assert training.evaluation is not None
        before = training.evaluation(
            training.learner.working.model, length=recipe.sequence_length.values[0]
        )
        curve = [
            {
                "tokens": 0,
                "masked_loss": before["masked_loss"],
                "masked_accuracy": before["masked_accuracy"],
            }
        ]
    training.train(out, progress=False)
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    names = ("tokens", "masked_loss", "masked_accuracy", "sequence_length")
    curve += [
        {key: record[key] for key in names} for record in records if record["kind"] == "evaluation"
    ]
    return {
        "init": str(init) if init else None,
        "data": data,
        "steps": training.job.steps,
        "curve": curve,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", required=True, help="shards of the first corpus")
    parser.add_argument("--then", required=True, help="shards of the second")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recipe", default="demo")
    parser.add_argument("--first-tokens", type=int, default=2_400_000)
    parser.add_argument("--then-tokens", type=int, default=1_200_000)
    parser.add_argument("--evaluations", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    begin(args.out)

    def recipe(tokens: int) -> PretrainRecipe:
        chosen = replace(named(args.recipe), tokens=tokens, steps=None)
        return replace(chosen, evaluate_every=-(-chosen.total_steps // args.evaluations))

    results = {"first": run(recipe(args.first_tokens), args.first, args.out / "first", args)}
    then = recipe(args.then_tokens)
    results["continued"] = run(
        then, args.then, args.out / "continued", args, init=args.out / "first" / "final"
    )
    results["from nothing"] = run(then, args.then, args.out / "scratch", args)
    (args.out / "continued.json").write_text(json.dumps(results, indent=1) + "\n")
    for name in ("continued", "from nothing"):
        shown = [
            f"{point['tokens'] / 1e6:.1f} M: {point['masked_loss']:.2f}"
            for point in results[name]["curve"]
        ]
        print(f"{name:<13} {'   '.join(shown)}")


if __name__ == "__main__":
    main()
