"""What is missing of a study: rows × seeds, shards and task files in; jobs with their commands out.

A run is `litebert pretrain` (or a baseline's training), then what the study measures on the trained
model, then `litebert finetune` for each task. A row that starts from another waits for it, and an
ensemble waits for its members; weights that are needed and gone are trained again.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from litebert.checks import check_known
from litebert.data.shards import Shards
from litebert.errors import ConfigError, LitebertError
from litebert.files import read_json, write_file, write_json
from litebert.lab.estimate import training_bytes, training_flops
from litebert.lab.measure import measure, most_frequent_share
from litebert.lab.pool import Command, Job, Say
from litebert.lab.results import (
    BLIMP,
    FROZEN,
    PRETRAINED,
    PROBES,
    RECIPE,
    RESULT,
    SPEED,
    SPEED_RANKS,
    TEXT,
    VECTORS,
)
from litebert.lab.study import Row, Study
from litebert.recipes import PretrainRecipe
from litebert.tasks.registry import BENCHMARKS

_CLI = "litebert.cli"


@dataclass(frozen=True, kw_only=True)
class StudyInputs:
    """What runs read, and where."""

    data: Path
    more_data: Path | None = None
    """Folder of shards in the same vocabulary, for rows that are trained on more."""
    tasks: Path | None = None
    """Folder with glue/, squad/, race/, blimp/."""
    text: Path | None = None
    """A file that every model is scored on as well."""
    device: str = "auto"
    workers: int = 1

    def resolved(self) -> "StudyInputs":
        """The same, with absolute paths."""
        paths = {name: path for name, path in vars(self).items() if isinstance(path, Path)}
        return replace(self, **{name: path.resolve() for name, path in paths.items()})  # type: ignore[arg-type]

    def shards_of(self, row: Row) -> Path:
        if row.data == "":
            return self.data
        if self.more_data is None:
            raise ConfigError(
                f"row {row.name!r} is trained on other shards; name their folder with --more-data"
            )
        ours, theirs = (
            Shards.open(each).index["tokenizer"] for each in (self.data, self.more_data)
        )
        if ours != theirs:
            raise ConfigError(
                f"{self.data} and {self.more_data} hold tokens of two vocabularies, whose losses "
                "do not compare; build both with one tokenizer"
            )
        return self.more_data


def plan_study(
    study: Study,
    scale: str,
    out: Path,
    inputs: StudyInputs,
    *,
    seeds: int | None = None,
    say: Say = lambda line: None,
) -> list[Job]:
    """The jobs that are missing, in an order in which none waits for a later one."""
    planner = _Planner(
        study, scale, out, inputs, study.scale(scale).seeds if seeds is None else seeds
    )
    for row in study.rows:
        for number in range(1 if row.members and row.together == "all" else planner.seeds):
            planner.add(row, number)
    if planner.lacking:
        runs = sum(planner.lacking.values())
        say(
            f"{study.name}: finished runs lack {', '.join(planner.lacking)} ({runs} cells), and "
            f"their weights are gone; delete their {RESULT} to train them again"
        )
    return list(planner.jobs.values())


def find_tasks(names: Sequence[str], folder: Path | None) -> dict[str, str]:
    """Those tasks whose train and dev are in `folder`: GLUE's (also in glue/), squad/, race/; and
    blimp/."""
    places = {}
    for name in names:
        check_known("task", name, (*BENCHMARKS, "blimp"))
        inside = BENCHMARKS[name].folders if name in BENCHMARKS else (name,)
        paths = [folder / part / each for part in ("glue", "") for each in inside] if folder else []
        path = next((each for each in paths if _is_complete(name, each)), None)
        if path is not None:
            places[name] = str(path)
    return places


def _is_complete(task: str, path: Path) -> bool:
    """Whether a folder holds what a task is learned from and scored on."""
    if task not in BENCHMARKS:
        return path.is_dir()
    benchmark, splits = BENCHMARKS[task], ("train", "dev")
    return all(split in benchmark.splits and benchmark.find(path, split) for split in splits)


def run_folder(row: Row, seed: int) -> str:
    return f"{row.slug}-seed{seed}"


def _has_device_for(ranks: int, device: str) -> bool:
    """Whether so many ranks can be started: each has a GPU of its own, or all share a CPU's
    cores."""
    if device == "cpu":
        return True
    import torch

    return not torch.cuda.is_available() or (
        device in ("auto", "cuda") and torch.cuda.device_count() >= ranks
    )


class _Planner:
    def __init__(
        self, study: Study, scale: str, out: Path, inputs: StudyInputs, seeds: int
    ) -> None:
        self.study, self.scale_name, self.scale = study, scale, study.scale(scale)
        self.out, self.inputs, self.seeds = out, inputs, seeds
        self.tasks = find_tasks(self.scale.tasks, inputs.tasks)
        self.blimp = find_tasks(("blimp",), inputs.tasks).get("blimp")
        self.jobs: dict[tuple[str, int], Job] = {}
        self.light: set[tuple[str, int]] = set()
        """Finished runs of which only the weights are needed again."""
        self.lacking: Counter[str] = Counter()
        """What is asked for, was not measured, and cannot be without new weights; in how many
        runs."""

    def add(self, row: Row, seed: int) -> None:
        """The job of a run whose result is missing, that averages more runs by now, or of which
        more is to be measured."""
        path = self.out / run_folder(row, seed) / RESULT
        if not path.exists():
            self._job(row, seed)
            return
        result, members = read_json(path), self._members(row, seed)
        names = {run_folder(*member) for member in members}
        known = result.get("measured", self._asked(row))  # earlier versions did not write it down
        lacking = [name for name in self._asked(row) if name not in known]
        trained = [self.out / run_folder(*each) / PRETRAINED for each in members or [(row, seed)]]
        has_weights = all((folder / "final").exists() for folder in trained)
        if names.difference(result.get("members", ())) or (lacking and has_weights):
            self._job(row, seed)
        else:
            self.lacking.update(lacking)

    def _asked(self, row: Row) -> list[str]:
        """What is to be measured of a row once it is trained: probes, texts, tasks."""
        if self.study.kind != "pretrain":
            return []
        probes = self.study.measured
        vectors = [f"{task}{FROZEN}" for task in self.tasks if "vectors" in probes]
        if row.members or row.method != "encoder":
            return [*self.tasks] if row.members else vectors
        own = [each for each in probes if each != "vectors" and (each != "blimp" or self.blimp)]
        return [*own, *(["text"] if self.inputs.text else []), *vectors, *self.tasks]

    def _members(self, row: Row, seed: int) -> list[tuple[Row, int]]:
        """The runs that an ensemble averages."""
        seeds = range(self.seeds) if row.together == "all" else (seed,)
        return [(self.study.row(name), each) for name in row.members for each in seeds]

    def _job(self, row: Row, seed: int, *, weights_only: bool = False) -> Job:
        """The job of a run, and before it those whose weights it needs."""
        folder = self.out / run_folder(row, seed)
        if (row.name, seed) in self.jobs:
            job = self.jobs[row.name, seed]
            if (row.name, seed) in self.light and not weights_only:
                self.light.remove((row.name, seed))
                job.commands += self._after_training(row, folder, seed)
            return job
        folder.mkdir(parents=True, exist_ok=True)
        if row.members:
            job = self._ensemble(row, seed, folder)
        else:
            job = self._training(row, seed, folder, weights_only=weights_only)
        self.jobs[row.name, seed] = job
        return job

    def _training(self, row: Row, seed: int, folder: Path, *, weights_only: bool) -> Job:
        recipe = self.study.recipe(row, self.scale_name, seed=seed)
        write_file(folder / RECIPE, recipe.to_json())
        shards = self.inputs.shards_of(row)
        needs = []
        commands = self._pretraining(row, folder, recipe, shards)
        if row.start:
            start = self.study.row(row.start)
            weights = self.out / run_folder(start, seed) / PRETRAINED / "final"
            if not weights.exists():
                needs.append(self._job(start, seed, weights_only=True))
            commands[-1].words += ["--init", str(weights), *_shape(recipe)]
        if weights_only and (folder / RESULT).exists():
            self.light.add((row.name, seed))
        else:
            commands += self._after_training(row, folder, seed)
        cost = training_flops(recipe)

        def finish(job: Job) -> None:
            if (row.name, seed) in self.light:
                return
            share = most_frequent_share(shards)
            result = measure(self.study, folder, row=row.name, seed=seed, frequent=share)
            facts: dict[str, Any] = {"wall_seconds": job.seconds, "is_shared": job.is_shared}
            earlier = read_json(folder / RESULT) if (folder / RESULT).exists() else {}
            facts |= {name: earlier[name] for name in facts if name in earlier}
            flops = cost
            if self.scale.minutes is not None and "tokens" in result["scores"]:
                flops *= 1e6 * result["scores"]["tokens"] / recipe.tokens_in(recipe.total_steps)
            facts |= {"flops": flops, "measured": self._asked(row)}
            write_json(folder / RESULT, result | facts)

        return Job(
            study=self.study.name,
            folder=folder,
            commands=commands,
            finish=finish,
            cost=cost,
            set_seconds=None if self.scale.minutes is None else 60 * self.scale.minutes,
            memory=training_bytes(recipe) * self.scale.ranks,
            needs=needs,
            is_alone=self.study.kind == "speed" or self.scale.minutes is not None,
        )

    def _pretraining(
        self, row: Row, folder: Path, recipe: PretrainRecipe, shards: Path
    ) -> list[Command]:
        pretrained, device = str(folder / PRETRAINED), ["--device", self.inputs.device]
        read = ["--recipe", str(folder / RECIPE), "--data", str(shards), "--out", pretrained]
        if row.method != "encoder":
            trained = ["litebert.lab.baselines", "--method", row.method, *read, *device]
            return [Command(trained, output="training.txt")]
        words = [_CLI, "pretrain", *read, "--workers", str(self.inputs.workers), *device]
        rehearsal = [*words, "--dry-run", "--json"]
        if self.study.kind == "speed":
            timed = [Command(rehearsal, output=SPEED)]
            if self.scale.ranks > 1 and _has_device_for(self.scale.ranks, self.inputs.device):
                ranks = ["--standalone", "--nproc-per-node", str(self.scale.ranks)]
                launcher = ["torch.distributed.run", *ranks, "-m"]
                timed.append(Command([*launcher, *rehearsal], output=SPEED_RANKS))
            return timed
        minutes = self.scale.minutes
        if minutes is None:
            return [Command(words, output="training.txt")]

        def budget() -> list[str]:
            speed = read_json(folder / SPEED)["tokens_per_second"]
            return ["--tokens", str(max(int(60 * minutes * speed), 1))]

        timed = [] if _is_measured(folder / SPEED) else [Command(rehearsal, output=SPEED)]
        return [*timed, Command(words, output="training.txt", arguments=budget)]

    def _after_training(self, row: Row, folder: Path, seed: int) -> list[Command]:
        if self.study.kind != "pretrain":
            return []
        shards = self.inputs.shards_of(row)
        return [*self._measurements(row, folder, shards), *self._finetuning(row, folder, seed)]

    def _measurements(self, row: Row, folder: Path, shards: Path) -> Iterator[Command]:
        """What is measured on the trained model, without fine-tuning."""
        model = ["--model", str(folder / PRETRAINED)]
        device = ["--device", self.inputs.device]
        probes = [each for each in self.study.measured if each not in ("blimp", "vectors")]
        if row.method == "encoder" and probes:
            words = ["litebert.lab.probes", "--run", str(folder / PRETRAINED)]
            words += ["--data", str(shards), *device, "--measure", *probes]
            yield Command(words, output=PROBES)
        if row.method == "encoder" and "blimp" in self.study.measured and self.blimp:
            words = [_CLI, "evaluate", "blimp", *model, "--data", self.blimp, "--json", *device]
            limit = [] if self.scale.pairs is None else ["--limit", str(self.scale.pairs)]
            yield Command([*words, *limit], output=BLIMP)
        if row.method == "encoder" and self.inputs.text is not None:
            words = [_CLI, "evaluate", "masked", *model, "--data", str(self.inputs.text)]
            yield Command([*words, "--json", *device], output=TEXT)
        if "vectors" in self.study.measured and self.tasks:
            words = ["litebert.lab.vectors", *model, *device, "--tasks"]
            yield Command(
                [*words, *(f"{task}={place}" for task, place in self.tasks.items())],
                output=VECTORS,
            )

    def _finetuning(self, row: Row, folder: Path, seed: int) -> Iterator[Command]:
        if row.method != "encoder":
            return
        for task, place in self.tasks.items():
            words = [_CLI, "finetune", task, "--model", str(folder / PRETRAINED), "--data", place]
            words += ["--out", str(folder / task), "--seed", str(seed)]
            words += ["--device", self.inputs.device]
            for name, value in self.scale.finetune.items():
                words += [f"--{name.replace('_', '-')}", str(value)]
            yield Command(words, output=f"{task}.txt")

    def _ensemble(self, row: Row, seed: int, folder: Path) -> Job:
        """The average of fine-tuned models of several runs."""
        members = self._members(row, seed)
        folders = [self.out / run_folder(*member) for member in members]
        needs = []
        for member, there in zip(members, folders, strict=True):
            if not all((there / task / "final").exists() for task in self.tasks):
                needs.append(self._job(*member))
        commands = []
        for task, place in self.tasks.items():
            models = [str(each / task) for each in folders]
            words = [_CLI, "ensemble", task, "--data", place, "--everyone", "--json"]
            words += ["--device", self.inputs.device, "--models", *models]
            commands.append(Command(words, output=f"{task}.json"))
        if not commands:
            raise ConfigError(
                f"study {self.study.name}: row {row.name!r} averages fine-tuned models; name the "
                "folder of the task files with --tasks"
            )

        def finish(job: Job) -> None:
            scores = {}
            for task in self.tasks:
                record = read_json(folder / f"{task}.json")
                scores[task] = next(iter(record["everyone"].values()))
            result: dict[str, Any] = {"row": row.name, "seed": seed, "scores": {}, "tasks": scores}
            result |= {"curve": [], "members": [each.name for each in folders]}
            result["measured"] = self._asked(row)
            counted = [read_json(each / RESULT).get("parameters", 0) for each in folders]
            result["parameters"] = sum(counted)
            write_json(folder / RESULT, result | {"wall_seconds": job.seconds})

        return Job(self.study.name, folder, commands, finish, needs=needs)


def _shape(recipe: PretrainRecipe) -> list[str]:
    """Flags that keep the recipe's own shape beside --init, whose shape would be taken."""
    pairs = [
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in dict(recipe.overrides).items()
    ]
    return ["--preset", recipe.preset, *(["--encoder", *pairs] if pairs else [])]


def _is_measured(path: Path) -> bool:
    try:
        return "tokens_per_second" in read_json(path)
    except LitebertError:
        return False
