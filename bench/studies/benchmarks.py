"""Every benchmark for which there are files: fine-tuned from one pretrained model, beside what it
has to beat.

    python -m bench.studies.benchmarks --model DIR --data DIR --out DIR [--jobs 6] \\
        [--tasks sst2 rte …] [--seeds 5] [--settings chosen.json] [--start rte=RUN …] \\
        [--minutes 9] [--table]

DATA holds glue/ (GLUE's own folders), squad/ (dev-v1.1.json, dev-v2.0.json, shifts/) and race/
(train, dev). Where only dev is there (MNLI, QNLI, SQuAD 2) it is cut once by title or pair: four
fifths train, one fifth is scored, and the row says so. SQuAD 1.1 is learned from SQuAD-shifts. Each
run is `litebert finetune` in a process of its own, --jobs at a time, with fewer epochs than the
paper; the small ones of GLUE from several seeds, of which the table has the median; SST-2 also
without dropout and from random weights. --settings are flags by run, as bench/studies/choose.py
picks them on a part of train. --start lets a run begin with other weights, as RTE, MRPC and STS-B
may with those of an NLI model; the row says so. After --minutes all runs save and stop, and the
same command resumes them. --table trains nothing, it tabulates what is there as
OUT/benchmarks.json and OUT/benchmarks.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.common.results import begin
from bench.common.tables import markdown
from litebert.files import write_json
from litebert.recipes import FinetuneRecipe
from litebert.tasks.predictions import load_predictions
from litebert.tasks.registry import open_task
from litebert.tasks.scores.baselines import bag_of_words, majority
from litebert.tasks.scores.score import by_slice, score
from litebert.tasks.tables.columns import TableOptions

CUT = ("--split-dev", "0.2")
SST2 = ("--epochs", "3", "--batch-size", "64", "--encoder-dropout", "0.1", "--evaluations", "8")
"""Without dropout (sst2-plain) two epochs learn train by heart, and dev stops at 85."""
RUNS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    # name: task, data, flags
    "race": ("race", "race", ("--steps", "800", "--batch-size", "32", "--evaluations", "2")),
    "squad1": ("squad1", "squad1", ("--epochs", "3", "--evaluations", "3")),
    "squad2": (
        "squad2",
        "squad2",
        ("--epochs", "3", "--evaluations", "3", "--null-search", "train", *CUT),
    ),
    "sst2": ("sst2", "glue/SST-2", SST2),
    "rte": ("rte", "glue/RTE", ("--evaluations", "8")),
    "stsb": ("stsb", "glue/STS-B", ("--epochs", "6", "--batch-size", "32", "--evaluations", "6")),
    "cola": ("cola", "glue/CoLA", ("--epochs", "5", "--batch-size", "32", "--evaluations", "10")),
    "mrpc": ("mrpc", "glue/MRPC", ("--evaluations", "8")),
    "sst2-plain": (
        "sst2",
        "glue/SST-2",
        ("--epochs", "2", "--batch-size", "64", "--evaluations", "6"),
    ),
    "sst2-random": ("sst2", "glue/SST-2", (*SST2, "--random-weights")),
    "mnli": (
        "mnli",
        "glue/MNLI",
        ("--epochs", "4", "--batch-size", "32", "--evaluations", "4", *CUT),
    ),
    "qnli": (
        "qnli",
        "glue/QNLI",
        ("--epochs", "4", "--batch-size", "32", "--evaluations", "4", *CUT),
    ),
    "wnli": ("wnli", "glue/WNLI", ("--epochs", "10", "--evaluations", "5")),
}
"""The longest first, so that none is left alone at the end."""
SEVERAL = ("sst2", "sst2-plain", "cola", "mrpc", "stsb", "rte")
"""Runs whose dev sets are small: the median of several seeds says more."""
APART = ("sst2", "sst2-plain")
"""Of these, the ones so long that each seed has a process of its own."""


CUT_NOTE = "cut from dev: learned from four fifths of it, scored on the rest"
BEGUN = "begun.json"
"""In OUT: by run its command, what it started from and whether its settings were chosen."""
NOTES = {"race": "800 steps, three tenths of an epoch", "squad1": "learned from SQuAD-shifts"}


def arrange(data: Path, out: Path) -> dict[str, Path]:
    """Where each run's files are; SQuAD's in folders of their own, SQuAD-shifts as train."""
    places = {name: data / where for name, (_, where, _) in RUNS.items()}
    for name, version in (("squad1", "v1.1"), ("squad2", "v2.0")):
        folder = places[name] = out / "data" / name
        folder.mkdir(parents=True, exist_ok=True)
        links = {f"dev-{version}.json": data / "squad" / f"dev-{version}.json"}
        if name == "squad1":
            links |= {
                f"train-{file.stem}.json": file
                for file in sorted((data / "squad" / "shifts").glob("*.json"))
            }
        for link, target in links.items():
            if target.exists() and not (folder / link).exists():
                (folder / link).symlink_to(target.resolve())
    return places


def train(name: str, seed: int | None, place: Path, args: argparse.Namespace) -> int:
    """One run, or one seed of it, its messages in OUT/NAME.log; its exit code."""
    task, _, flags = RUNS[name]
    flags = merged(flags, args.chosen.get(name, ()))
    label, out = (
        (name, args.out / name)
        if seed is None
        else (f"{name}-{seed}", args.out / name / f"seed-{seed}")
    )
    command = [
        sys.executable,
        "-m",
        "litebert.cli",
        "finetune",
        task,
        "--model",
        args.starts.get(name, args.model),
        "--data",
        str(place),
    ]
    command += ["--out", str(out), "--json", *flags]
    if seed is not None:
        command += ["--seed", str(seed)]
    elif name in SEVERAL:
        command += ["--seeds", str(args.seeds)]
    if args.minutes is not None:
        left = args.minutes - (time.monotonic() - args.began) / 60
        command += ["--minutes", f"{max(left, 0.01):.2f}"]
    began = time.monotonic()
    with (args.out / f"{label}.log").open("w") as log:
        status = subprocess.run(command, stdout=log, stderr=log, env=os.environ).returncode
    print(f"{label}: exit {status}, {time.monotonic() - began:.0f} s", flush=True)
    return status


def worst(codes: Iterable[int]) -> int:
    """1 where a run failed, else 75 where one was stopped, else 0."""
    known = set(codes)
    return 1 if known - {0, 75} else max(known, default=0)


def merged(flags: Sequence[str], chosen: Sequence[str]) -> tuple[str, ...]:
    """The flags of a run, of which the chosen ones replace those of the same name."""
    names = {word for word in chosen if word.startswith("--")}
    result: list[str] = []
    is_kept = True
    for word in flags:
        is_kept = word not in names if word.startswith("--") else is_kept
        result += [word] * is_kept
    return (*result, *chosen)


def started(record: Mapping[str, Any]) -> str:
    """A note on what a run began with, where that was not the pretrained model."""
    return f"starts from a model fine-tuned on {record['start']}" if record.get("start") else ""


def seeds_of(run: Path) -> list[Path]:
    """The folders of a run's seeds, or of itself where it has one seed, as far as they are
    finished."""
    return [
        folder
        for folder in (sorted(run.glob("seed-*")) or [run])
        if (folder / "result.json").exists()
    ]


def row(name: str, place: Path, out: Path) -> dict[str, Any]:
    """A finished run, its parts, and the baselines on the same examples; of several seeds the
    median of each score."""
    folders = seeds_of(out / name)
    begun = json.loads((out / BEGUN).read_text()) if (out / BEGUN).exists() else {}
    revision = json.loads((folders[0] / "environment.json").read_text()).get("revision")
    results = [json.loads((folder / "result.json").read_text()) for folder in folders]
    recipe = FinetuneRecipe.from_dict(
        json.loads((folders[0] / "recipe.json").read_text())["recipe"]
    )
    options = TableOptions(split_dev=0.2) if CUT[0] in RUNS[name][2] else None
    splits = open_task(recipe.task, place, options=options).splits
    task, examples, predictions = load_predictions(folders[0] / "dev_predictions.jsonl")
    assert [example.key for example in examples] == [example.key for example in splits["dev"]], name
    main = task.scores[0]
    slices = by_slice(task, examples, predictions) if recipe.task == "race" else []
    baselines = {
        one.__name__: one(task, splits["train"], examples) for one in (majority, bag_of_words)
    }
    of_runs = [result["scores"] for result in results]
    known = [name for name, value in of_runs[0].items() if value is not None]
    return {
        "run": name,
        "task": recipe.task,
        "score": main,
        "train": len(splits["train"]),
        "dev": len(splits["dev"]),
        **{name: score(task, examples, each) for name, each in baselines.items()},
        "found": {name: statistics.median(scores[name] for scores in of_runs) for name in known},
        "seeds": [scores[main] for scores in of_runs],
        "slices": {part.name: part.scores[main] for part in slices},
        "best_steps": [result["best_step"] for result in results],
        "steps": results[0]["steps"],
        "seconds": round(sum(result["seconds"] for result in results), 1),
        "rate": recipe.optimizer.learning_rate,
        "note": "; ".join(
            note
            for note in (
                CUT_NOTE if options else NOTES.get(name, ""),
                started(begun.get(name, {})),
                "settings chosen on a part of train" if begun.get(name, {}).get("chosen") else "",
            )
            if note
        ),
        "revision": revision,
        "command": begun.get(name, {}).get("command", ""),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """For people: percentages; the correlations and Matthews's times 100."""
    columns = "run,score,train,dev,majority,bag of words,fine-tuned,other scores,note"
    lines = []
    for result in rows:
        main = result["score"]
        others = {name: value for name, value in result["found"].items() if name != main}
        shown = [f"{name} {100 * value:.1f}" for name, value in (others | result["slices"]).items()]
        compared = ("majority", "bag_of_words", "found")
        numbers = [f"{100 * result[each][main]:.1f}" for each in compared]
        note = result["note"] or ("random weights" if result["run"].endswith("random") else "")
        if len(result["seeds"]) > 1:
            lowest, highest = min(result["seeds"]), max(result["seeds"])
            seeds = f"median of {len(result['seeds'])} seeds"
            seeds += f", {100 * lowest:.1f} to {100 * highest:.1f}"
            note = "; ".join(filter(None, (note, seeds)))
        cells = [
            result["run"],
            main,
            f"{result['train']:,}",
            f"{result['dev']:,}",
            *numbers[:2],
            f"**{numbers[2]}**",
        ]
        lines.append([*cells, ", ".join(shown), note])
    return markdown(columns.split(","), lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="", help="pretrained checkpoint, or a run's folder")
    parser.add_argument("--data", type=Path, required=True, help="folder with glue, squad and race")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs and tables")
    parser.add_argument("--tasks", nargs="+", default=list(RUNS), choices=RUNS)
    parser.add_argument("--seeds", type=int, default=5, help="of the small tasks of GLUE")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--settings", type=Path, help="JSON of flags by run, of choose.py")
    parser.add_argument(
        "--start", nargs="+", default=[], metavar="RUN=DIR", help="other weights for some runs"
    )
    parser.add_argument("--minutes", type=float, help="after which all runs save and stop")
    parser.add_argument(
        "--table", action="store_true", help="train nothing, only tabulate what is there"
    )
    args = parser.parse_args()
    args.began = time.monotonic()
    args.starts = dict(each.split("=", 1) for each in args.start)
    args.chosen = json.loads(args.settings.read_text()) if args.settings else {}
    begin(args.out)
    places = arrange(args.data, args.out)
    if not args.table:
        seeds = {name: range(args.seeds) if name in APART else [None] for name in args.tasks}
        runs = [(name, seed) for name in args.tasks for seed in seeds[name]]
        begun = {
            name: {
                "command": " ".join(["litebert finetune", RUNS[name][0], *flags]),
                "start": Path(args.starts[name]).name if name in args.starts else None,
                "chosen": name in args.chosen,
            }
            for name in args.tasks
            for flags in [merged(RUNS[name][2], args.chosen.get(name, ()))]
        }
        before = json.loads((args.out / BEGUN).read_text()) if (args.out / BEGUN).exists() else {}
        write_json(args.out / BEGUN, before | begun)
        with ThreadPoolExecutor(args.jobs) as pool:
            return worst(pool.map(lambda run: train(run[0], run[1], places[run[0]], args), runs))
    rows = [row(name, places[name], args.out) for name in args.tasks if seeds_of(args.out / name)]
    (args.out / "benchmarks.json").write_text(json.dumps(rows, indent=1) + "\n")
    (args.out / "benchmarks.md").write_text(table(rows))
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
