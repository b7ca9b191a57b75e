"""litebert report: folders of runs in; one HTML file that opens offline out."""

import math
from typing import Annotated, Any

from tyro.conf import Positional, arg

from litebert.commands.flags import Json
from litebert.files import to_json
from litebert.report import RunData, write_report
from litebert.terminal import write_line

Runs = Annotated[tuple[str, ...], Positional, arg(metavar="RUN…")]


def report(runs: Runs, /, *, out: str = "", json: Json = False) -> None:
    """Write one HTML file about runs: curves, recipe, environment, filled masks; of several runs,
    their comparison.

    Args:
        runs: Folders of runs, finished or still running.
        out: File to write; RUN/report.html for one run and report.html here for several when left
            out.
    """
    written = write_report(runs, out or None)
    if json:
        facts = {
            "report": str(written.path),
            "bytes": written.num_bytes,
            "runs": [describe(run) for run in written.runs],
        }
        write_line(to_json(facts))
    else:
        write_line(f"{written.path} ({written.num_bytes / 1024:,.0f} KiB)")


def describe(run: RunData) -> dict[str, Any]:
    """A run's last numbers; one that is not finite is null."""
    last = run.evaluations[-1].values if run.evaluations else {}
    return {
        "name": run.name,
        "folder": str(run.folder),
        "state": run.state,
        "steps": run.steps,
        "tokens": int(run.total("tokens")),
        "seconds": run.total("seconds"),
        "evaluation": {
            name: value if math.isfinite(value) else None for name, value in last.items()
        },
    }
