"""Every benchmark for which there are files: fine-tuned from one pretrained model, beside what it has to beat.

    python bench/benchmarks.py --model DIR --data DIR --out DIR [--jobs 6] [--tasks sst2 rte …] [--table]

DATA holds glue/ (GLUE's own folders), squad/ (dev-v1.1.json, dev-v2.0.json, shifts/) and race/ (train, dev). Where only dev
is there (MNLI, QNLI, SQuAD 2) it is cut once by title or pair: four fifths train, one fifth is scored, and the row says so.
SQuAD 1.1 is learned from SQuAD-shifts. Each run is `litebert finetune` in a process of its own, --jobs at a time, with fewer
epochs than the paper; SST-2 also from random weights. --table trains nothing, it tabulates what is there.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from litebert.recipes import FinetuneRecipe
from litebert.tasks.baselines import bag_of_words, majority
from litebert.tasks.kept import load_predictions
from litebert.tasks.options import TableOptions
from litebert.tasks.registry import open_task
from litebert.tasks.score import by_slice, score

CUT = ("--split-dev", "0.2")
RUNS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    # name: task, data, flags
    "sst2": ("sst2", "glue/SST-2", ("--epochs", "2", "--batch-size", "64", "--evaluations", "6")),
    "sst2-random": ("sst2", "glue/SST-2", ("--epochs", "2", "--batch-size", "64", "--evaluations", "6", "--random-weights")),
    "squad1": ("squad1", "squad1", ("--epochs", "2", "--evaluations", "2")),
    "race": ("race", "race", ("--steps", "1000", "--batch-size", "16", "--evaluations", "2")),
    "squad2": ("squad2", "squad2", ("--epochs", "3", "--evaluations", "3", "--null-search", "train", *CUT)),
    "cola": ("cola", "glue/CoLA", ("--epochs", "4", "--batch-size", "32", "--evaluations", "8")),
    "stsb": ("stsb", "glue/STS-B", ("--epochs", "6", "--batch-size", "32", "--evaluations", "6")),
    "mnli": ("mnli", "glue/MNLI", ("--epochs", "4", "--batch-size", "32", "--evaluations", "4", *CUT)),
    "mrpc": ("mrpc", "glue/MRPC", ("--evaluations", "8")),
    "rte": ("rte", "glue/RTE", ("--evaluations", "8")),
    "qnli": ("qnli", "glue/QNLI", ("--epochs", "4", "--batch-size", "32", "--evaluations", "4", *CUT)),
    "wnli": ("wnli", "glue/WNLI", ("--epochs", "10", "--evaluations", "5")),
}
"""The longest first, so that none is left alone at the end."""


def arrange(data: Path, out: Path) -> dict[str, Path]:
    """Where each run's files are; SQuAD's in folders of their own, SQuAD-shifts as train."""
    places = {name: data / where for name, (_, where, _) in RUNS.items()}
    for name, version in (("squad1", "v1.1"), ("squad2", "v2.0")):
        folder = places[name] = out / "data" / name
        folder.mkdir(parents=True, exist_ok=True)
        links = {f"dev-{version}.json": data / "squad" / f"dev-{version}.json"}
        if name == "squad1":
            links |= {f"train-{file.stem}.json": file for file in sorted((data / "squad" / "shifts").glob("*.json"))}
        for link, target in links.items():
            if target.exists() and not (folder / link).exists():
                (folder / link).symlink_to(target.resolve())
    return places


def train(name: str, place: Path, args: argparse.Namespace) -> str:
    """One run, its messages in OUT/NAME.log."""
    task, _, flags = RUNS[name]
    command = [sys.executable, "-m", "litebert.cli", "finetune", task, "--model", args.model, "--data", str(place)]
    began = time.monotonic()
    with (args.out / f"{name}.log").open("w") as log:
        command += ["--out", str(args.out / name), "--json", *flags]
        status = subprocess.run(command, stdout=log, stderr=log, env=os.environ).returncode
    return f"{name}: exit {status}, {time.monotonic() - began:.0f} s"


def row(name: str, place: Path, out: Path) -> dict[str, Any]:
    """A finished run, its parts, and the baselines on the same examples."""
    result = json.loads((out / name / "result.json").read_text())
    recipe = FinetuneRecipe.from_dict(json.loads((out / name / "recipe.json").read_text())["recipe"])
    options = TableOptions(split_dev=0.2) if CUT[0] in RUNS[name][2] else None
    data = open_task(recipe.task, place, options=options)
    splits = data.splits
    task, examples, predictions = load_predictions(out / name / "dev_predictions.jsonl")
    assert [example.key for example in examples] == [example.key for example in splits["dev"]], name
    main = task.scores[0]
    slices = by_slice(task, examples, predictions) if recipe.task == "race" else []
    baselines = {one.__name__: one(task, splits["train"], examples) for one in (majority, bag_of_words)}
    return {
        "run": name,
        "task": recipe.task,
        "score": main,
        "train": len(splits["train"]),
        "dev": len(splits["dev"]),
        **{name: score(task, examples, said) for name, said in baselines.items()},
        "found": result["scores"],
        "slices": {part.name: part.scores[main] for part in slices},
        "best_step": result["best_step"],
        "steps": result["steps"],
        "seconds": result["seconds"],
        "rate": recipe.optimizer.rate,
        "note": "cut from dev: learned from four fifths of it, scored on the rest" if options else "",
    }


def table(rows: list[dict[str, Any]]) -> str:
    """For people: percentages; the correlations and Matthews's times 100."""
    lines = [
        "| run | score | train | dev | majority | bag of words | fine-tuned | other scores | note |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for found in rows:
        main = found["score"]
        others = {name: value for name, value in found["found"].items() if name != main and value is not None}
        shown = [f"{name} {100 * value:.1f}" for name, value in (others | found["slices"]).items()]
        numbers = [f"{100 * found[one][main]:.1f}" for one in ("majority", "bag_of_words", "found")]
        note = found["note"] or ("random weights" if found["run"].endswith("random") else "")
        cells = [found["run"], main, f"{found['train']:,}", f"{found['dev']:,}", *numbers[:2], f"**{numbers[2]}**"]
        lines.append(f"| {' | '.join(cells)} | {', '.join(shown)} | {note} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="", help="pretrained checkpoint, or a run's folder")
    parser.add_argument("--data", type=Path, required=True, help="folder with glue, squad and race")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs and tables")
    parser.add_argument("--tasks", nargs="+", default=list(RUNS), choices=RUNS)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--table", action="store_true", help="train nothing, only tabulate what is there")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    places = arrange(args.data, args.out)
    if not args.table:
        with ThreadPoolExecutor(args.jobs) as pool:
            for said in pool.map(lambda name: train(name, places[name], args), args.tasks):
                print(said, flush=True)
        return 0
    rows = [row(name, places[name], args.out) for name in args.tasks if (args.out / name / "result.json").exists()]
    (args.out / "table.json").write_text(json.dumps(rows, indent=1) + "\n")
    (args.out / "table.md").write_text(table(rows))
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
