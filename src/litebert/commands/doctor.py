"""litebert doctor: nothing in; what this machine can do, and what is missing, out."""

import json as jsonlib
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from litebert import __version__
from litebert.doctor import examine


def doctor(*, folder: str = ".", json: bool = False) -> None:
    """Say what this machine can do, and what is missing.

    Args:
        folder: Where runs would be written; its free space is looked at.
        json: Print one JSON object.
    """
    findings = examine(folder)
    if json:
        print(
            jsonlib.dumps(
                {"litebert": __version__, "findings": [asdict(finding) for finding in findings]}
            )
        )
        return
    table = Table(
        title=f"litebert {__version__}",
        show_header=False,
        box=None,
        title_justify="left",
        title_style="bold",
    )
    for finding in findings:
        mark = Text("yes", "green") if finding.good else Text("no", "yellow")
        table.add_row(mark, finding.name, finding.value, Text(finding.advice, "dim"))
    Console().print(table)
