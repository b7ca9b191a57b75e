"""litebert lab: studies, the paper's tables among them. A study and shards in; run folders, a table
and a picture out."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from litebert.commands.flags import Device, Json
from litebert.errors import ConfigError, LitebertError
from litebert.files import to_json, write_file
from litebert.lab.catalog import STUDIES, find_study
from litebert.lab.plot import plot as draw
from litebert.lab.results import collect
from litebert.lab.run import open_study, run_study, write_study_file
from litebert.lab.study import ScaleName, Study, load_study
from litebert.lab.table import page
from litebert.lab.table import table as write_table
from litebert.terminal import write_line

Name = Annotated[str, Positional, arg(metavar="STUDY")]
Folder = Annotated[str, Positional, arg(metavar="STUDY_FOLDER")]
_FILES = {"markdown": "table.md", "csv": "table.csv", "latex": "table.tex"}


def list_studies(*, json: Json = False) -> None:
    """List the studies: what each asks, its source in the paper, its scales and runs."""
    facts = {
        name: {
            "title": study.title,
            "question": study.question,
            "source": study.source,
            "rows": [row.name for row in study.rows],
            "scales": {each: _runs(study, each) for each in study.scales},
        }
        for name, study in STUDIES.items()
    }
    if json:
        write_line(to_json(facts))
        return
    table = Table("study", "asks", "paper", "runs by scale", box=None, padding=(0, 2, 0, 0))
    for name, study in STUDIES.items():
        runs = ", ".join(f"{each} {_runs(study, each)}" for each in study.scales)
        table.add_row(name, study.question, study.source or "–", runs)
    Console().print(table)


def run(
    name: Name,
    /,
    *,
    scale: ScaleName = "gpu-hour",
    data: str = "",
    tasks: str = "",
    out: str = "",
    seeds: int | None = None,
    jobs: int = 1,
    device: Device = "auto",
    workers: int = 1,
) -> None:
    """Run what is missing of a study: every row with every seed is pretrained, then fine-tuned on
    the tasks whose files are at hand. The same command again resumes.

    Args:
        name: A study (litebert lab list), or a TOML file with one.
        scale: paper (the real recipe, for a cluster), gpu-hour, or cpu (a miniature).
        data: Folder of shards.
        tasks: Folder with glue/, squad/ and race/ for the downstream scores.
        out: Folder of the study; runs/lab/STUDY-SCALE when left out.
        seeds: Runs of each row, instead of the study's number.
        jobs: Runs at a time on the device.
        workers: Processes that prefetch batches, for each run.
    """
    study = load_study(name) if name.endswith(".toml") else find_study(name)
    folder = Path(out or Path("runs") / "lab" / f"{study.name}-{scale}")
    failures: list[str] = []
    if study.kind == "count":
        write_study_file(study, scale, folder)
    elif not data:
        raise ConfigError("a study is trained on shards; name their folder with --data")
    else:
        failures = run_study(
            study,
            scale,
            folder,
            data=Path(data),
            tasks=Path(tasks) if tasks else None,
            seeds=seeds,
            jobs=jobs,
            device=device,
            workers=workers,
            say=lambda text: write_line(text, file=sys.stderr),
        )
    if failures:
        raise LitebertError(
            f"{len(failures)} runs failed; the same command tries them again: "
            + "; ".join(failures)
        )
    write_line(
        f"finished; litebert lab table {folder}, litebert lab plot {folder}", file=sys.stderr
    )


def table(folder: Folder, /, *, format: Literal["markdown", "csv", "latex"] = "markdown") -> None:
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
    write_file(Path(folder) / _FILES[format], text)
    write_line(text)


def plot(folder: Folder, /) -> None:
    """Draw a study: plot.svg and plot.png in its folder.

    Args:
        folder: A study's folder, as litebert lab run left it.
    """
    study, scale = open_study(Path(folder))
    for path in draw(study, collect(study, scale, Path(folder)), Path(folder)):
        write_line(str(path))


def _runs(study: Study, scale: str) -> int:
    return 0 if study.kind == "count" else len(study.rows) * study.scales[scale].seeds
