"""The embedded models, step by step: a step's name in; its litebert commands run, several at a time
on one GPU, with a record of commands, exit codes and seconds out.

    python -m tools.make_models STEP … --out OUT [--jobs 6] [--minutes 9] [--dry-run]

    vocabulary  tokenizers from the corpus (--corpus), to be compared
    shards      shards of the corpus with --tokenizer, in OUT/shards
    probes      short pretraining runs that compare recipes (--tokens each)
    leg         one leg of pretraining (--leg N --tokens T [--last] [--init DIR])
    tune        nli, nli-all, answer, tag, sentiment and similarity from --model (--only to choose)
    score       models as they are stored (--model holds them): BLiMP, tasks, similarity, retrieval
    embed       models into a copy of the package's folder (--into), as they are shipped

--tasks is the folder that tools/model_data.py writes. Every command resumes: a step that was
stopped by --minutes (exit code 75) resumes when it is given again, and what is finished answers at
once.
--scale tiny makes a trial of minutes on a CPU. --dry-run prints the commands and runs none.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.common.results import begin
from litebert.files import write_json

Words = list[str]


@dataclass(frozen=True, kw_only=True)
class Command:
    """One run of litebert, or of a program of this repository."""

    name: str
    words: Words
    """`litebert …`, or `python -m …`."""
    out: Path | None = None
    """File that standard output is written to, as JSON."""
    after: tuple[str, ...] = field(default=())
    """Names of commands of the same step that must have finished before."""

    def __str__(self) -> str:
        return shlex.join(self.words) + (f" > {self.out}" if self.out else "")


TUNE: dict[str, tuple[str, str, Words]] = {
    # name: task, folder of TASKS, flags. Chosen by convention, not yet by measurement, except
    # that similarity has no --dev: STS-B dev scores and chooses nothing. --exits one reads every
    # depth by the model's own head, without a parameter more: a difference holds 1 MB.
    "nli": ("pair", "nli", ["--epochs", "3", "--batch-size", "64", "--max-length", "128",
                            "--encoder-dropout", "0.1", "--calibrate"]),
    "nli-all": ("pair", "nli-all", ["--epochs", "3", "--batch-size", "64", "--max-length", "128",
                                    "--encoder-dropout", "0.1"]),
    "answer": ("answer", "answer", ["--epochs", "4", "--batch-size", "32", "--max-length", "384"]),
    "tag": ("tag", "tag", ["--epochs", "4", "--batch-size", "32", "--max-length", "128"]),
    "sentiment": ("classify", "sentiment", ["--epochs", "3", "--batch-size", "64",
                                            "--max-length", "512", "--encoder-dropout", "0.1",
                                            "--exits", "one", "--calibrate"]),
    "similarity": ("embed", "similarity/train.csv", ["--epochs", "2", "--batch-size", "256",
                                                     "--max-length", "128"]),
}  # fmt: skip
"""What is tuned from the stored base."""
SEVERAL = ("sentiment",)
"""Several seeds, of which the best on dev ships: the card says so."""
TINY: Words = ["--steps", "4", "--batch-size", "4", "--max-length", "32", "--evaluations", "1"]
"""Instead of each run's own length, for a trial on a CPU."""
LENGTHS = {"--epochs", "--batch-size", "--max-length"}
PROBES: dict[str, Words] = {
    # against `affordable`, for litebert-base and litebert-small alike
    "control": [],
    "replaced": ["--objective", "rtd", "--mask-fraction", "0.2"],
    "no-order": ["--order", "none"],
    "cosine": ["--schedule", "cosine"],
    "batch-growth": ["--batch-size", "0:128,0.5:256"],
}
RETRIEVAL = {
    "--queries": "queries.jsonl",
    "--corpus": "corpus.jsonl",
    "--qrels": "qrels/test.tsv",
}
"""Files of a set in BEIR's layout, plain or .xz."""
VOCABULARIES: dict[str, Words] = {
    "uncased-30k": ["--vocab-size", "30000"],
    "cased-30k": ["--vocab-size", "30000", "--no-lowercase"],
}


def litebert(*words: object) -> Words:
    return ["litebert", *map(str, words)]


def vocabulary(args: argparse.Namespace) -> list[Command]:
    corpus = sorted(map(str, args.corpus.glob("*.txt.xz")))
    lines = ["--max-lines", "3000"] if args.scale == "tiny" else ["--max-lines", "300000"]
    commands = []
    for name, flags in VOCABULARIES.items():
        flags = ["--vocab-size", "800", *flags[2:]] if args.scale == "tiny" else flags
        target = args.out / "tokenizers" / name
        words = litebert("tokenizer", "train", *corpus, "--out", target, *lines, *flags)
        words.append("--overwrite")
        commands.append(Command(name=name, words=words))
    return commands


def shards(args: argparse.Namespace) -> list[Command]:
    corpus = sorted(map(str, args.corpus.glob("*.txt.xz")))
    words = litebert("data", "build", *corpus, "--tokenizer", args.tokenizer)
    words += ["--out", str(args.out / args.shards), "--workers", str(args.workers)]
    return [Command(name="shards", words=words)]


def shape(args: argparse.Namespace) -> Words:
    """The preset with the learning rate that was measured for it, or a tiny one."""
    if args.scale == "tiny":
        sizes = ["hidden_size=32", "num_layers=2", "num_attention_heads=2", "ffn_size=64"]
        sizes += ["embedding_size=16"]
        flags = ["--dtype", "float32", "--evaluate-every", "20", "--evaluate-tokens", "2000"]
        return ["--preset", "litebert-small", "--encoder", *sizes, *flags]
    rate = {"litebert-base": "4e-3", "litebert-small": "5e-3"}[args.preset]
    return ["--preset", args.preset, "--learning-rate", rate]


def pretraining(args: argparse.Namespace, out: Path, tokens: int) -> Words:
    words = litebert("pretrain", "--data", args.out / args.shards, "--out", out, *shape(args))
    words += ["--tokens", str(tokens), "--workers", str(args.workers), *limit(args)]
    return words + ([] if args.scale == "tiny" else ["--microbatch-tokens", "65536"]) + args.flags


def probes(args: argparse.Namespace) -> list[Command]:
    chosen = {name: PROBES[name] for name in args.only or PROBES}
    return [
        Command(
            name=name,
            words=pretraining(args, args.out / "probes" / f"{args.preset}-{name}", args.tokens)
            + flags,
        )
        for name, flags in chosen.items()
    ]


def leg(args: argparse.Namespace) -> list[Command]:
    """A constant learning rate after a short warm-up, another seed for each leg; only the last
    decays, over its second half, and reads 512 tokens in its last tenth."""
    out = args.out / args.preset / f"leg-{args.leg}"
    words = pretraining(args, out, args.tokens)
    words += ["--seed", str(args.leg), "--warmup", "300" if args.leg == 1 else "100"]
    init = args.init or (None if args.leg == 1 else out.with_name(f"leg-{args.leg - 1}"))
    if init is not None:
        words += ["--init", str(init)]
    if args.scale == "tiny":
        words[words.index("--warmup") + 1] = "2"
    if args.last:
        long = "0:128,0.9:64" if args.scale == "tiny" else "0:128,0.9:512"
        rows = "0:8,0.9:4" if args.scale == "tiny" else "0:128,0.9:32"
        words += ["--schedule", "stable", "--decay-fraction", "0.5"]
        words += ["--sequence-length", long, "--batch-size", rows]
    else:
        words += ["--schedule", "constant"]
        words += ["--batch-size", "8"] if args.scale == "tiny" else []
    return [Command(name=f"{args.preset}-leg-{args.leg}", words=words)]


def limit(args: argparse.Namespace) -> Words:
    return [] if args.minutes is None else ["--minutes", f"{left(args):.2f}"]


def left(args: argparse.Namespace) -> float:
    """Minutes until the limit of the whole step, when a command is made."""
    return max(float(args.minutes) - (time.monotonic() - args.began) / 60, 0.01)


def tune(args: argparse.Namespace) -> list[Command]:
    commands = []
    for name in args.only or TUNE:
        task, data, flags = TUNE[name]
        if args.scale == "tiny":
            own = list(zip(flags[::2], flags[1::2], strict=False))
            flags = [w for flag, value in own if flag not in LENGTHS for w in (flag, value)]
            flags = [each for each in flags if each != "--calibrate"] + TINY
        words = litebert("finetune", task, "--model", args.model, "--data", args.tasks / data)
        words += ["--out", str(args.out / name), *flags, "--json"]
        words += ["--seeds", str(args.seeds)] if name in SEVERAL else []
        words += args.flags
        commands.append(Command(name=name, words=words + limit(args)))
        if name == "similarity" and args.teacher is not None:
            commands += taught(args, words)
    return commands


def taught(args: argparse.Namespace, contrastive: Words) -> list[Command]:
    """With a teacher: first its vectors, then the pairs."""
    first = args.out / "similarity-vectors"
    words = litebert("finetune", "embed", "--model", args.model, "--teacher", args.teacher)
    words += ["--texts", str(args.tasks / "similarity/texts.txt"), "--out", str(first), "--json"]
    words += TINY if args.scale == "tiny" else ["--epochs", "3", "--batch-size", "256"]
    then = list(contrastive)
    then[then.index("--model") + 1] = str(first)
    then[then.index("--out") + 1] = str(args.out / "similarity-taught")
    return [
        Command(name="similarity-vectors", words=words + limit(args)),
        Command(name="similarity-taught", words=then + limit(args), after=("similarity-vectors",)),
    ]


def score(args: argparse.Namespace) -> list[Command]:
    """As stored: --model is a folder of embedded models, as the step embed writes."""
    scores, few = args.out / "scores", ["--limit", "2"] if args.scale == "tiny" else []

    def one(name: str, *words: object) -> Command:
        return Command(
            name=name, words=litebert("evaluate", *words, "--json"), out=scores / f"{name}.json"
        )

    similarity = ("--model", args.model / "similarity")
    commands = [
        one("blimp", "blimp", "--model", args.model / "base", "--data", args.blimp, *few),
        one("similarity", "similarity", *similarity, "--data", args.tasks / "similarity/dev.csv"),
    ]
    for folder in args.retrieval or [args.tasks / "retrieval/squad"]:
        files = []
        for flag, file in RETRIEVAL.items():
            packed = folder / f"{file}.xz"
            files += [flag, packed if packed.exists() else folder / file]
        commands.append(one(f"retrieval-{folder.name}", "retrieval", *similarity, *files))
    for name, task in (("sentiment", "classify"), ("pair", "pair"), ("answer", "answer"),
                       ("tag", "tag")):  # fmt: skip
        data = {"pair": "nli"}.get(name, name)
        commands.append(one(name, task, "--model", args.model / name, "--data", args.tasks / data))
    return [each for each in commands if not args.only or each.name in args.only]


def embed(args: argparse.Namespace) -> list[Command]:
    """--base is the pretrained run; the tuned ones are in OUT."""
    program = ["python", "-m", "tools.embed_model"]
    into = ["--into", str(args.into)]
    chosen = args.only or ["base", "sentiment", "pair", "answer", "tag", "similarity"]
    commands = []
    for name in chosen:
        facts = ["--facts", str(args.facts / f"{name}.json")]
        if name in ("base", "small"):
            words = [*program, str(args.base), "--name", name, *into, *facts]
            words += ["--alias", f"litebert-{name}"] + (["--first"] if name == "base" else [])
        else:
            run = args.runs.get(name, {"pair": "nli"}.get(name, name))
            words = [*program, str(args.out / run), "--name", name, *into, *facts]
            words += ["--based-on", "base"]
            words += ["--default-for", "embed"] if name == "similarity" else []
        before = ("base",) if "base" in chosen and name != "base" else ()
        commands.append(Command(name=name, words=words, after=before))
    return commands


STEPS: dict[str, Callable[[argparse.Namespace], list[Command]]] = {
    "vocabulary": vocabulary,
    "shards": shards,
    "probes": probes,
    "leg": leg,
    "tune": tune,
    "score": score,
    "embed": embed,
}


def run(command: Command, logs: Path) -> dict[str, Any]:
    """Run a command, its messages in LOGS/NAME.log."""
    words = command.words
    if words[0] == "litebert":
        words = [sys.executable, "-m", "litebert.cli", *words[1:]]
    elif words[0] == "python":
        words = [sys.executable, *words[1:]]
    began = time.monotonic()
    logs.mkdir(parents=True, exist_ok=True)
    with (logs / f"{command.name}.log").open("w") as log:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=log, env=os.environ, text=True)
    if command.out is not None and not done.returncode:
        command.out.parent.mkdir(parents=True, exist_ok=True)
        command.out.write_text(done.stdout)
    else:
        with (logs / f"{command.name}.log").open("a") as log:
            log.write(done.stdout)
    return {
        "name": command.name,
        "command": str(command),
        "exit_code": done.returncode,
        "seconds": round(time.monotonic() - began, 1),
    }


def run_all(commands: Sequence[Command], logs: Path, jobs: int) -> list[dict[str, Any]]:
    """All commands, `jobs` at a time; one that others wait for is run before them."""
    records: list[dict[str, Any]] = []
    waiting, failed = list(commands), set[str]()
    while waiting:
        names = {command.name for command in waiting}
        ready = [command for command in waiting if not names & set(command.after)]
        waiting = [command for command in waiting if names & set(command.after)]
        ready = [command for command in ready if not failed & set(command.after)]
        with ThreadPoolExecutor(jobs) as pool:
            for record in pool.map(lambda command: run(command, logs), ready):
                print(json.dumps(record), flush=True)
                records.append(record)
        failed |= {record["name"] for record in records if record["exit_code"]}
    return records


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", nargs="+", choices=STEPS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", type=Path, default=Path("tasks"))
    parser.add_argument("--corpus", type=Path, default=Path("corpus"))
    parser.add_argument("--tokenizer", type=Path, default=Path("tokenizers/base"))
    parser.add_argument("--shards", default="shards", help="name of the folder in OUT")
    parser.add_argument("--blimp", type=Path, default=Path("blimp"))
    parser.add_argument(
        "--retrieval", type=Path, nargs="+", help="folders in BEIR's layout; squad of TASKS"
    )
    parser.add_argument("--model", type=Path, default=Path("base"), help="what tuning starts from")
    parser.add_argument("--base", type=Path, help="the pretrained run that becomes base or small")
    parser.add_argument("--into", type=Path, help="copy of src/litebert/models")
    parser.add_argument("--facts", type=Path, default=Path("facts"), help="folder of NAME.json")
    parser.add_argument(
        "--run",
        nargs="+",
        default=[],
        metavar="NAME=RUN",
        help="embed a run of OUT of another name, such as similarity=similarity-taught",
    )
    parser.add_argument("--teacher", type=Path, help="vectors.npy, of tools/teacher_vectors.py")
    parser.add_argument("--preset", default="litebert-base")
    parser.add_argument("--leg", type=int, default=1)
    parser.add_argument("--last", action="store_true", help="of the legs: the rate decays")
    parser.add_argument("--init", type=Path, help="weights that a leg starts from")
    parser.add_argument("--tokens", type=int, default=60_000_000)
    parser.add_argument("--only", nargs="+", help="some of a step's runs")
    parser.add_argument(
        "--flags",
        type=shlex.split,
        default=[],
        help="more flags for the runs of probes, leg or tune, such as --flags='--objective rtd'",
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--workers", type=int, default=8, help="processes of a run")
    parser.add_argument("--minutes", type=float, help="after which all runs save and stop")
    parser.add_argument("--scale", choices=("full", "tiny"), default="full")
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args(words)
    args.began = time.monotonic()
    args.runs = dict(each.split("=", 1) for each in args.run)
    return args


def main() -> int:
    args = parse()
    if args.dry_run:
        for step in args.steps:
            print("\n".join(str(command) for command in STEPS[step](args)))
        return 0
    begin(args.out / "record")
    record = args.out / "record" / f"{'-'.join(args.steps)}.json"
    results: list[dict[str, Any]] = []
    for step in args.steps:
        results += run_all(STEPS[step](args), args.out / "logs", args.jobs)
        write_json(record, results)
        if any(each["exit_code"] not in (0, 75) for each in results):
            return 1
    return 75 if any(each["exit_code"] for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
