"""Run a study: what is missing of rows × seeds in; a folder of run folders out.

Every run is `litebert pretrain`, then `litebert finetune` for each task, in processes of their own:
a run that fails is reported and the others continue, several share a device, and the same command
again resumes. STUDY_FOLDER/ROW-seed0/ holds the run's folder `pretrain`, one for each task, log.txt
and result.json.
"""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from litebert.errors import CheckpointError, ConfigError, InterruptedRunError
from litebert.files import read_json, write_file, write_json
from litebert.lab.results import OUTPUT, PRETRAINED, RESULT, measure, most_frequent_share
from litebert.lab.study import Row, Study, read_study, write_study
from litebert.model.count import flops_per_token
from litebert.recipes import PretrainRecipe

STUDY, RECIPE, LOG = "study.json", "recipe.json", "log.txt"
_TASK_FOLDERS = {
    "cola": "CoLA",
    "sst2": "SST-2",
    "mrpc": "MRPC",
    "stsb": "STS-B",
    "qqp": "QQP",
    "mnli": "MNLI",
    "qnli": "QNLI",
    "rte": "RTE",
    "wnli": "WNLI",
}
_POLL_SECONDS, _REPORT_SECONDS = 0.2, 30.0
_INTERRUPTED = 75

Say = Callable[[str], None]


@dataclass
class _Run:
    """One row with one seed: a queue of commands in one folder."""

    row: Row
    seed: int
    folder: Path
    commands: list[list[str]]
    """What `litebert` is called with, one after the other."""
    cost: float
    """FLOPs of its pretraining: what the remaining time is estimated by."""
    process: "subprocess.Popen[bytes] | None" = None
    began: float = 0.0
    error: str | None = None

    @property
    def name(self) -> str:
        return self.folder.name


def run_study(
    study: Study,
    scale: str,
    out: Path,
    *,
    data: Path,
    tasks: Path | None = None,
    seeds: int | None = None,
    jobs: int = 1,
    device: str = "auto",
    workers: int = 1,
    say: Say,
) -> list[str]:
    """Run what is missing; a line for each run that failed.

    `data` is a folder of shards, `tasks` one that holds glue/, squad/ or race/; `jobs` runs at a
    time share the device.
    """
    if jobs < 1 or (seeds is not None and seeds < 1):
        raise ConfigError(f"jobs and seeds are at least 1; got {jobs} and {seeds}")
    chosen = study.scale(scale)
    write_study_file(study, scale, out)
    files = find_tasks(chosen.tasks, tasks)
    runs = []
    for row in study.rows:
        for seed in range(chosen.seeds if seeds is None else seeds):
            folder = out / f"{_slug(row.name)}-seed{seed}"
            if (folder / RESULT).exists():
                continue
            recipe = study.recipe(row, scale, seed=seed)
            folder.mkdir(parents=True, exist_ok=True)
            write_file(folder / RECIPE, recipe.to_json())
            commands = _commands(study, folder, data, files, seed=seed)
            commands = [[*command, "--device", device] for command in commands]
            commands[0] += ["--workers", str(workers)]
            cost = recipe.tokens_in(recipe.total_steps) * flops_per_token(
                recipe.encoder, seq=max(recipe.sequence_length.values), training=True
            )
            runs.append(_Run(row, seed, folder, commands, cost))
    missing = [task for task in chosen.tasks if task not in files]
    if missing:
        say(f"no files for {', '.join(missing)}: these tasks are left out")
    frequent = most_frequent_share(data)

    def finish(run: _Run) -> None:
        result = measure(run.folder, row=run.row.name, seed=run.seed, frequent=frequent)
        if study.chart == "distances":
            from litebert.lab.distances import layer_distances  # and torch

            result["distances"] = layer_distances(run.folder / PRETRAINED / "final", data)
        write_json(run.folder / RESULT, result)

    return _execute(runs, jobs, finish, say)


def _commands(
    study: Study, folder: Path, data: Path, tasks: Mapping[str, str], *, seed: int
) -> list[list[str]]:
    """The commands of one run."""
    pretrained = str(folder / PRETRAINED)
    pretrain = ["pretrain", "--recipe", str(folder / RECIPE), "--data", str(data)]
    if study.kind == "speed":
        return [[*pretrain, "--out", pretrained, "--dry-run", "--json"]]
    finetune = [
        ["finetune", task, "--model", pretrained, "--data", place, "--out", str(folder / task)]
        for task, place in tasks.items()
    ]
    return [[*pretrain, "--out", pretrained], *([*each, "--seed", str(seed)] for each in finetune)]


def open_study(folder: Path) -> tuple[Study, str]:
    """The study in a folder, and its scale."""
    try:
        record = read_json(folder / STUDY)
    except CheckpointError as error:
        raise ConfigError(
            f"{folder} is no folder of a study ({error}); litebert lab run makes one"
        ) from error
    return read_study(record["study"]), record["scale"]


def find_tasks(names: Sequence[str], folder: Path | None) -> dict[str, str]:
    """Those tasks whose files are in `folder`: GLUE's (also in glue/), squad/, race/."""
    found = {}
    for name in names:
        inside = _TASK_FOLDERS.get(name, "race" if name == "race" else "squad")
        for place in (folder / "glue" / inside, folder / inside) if folder else ():
            if place.is_dir():
                found[name] = str(place)
                break
    return found


def write_study_file(study: Study, scale: str, out: Path) -> None:
    """Write down the study, or refuse a folder of another one."""
    study.scale(scale)
    if (out / STUDY).exists():
        other, other_scale = open_study(out)
        settings = [(each.name, dict(each.settings)) for each in study.rows]
        others = [(each.name, dict(each.settings)) for each in other.rows]
        is_same = study.scale(scale) == other.scales.get(scale)
        shared = [each for each in others if each[0] in dict(settings)]
        if other_scale != scale or not is_same or any(each not in settings for each in shared):
            raise ConfigError(
                f"{out} holds study {other.name} at scale {other_scale} with other settings; "
                "choose another --out"
            )
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / STUDY, {"study": write_study(study), "scale": scale})


def _execute(runs: list[_Run], jobs: int, finish: Callable[[_Run], None], say: Say) -> list[str]:
    """Run all, `jobs` at a time, with a line now and then on how far they are."""
    waiting = list(runs)
    running: list[_Run] = []
    done: list[_Run] = []
    began = reported = time.monotonic()
    say(f"{len(runs)} runs to do" + (f", {jobs} at a time" if jobs > 1 else ""))
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                run = waiting.pop(0)
                _start(run)
                running.append(run)
            time.sleep(_POLL_SECONDS)
            for run in list(running):
                if _advance(run, finish):
                    running.remove(run)
                    done.append(run)
                    verdict = f"failed: {run.error}" if run.error else "finished"
                    say(f"{len(done)} of {len(runs)}: {run.name} {verdict}")
            if time.monotonic() - reported > _REPORT_SECONDS and running:
                reported = time.monotonic()
                say(_progress(runs, done, running, reported - began))
    except BaseException:
        for run in running:
            _stop(run)
        raise
    return [f"{run.name}: {run.error}" for run in done if run.error]


def _start(run: _Run) -> None:
    run.began = run.began or time.monotonic()
    command = [sys.executable, "-m", "litebert.cli", *run.commands[0]]
    with (run.folder / OUTPUT).open("wb") as output, (run.folder / LOG).open("ab") as log:
        run.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=log, start_new_session=True
        )


def _advance(run: _Run, finish: Callable[[_Run], None]) -> bool:
    """Whether the run has ended; starts its next command, and writes its result at the end."""
    assert run.process is not None
    code = run.process.poll()
    if code is None:
        return False
    if code == _INTERRUPTED:
        raise InterruptedRunError(f"{run.name} was interrupted; the same command resumes")
    if code:
        run.error = _last_line(run.folder / LOG) or f"exit code {code}"
        return True
    run.commands.pop(0)
    if run.commands:
        _start(run)
        return False
    finish(run)
    return True


def _stop(run: _Run) -> None:
    """Let a process save and end."""
    if run.process is not None and run.process.poll() is None:
        run.process.send_signal(signal.SIGTERM)
        run.process.wait()


def _progress(
    runs: Sequence[_Run], done: Sequence[_Run], running: Sequence[_Run], seconds: float
) -> str:
    total = sum(run.cost for run in runs)
    spent = sum(run.cost for run in done) + sum(run.cost * _fraction(run) for run in running)
    left = f", about {_minutes(seconds * (total - spent) / spent)} left" if spent else ""
    now = ", ".join(f"{run.name} {100 * _fraction(run):.0f} %" for run in running)
    return f"{len(done)} of {len(runs)} runs finished; {now}{left}"


def _fraction(run: _Run) -> float:
    """How much of its pretraining a run has done."""
    try:
        lines = (run.folder / PRETRAINED / "metrics.jsonl").read_text().splitlines()
        step = next(r["step"] for r in map(json.loads, reversed(lines)) if r["kind"] == "step")
        recipe = read_json(run.folder / RECIPE)
    except (OSError, ValueError, KeyError, StopIteration, CheckpointError):
        return 0.0
    return min(float(step) / PretrainRecipe.from_dict(recipe).total_steps, 1.0)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "row"
