"""litebert lab: studies, the paper's tables among them. A study and shards in; run folders, a table
and a picture out."""

from pathlib import Path
from typing import Annotated, Literal, get_args

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from litebert.commands.marks import Device, Json
from litebert.errors import ConfigError, LitebertError
from litebert.files import to_json, write_file
from litebert.lab.catalog import STUDIES, find_study
from litebert.lab.estimate import describe_costs
from litebert.lab.pack import pack_studies, unpack_studies
from litebert.lab.plan import StudyInputs
from litebert.lab.plot import plot as draw
from litebert.lab.pool import minutes_of
from litebert.lab.results import collect, writing
from litebert.lab.run import Chosen, open_study, run_studies, write_study_file
from litebert.lab.runners import RunnerName
from litebert.lab.study import ScaleName, Study, load_study, with_tokens
from litebert.lab.table import page
from litebert.lab.table import table as write_table
from litebert.terminal import write_line, write_stderr

_Folder = Annotated[str, Positional, arg(metavar="STUDY_FOLDER")]
_Folders = Annotated[tuple[str, ...], Positional, arg(metavar="STUDY_FOLDER…")]
_FILES = {"markdown": "table.md", "csv": "table.csv", "latex": "table.tex"}
_RUNS = "runs/lab"


def list_studies(
    *,
    scale: ScaleName | None = None,
    probe: bool = True,
    runs: str = _RUNS,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """List the studies: what each asks, its source in the paper, its runs by scale, and what they
    cost on this machine.

    Times and memory are estimates. A time comes from runs of that study that have finished here
    (everything included), or from a probe: FLOPs divided by the speed of a few training steps of
    that scale's usual model, measured now (pretraining alone).

    Args:
        scale: Show one scale: cpu, gpu-hour, paper.
        probe: Measure the speed of training steps for some seconds; without, FLOPs are shown.
        runs: Folder with finished studies, as STUDY-SCALE.
    """
    shown = [each for each in get_args(ScaleName) if scale in (None, each)]
    costs = describe_costs(STUDIES.values(), Path(runs), device=device, probe=probe, scales=shown)
    facts = {
        name: {
            "title": study.title,
            "question": study.question,
            "source": study.source,
            "rows": [row.name for row in study.rows],
            "scales": {
                each: {"runs": _runs(study, each)} | costs[name, each]
                for each in study.scales
                if each in shown
            },
        }
        for name, study in STUDIES.items()
    }
    if json:
        write_line(to_json(facts))
        return
    table = Table("study", "asks", *shown, box=None, padding=(0, 2, 0, 0))
    for name, study in STUDIES.items():
        source = f"\n{study.source}" if study.source.startswith(("Table", "Figure")) else ""
        cells = [
            _cost(_runs(study, each), costs[name, each]) if each in study.scales else "–"
            for each in shown
        ]
        table.add_row(name + source, study.question, *cells)
    Console().print(table)
    write_line(
        "Runs; time for all, one at a time; memory of the largest. Estimates: timed by runs (all "
        "included) where some have finished here, else by a probe (pretraining alone); set: the "
        "study gives each run its time."
    )


def _cost(runs: int, cost: dict[str, float | str]) -> str:
    if not cost["memory_bytes"]:
        return "no run\nat once"
    memory = f"{float(cost['memory_bytes']) / 2**30:.1f} GiB"
    if "seconds" in cost:
        time = f"{minutes_of(float(cost['seconds']))} ({cost['timed_by']})"
    else:
        time = f"{float(cost['flops']):.0e} FLOPs" if cost["flops"] else "minutes"
    return f"{runs} runs, {memory}\n{time}"


def run(
    names: Annotated[tuple[str, ...], Positional, arg(metavar="STUDY…")],
    /,
    *,
    scale: ScaleName = "gpu-hour",
    data: str = "",
    more_data: str = "",
    tasks: str = "",
    text: str = "",
    out: str = "",
    seeds: int | None = None,
    tokens: int | None = None,
    jobs: int = 1,
    minutes: float | None = None,
    runner: RunnerName = "processes",
    device: Device = "auto",
    workers: int = 1,
) -> None:
    """Run what is missing of studies: every row with every seed is pretrained, measured, then
    fine-tuned on the tasks whose files are at hand. The same command again resumes.

    Args:
        names: Studies (litebert lab list), or TOML files with one.
        scale: paper (the real recipe, for a cluster), gpu-hour, or cpu (a miniature).
        data: Folder of shards.
        more_data: Folder of shards of the same vocabulary, for rows that are trained on more text.
        tasks: Folder with glue/, squad/, race/ and blimp/ for the downstream scores.
        text: A text file, on which the masked tokens of every model are scored as well.
        out: Folder of the study, runs/lab/STUDY-SCALE when left out; with several studies the
            folder that these are in.
        seeds: Runs of each row, instead of the study's number.
        tokens: Length of each run, instead of the study's; the table says so. Rows that have
            lengths of their own keep their ratio.
        jobs: Runs at a time, on the device or on the cluster. A run waits until there is memory.
        minutes: Time limit. No run is started that is not expected to end in time; what still runs
            near the end is saved, and the command exits with 75.
        runner: Where runs are executed: processes on this machine, or ray, on a cluster whose
            machines share the folders.
        workers: Processes that prefetch batches, for each run.
    """
    studies = [load_study(name) if name.endswith(".toml") else find_study(name) for name in names]
    if not studies:
        raise ConfigError("name a study; litebert lab list lists them")
    if tokens is not None:
        if tokens < 1:
            raise ConfigError(f"tokens is at least 1; got {tokens}")
        studies = [
            each if each.kind != "pretrain" else with_tokens(each, scale, tokens)
            for each in studies
        ]
    base, is_folder = Path(out or _RUNS), bool(out) and len(studies) == 1
    chosen: list[Chosen] = [
        (study, scale, base if is_folder else base / f"{study.name}-{scale}") for study in studies
    ]
    trained = [each for each in chosen if each[0].kind != "count"]
    for each in chosen:
        if each[0].kind == "count":
            write_study_file(*each)
    if trained:
        if not data:
            raise ConfigError("a study is trained on shards; name their folder with --data")
        inputs = StudyInputs(
            data=Path(data),
            more_data=Path(more_data) if more_data else None,
            tasks=Path(tasks) if tasks else None,
            text=Path(text) if text else None,
            device=device,
            workers=workers,
        )
        failures = run_studies(
            trained,
            inputs,
            seeds=seeds,
            jobs=jobs,
            minutes=minutes,
            runner=runner,
            say=write_stderr,
        )
        if failures:
            raise LitebertError(
                f"{len(failures)} runs failed; the same command tries them again: "
                + "; ".join(failures)
            )
    for _, _, folder in chosen:
        write_stderr(f"finished; litebert lab table {folder}, litebert lab plot {folder}")


def pack(folders: _Folders, /, *, out: str, metrics: bool = True) -> None:
    """Copy the results of studies without their weights: recipes, numbers, metrics, environments,
    tables and plots, of finished runs.

    Args:
        folders: Folders of studies, as litebert lab run left them.
        out: A folder, or a file that ends in .tar.gz.
        metrics: Pack metrics.jsonl, the curves of every run, which are most of the bytes.
    """
    if not folders:
        raise ConfigError("name the folders of studies to pack")
    names = pack_studies([Path(each) for each in folders], Path(out), metrics=metrics)
    write_stderr(f"{len(names)} files in {out}")


def unpack(
    archive: Annotated[str, Positional, arg(metavar="FILE")], /, *, out: str = _RUNS
) -> None:
    """Write the results that `litebert lab pack` collected back, so that `litebert lab run`
    continues from them. Files that are there stay as they are.

    Args:
        archive: A .tar.gz that litebert lab pack wrote.
        out: Folder that holds studies' folders.
    """
    names = unpack_studies(Path(archive), Path(out))
    write_stderr(f"{len(names)} files in {out}")


def table(folder: _Folder, /, *, format: Literal["markdown", "csv", "latex"] = "markdown") -> None:
    """Print the table of a study, and write it into the study's folder.

    Args:
        folder: A study's folder, as litebert lab run left it; unfinished rows are left out.
        format: markdown, csv or latex.
    """
    study, scale = open_study(Path(folder))
    rows = collect(study, scale, Path(folder))
    text = (
        page(study, scale, rows) if format == "markdown" else write_table(study, rows, form=format)
    )
    with writing(Path(folder) / _FILES[format]):
        write_file(Path(folder) / _FILES[format], text)
    write_line(text)


def plot(folder: _Folder, /) -> None:
    """Draw a study: plot.svg and plot.png in its folder.

    Args:
        folder: A study's folder, as litebert lab run left it.
    """
    study, scale = open_study(Path(folder))
    rows = collect(study, scale, Path(folder))
    with writing(Path(folder) / "plot.svg"):
        paths = draw(study, rows, Path(folder))
    for path in paths:
        write_line(str(path))


def _runs(study: Study, scale: str) -> int:
    if study.kind == "count":
        return 0
    seeds = study.scales[scale].seeds
    return sum(1 if row.together == "all" else seeds for row in study.rows)
