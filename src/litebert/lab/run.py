"""Run studies: what is missing of rows × seeds in; folders of run folders out.

The same command again resumes. STUDY_FOLDER/ROW-seed0/ holds the folder `pretrain`, one for each
task, log.txt and result.json.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from litebert.data.shards import Shards
from litebert.errors import CheckpointError, ConfigError
from litebert.files import read_json, sha256, write_json
from litebert.lab.estimate import device_memory, stored_rate
from litebert.lab.plan import StudyInputs, find_tasks, plan_study
from litebert.lab.pool import Pool, PoolLimits, Say
from litebert.lab.results import ENVIRONMENT, STUDY, writing
from litebert.lab.runners import RunnerName, open_runner
from litebert.lab.study import Row, Scale, Study, read_study
from litebert.train.folder import environment

Chosen = tuple[Study, str, Path]
"""A study, its scale and its folder."""
_OTHERS = {
    "data": "runs on other shards than those of --data",
    "more_data": "runs on other shards than those of --more-data",
    "text": "scores on another file than that of --text",
}


def run_studies(
    chosen: Sequence[Chosen],
    inputs: StudyInputs,
    *,
    seeds: int | None = None,
    jobs: int = 1,
    minutes: float | None = None,
    runner: RunnerName = "processes",
    say: Say,
) -> list[str]:
    """Run what is missing of all studies; a line for each run that failed.

    Raises:
        InterruptedRunError: `minutes` are over, or a signal came; the same call resumes them.
    """
    if jobs < 1 or (seeds is not None and seeds < 1):
        raise ConfigError(f"jobs and seeds are at least 1; got {jobs} and {seeds}")
    if minutes is not None and minutes <= 0:
        raise ConfigError(f"minutes is more than 0; got {minutes:g}")
    if runner == "ray":  # workers of a cluster have working directories of their own
        chosen = [(study, scale, out.resolve()) for study, scale, out in chosen]
        inputs = inputs.resolved()
    contents = _contents(inputs)
    planned, rates = [], {}
    for study, scale, out in chosen:
        write_study_file(study, scale, out, contents)
        _tell_missing(study, scale, inputs, say)
        planned += plan_study(study, scale, out, inputs, seeds=seeds, say=say)
        rate = stored_rate(out)
        if rate is not None:
            rates[study.name] = rate
    memory = device_memory(inputs.device) if jobs > 1 and runner == "processes" else float("inf")
    limits = PoolLimits(jobs=jobs, memory=memory, minutes=minutes)
    with open_runner(runner, jobs=jobs, device=inputs.device) as launch:
        return Pool(planned, launch, limits, say, rates).run()


def _contents(inputs: StudyInputs) -> dict[str, str]:
    """Fingerprints of the inputs, not paths, since packs travel. Inputs that cannot be read are
    refused here, before the first run."""
    folders = {"data": inputs.data, "more_data": inputs.more_data}
    contents = {name: Shards.open(path).fingerprint for name, path in folders.items() if path}
    for path, flag in ((inputs.tasks, "--tasks"), (inputs.text, "--text")):
        if path is not None and not path.exists():
            raise ConfigError(f"{path}, given with {flag}, is not there")
    if inputs.text is not None and inputs.text.is_file():
        contents["text"] = sha256(inputs.text)
    return contents


def _tell_missing(study: Study, scale: str, inputs: StudyInputs, say: Say) -> None:
    wanted = [*study.scale(scale).tasks, *(["blimp"] if "blimp" in study.probes else [])]
    there = find_tasks(wanted, inputs.tasks)
    missing = [task for task in wanted if task not in there]
    if missing:
        names = ", ".join(missing)
        say(f"{study.name}: no train and dev files for {names}; these tasks are left out")


def open_study(folder: Path) -> tuple[Study, str]:
    """The study in a folder, and its scale."""
    try:
        record = read_json(folder / STUDY)
        settings, scale = record["study"], record["scale"]
    except (CheckpointError, KeyError) as error:
        raise ConfigError(
            f"{folder} is no folder of a study ({error}); litebert lab run makes one"
        ) from error
    return read_study(settings), scale


def write_study_file(
    study: Study, scale: str, out: Path, contents: Mapping[str, str] | None = None
) -> None:
    """Write down the study and the fingerprints of what it reads, or refuse a folder of another
    study or of other data."""
    study.scale(scale)
    known: dict[str, str] = {}  # folders of earlier versions have none
    if (out / STUDY).exists():
        other, other_scale = open_study(out)
        is_same = other_scale == scale and _shared(study, scale) == _shared(other, scale)
        ours, theirs = (_asked(each, scale) for each in (study, other))
        if not is_same or any(ours[name] != theirs[name] for name in ours.keys() & theirs):
            raise ConfigError(
                f"{out} holds study {other.name} at scale {other_scale} with other settings; "
                "choose another --out"
            )
        known = read_json(out / STUDY).get("inputs", {})
    for name, content in (contents or {}).items():
        if known.get(name, content) != content:
            raise ConfigError(f"{out} holds {_OTHERS[name]}; choose another --out")
    record = {"study": asdict(study), "scale": scale}
    inputs = known | dict(contents or {})
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        if not (out / ENVIRONMENT).exists():
            write_json(out / ENVIRONMENT, environment())
        write_json(out / STUDY, record | ({"inputs": inputs} if inputs else {}))


def _shared(study: Study, scale: str) -> Scale:
    """What all runs of a scale have in common; seeds may be added later."""
    return replace(study.scale(scale), seeds=1, note="")


def _asked(study: Study, scale: str) -> dict[str, Row]:
    """What decides the runs of each row at this scale, by name."""
    return {
        row.name: replace(row, at={scale: row.at.get(scale, {})}, paper={}) for row in study.rows
    }
