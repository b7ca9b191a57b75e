"""litebert report: run folders in; one HTML file that opens offline out, with curves, recipe,
environment, filled masks or scores and worst examples and, for several runs, their comparison.
 `run` and `dev` read a folder, `curve` thins and smooths, `panels` says what is drawn, `lines` and
`chart` draw it, `figures`, `scores`, `settings`, `masks` and `worst` are the tables, `compare` puts
runs side by side, and `page` binds all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from litebert.errors import ConfigError
from litebert.files import write_file
from litebert.report.page import render
from litebert.report.run import Run, read_run

__all__ = ["Report", "Run", "read_run", "write_report"]


@dataclass(frozen=True, kw_only=True)
class Report:
    """A written report."""

    path: Path
    num_bytes: int
    runs: tuple[Run, ...]


def write_report(folders: Sequence[Path | str], out: Path | str | None = None) -> Report:
    """Read runs and write their report: to `out`, or into the folder of a single run, or here where
    there are several."""
    if not folders:
        raise ConfigError("a report needs the folder of at least one run")
    runs = [read_run(run) for folder in folders for run in _seeds(Path(folder))]
    for run, name in zip(runs, _names(runs), strict=True):
        run.name = name
    path = (
        Path(out)
        if out is not None
        else (Path(folders[0]) if len(folders) == 1 else Path()) / "report.html"
    )
    if path.is_dir():
        raise ConfigError(
            f"{path} is a folder; --out takes the file to write, such as {path / 'report.html'}"
        )
    page = render(runs)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, page)
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}; choose another place with --out"
        ) from error
    return Report(path=path, num_bytes=len(page), runs=tuple(runs))


def _seeds(folder: Path) -> list[Path]:
    """The folder itself, or the runs of all seeds where it holds those."""
    if (folder / "metrics.jsonl").exists():
        return [folder]
    found = [path.parent for path in folder.glob("seed-*/metrics.jsonl")]
    return sorted(found, key=lambda path: (len(path.name), path.name)) or [folder]


def _names(runs: Sequence[Run]) -> list[str]:
    """Names of folders, with as many of the folders above as it takes to tell them apart."""
    paths = [run.folder.resolve().parts for run in runs]
    for depth in range(1, max(map(len, paths)) + 1):
        names = ["/".join(parts[-depth:]) for parts in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{run.name} ({i})" for i, run in enumerate(runs, start=1)]  # the same folder twice
