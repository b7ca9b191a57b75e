"""litebert report: folders of runs in; one HTML file that opens offline out."""

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from litebert.commands.marks import Json
from litebert.files import to_json
from litebert.lab.results import STUDY
from litebert.report import RunData, write_report
from litebert.terminal import write_line

_Runs = Annotated[tuple[str, ...], Positional, arg(metavar="RUN…")]


_EXITS = ("depth_scores", "exits", "exit_curves")
"""Scores by depth and by threshold, in the result of a run with exits."""


def report(runs: _Runs, /, *, out: str = "", json: Json = False) -> None:
    """Write one HTML file about runs: curves, recipe, environment, filled masks; of several runs,
    their comparison; of a study of the lab, its table and picture.

    Args:
        runs: Folders of runs, finished or still running; or the folder of one study.
        out: File to write; RUN/report.html for one run and report.html here for several when left
            out.
    """
    if len(runs) == 1 and (Path(runs[0]) / STUDY).is_file():
        from litebert.lab.page import write_study_page

        page = write_study_page(Path(runs[0]), Path(out) if out else None)
        write_line(to_json({"report": str(page)}) if json else str(page))
        return
    written = write_report(runs, out or None)
    if json:
        facts = {
            "report": str(written.path),
            "bytes": written.num_bytes,
            "runs": [_describe(run) for run in written.runs],
        }
        write_line(to_json(facts))
    else:
        write_line(f"{written.path} ({written.num_bytes / 1024:,.0f} KiB)")


def _describe(run: RunData) -> dict[str, Any]:
    last = run.evaluations[-1].values if run.evaluations else {}
    result = {} if run.dev is None else run.dev.result
    return {
        "name": run.name,
        "folder": str(run.folder),
        "state": run.state,
        **{name: result[name] for name in _EXITS if name in result},
        "steps": run.steps,
        "tokens": int(run.total("tokens")),
        "seconds": run.total("seconds"),
        "evaluation": last,
    }
