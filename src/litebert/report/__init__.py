"""litebert report: run folders in; one HTML file that opens offline out, with curves, recipe, environment, filled masks and,
for several runs, their comparison.

`run` reads a folder, `curve` thins and smooths, `panels` says what is drawn, `lines` and `chart` draw it, `figures`,
`settings` and `masks` are the tables, `compare` puts runs side by side, and `page` binds all.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from litebert.errors import ConfigError
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
    """Read runs and write their report: to `out`, or into the folder of a single run, or here where there are several."""
    if not folders:
        raise ConfigError("a report needs the folder of at least one run")
    runs = [read_run(folder) for folder in folders]
    for run, name in zip(runs, _names(runs), strict=True):
        run.name = name
    path = Path(out) if out is not None else (Path(folders[0]) if len(runs) == 1 else Path()) / "report.html"
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; --out takes the file to write, such as {path / 'report.html'}")
    page = render(runs)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(page)
        temporary.replace(path)  # whole or not at all: a browser may be looking
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise ConfigError(f"cannot write {path}: {error.strerror}; choose another place with --out") from error
    return Report(path=path, num_bytes=len(page), runs=tuple(runs))


def _names(runs: Sequence[Run]) -> list[str]:
    """Names of folders, with as many of the folders above as it takes to tell them apart."""
    paths = [run.folder.resolve().parts for run in runs]
    for depth in range(1, max(map(len, paths)) + 1):
        names = ["/".join(parts[-depth:]) for parts in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{run.name} ({i})" for i, run in enumerate(runs, start=1)]  # the same folder twice
