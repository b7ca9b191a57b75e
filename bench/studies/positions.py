"""What new positions should start as where a run continues with longer sequences: a run for each
start and seed.

    python -m bench.studies.positions --data SHARDS --out DIR [--starts as-they-are copies …] \\
        [--seeds 0 1 2] [--steps 1500]
    python -m bench.studies.positions --data SHARDS --out DIR --model CHECKPOINT \\
        --lengths 128 512 [--tokens 20000]

In miniature, on a CPU: a pre-norm model of four shared layers of width 128 reads 16 tokens at a
time, and 64 in the last 15 % of its steps, while the rate falls. Until then all runs of a seed are
the same, bit for bit. Held-out loss before the switch, at 64 before the first step there, and at
the end, and the training loss in between: DIR/positions.json and table.md. A run that is finished
is not run again. The shards that `litebert demo` leaves will do. With --model nothing is trained:
the held-out loss of a checkpoint that has read the first length, at the second, for each start;
DIR/before_training.json.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from bench.common.results import begin
from bench.common.tables import markdown
from litebert.data.stream import Stream
from litebert.files import write_json
from litebert.recipes import NAMED, OptimizerSpec, PretrainRecipe, Stages
from litebert.storage.checkpoint import Checkpoint
from litebert.train.log import read_records
from litebert.train.pretrain.evaluate import HeldoutScorer
from litebert.train.pretrain.init import extend_positions
from litebert.train.pretrain.run import Pretraining, example_spec
from litebert.train.runtime import Runtime

SHORT, LONG = 16, 64
SWITCH = 0.85
WINDOW = 10
"""Steps that a shown training loss is the mean of."""
SIZES = {
    "hidden_size": 128,
    "num_layers": 4,
    "num_attention_heads": 4,
    "ffn_size": 512,
    "max_positions": LONG,
}


def as_they_are(table: Tensor, new: range, seed: int) -> None:
    """Random, and small by weight decay."""


@torch.no_grad()
def louder(table: Tensor, new: range, seed: int) -> None:
    """The noise that is there, with the deviation of trained rows: how much of the harm is weight
    decay's?"""
    rows = table[new.start : new.stop]
    rows *= table[: new.start].std() / rows.std()


@torch.no_grad()
def copies(table: Tensor, new: range, seed: int = 0) -> None:
    """As Longformer starts them: row p is row p mod the trained ones."""
    table[new.start : new.stop] = table[torch.arange(new.start, new.stop) % new.start]


@torch.no_grad()
def marked(table: Tensor, new: range, seed: int) -> None:
    """Copies, each repetition moved by a random vector of its own: they can be told apart."""
    draw = torch.Generator().manual_seed(seed)
    marks = table[: new.start].std() * torch.randn(
        new.stop // new.start, table.shape[1], generator=draw
    )
    copies(table, new)
    table[new.start : new.stop] += marks[torch.arange(new.start, new.stop) // new.start]


def goes_on(table: Tensor, new: range, seed: int) -> None:
    """As litebert has it: of the short rows here copies, of longer ones a recurrence."""
    extend_positions(table, new)


STARTS = {
    "as-they-are": as_they_are,
    "louder": louder,
    "copies": copies,
    "marked": marked,
    "goes-on": goes_on,
}
"""What is done to rows that were never read, and are small by weight decay."""


def make_recipe(steps: int, seed: int) -> PretrainRecipe:
    """As many tokens in every step; weight decay and the learning-rate schedule as in the run that
    broke."""
    return replace(
        NAMED["demo"],
        overrides=(("norm", "pre"), *SIZES.items()),
        steps=steps,
        tokens=None,
        batch_size=Stages(((0, 64), (SWITCH, 64 * SHORT // LONG))),
        sequence_length=Stages(((0, SHORT), (SWITCH, LONG))),
        depth=None,
        seed=seed,
        optimizer=OptimizerSpec(
            name="muon", learning_rate=8e-3, weight_decay=0.1, schedule="stable", decay_fraction=0.3
        ),
        evaluate_every=round(SWITCH * steps),
        evaluate_tokens=100_000,
        save_every=0,
    )


def measure(name: str, seed: int, args: argparse.Namespace, runtime: Runtime) -> dict[str, Any]:
    """Run it, or find it finished; what it came to."""
    start, run = STARTS[name], args.out / f"{name}-seed{seed}"
    training = Pretraining(make_recipe(args.steps, seed), args.data, runtime)
    path = run / "first.json"

    def extend(positions: Tensor, new: range) -> None:
        start(positions, new, seed)
        assert training.evaluation is not None
        write_json(path, training.evaluation(training.learner.model, length=LONG))

    training.extend = extend
    training.train(run, progress=False)
    records = list(read_records(run / "metrics.jsonl"))
    before, end = (record for record in records if record["kind"] == "evaluation")
    losses = [
        r["masked_loss"] for r in records if r["kind"] == "step" and r["sequence_length"] == LONG
    ]
    first = json.loads(path.read_text())
    return {
        "start": name,
        "seed": seed,
        "steps": end["step"],
        "switch": before["step"],
        "before": round(before["masked_loss"], 3),
        "first": round(first["masked_loss"], 3),
        "end": round(end["masked_loss"], 3),
        "training": [round(mean(losses[i : i + WINDOW]), 3) for i in range(0, len(losses), WINDOW)],
    }


def before_training(args: argparse.Namespace, runtime: Runtime) -> None:
    """A checkpoint's held-out loss at a length that it has not read, for each start."""
    short, long = args.lengths
    recipe = replace(NAMED["affordable-post"], sequence_length=Stages.constant(long))
    evaluation = HeldoutScorer(
        Stream.open(args.data, example_spec(recipe), seed=0), runtime, tokens=args.tokens
    )
    rows = []
    for name in args.starts:
        model = Checkpoint.load(args.model).model.eval()
        STARTS[name](model.encoder.embedding.position.weight.data, range(short, long), 0)
        loss = evaluation(model, length=long)
        rows.append(
            {
                "start": name,
                "length": long,
                **{key: loss[key] for key in ("masked_loss", "heldout_tokens")},
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    write_json(args.out / "before_training.json", rows)


def table(rows: list[dict[str, Any]]) -> str:
    columns = ["new positions", "seed", f"held-out loss at {SHORT} tokens"]
    columns += [f"at {LONG}, before the first step there", "at the end"]
    losses = ("before", "first", "end")
    return markdown(
        columns,
        [[row["start"], row["seed"], *(f"{row[loss]:.3f}" for loss in losses)] for row in rows],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder of shards")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for the runs and what they came to"
    )
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=list(STARTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=1_500)
    parser.add_argument(
        "--model", type=Path, help="a checkpoint to try the starts on, without training"
    )
    parser.add_argument(
        "--lengths",
        nargs=2,
        type=int,
        default=(128, 512),
        help="of --model: what it has read, and what it is to",
    )
    parser.add_argument("--tokens", type=int, default=20_000, help="of --model: held-out tokens")
    args = parser.parse_args()
    begin(args.out, threads=torch.get_num_threads())
    runtime: Runtime = Runtime.start(device="cpu")
    if args.model is not None:
        before_training(args, runtime)
        return
    rows = []
    for name in args.starts:
        for seed in args.seeds:
            rows.append(measure(name, seed, args, runtime))
            print(json.dumps(rows[-1]), flush=True)
    write_json(args.out / "positions.json", rows)
    (args.out / "table.md").write_text(table(rows))


if __name__ == "__main__":
    main()
