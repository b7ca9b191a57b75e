"""What a result depends on, and where it goes: figures in; JSON on the terminal and in a file out.

A result under results/ comes from a commit: a tree with uncommitted changes is refused before
anything is measured. Beside each result stands a record of its revision, command and environment.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from litebert.files import write_json
from litebert.train.folder import environment

ROOT = Path(__file__).resolve().parents[2]


def add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, help="JSON file for the figures; beside it a record of how they came"
    )


def begin(out: Path | None, *, arguments: Sequence[str] | None = None, **facts: Any) -> None:
    """Call this before measuring. Writes run.json into the folder `out`, or FILE.run.json beside
    the file `out`; without `out` nothing is written and nothing refused."""
    if out is None:
        return
    if is_result(out) and (changes := uncommitted()):
        raise SystemExit(
            f"{out} is a result, and results come from a commit; commit or stash first: "
            + ", ".join(changes[:5])
        )
    record = {"command": command(arguments), **environment(**facts)}
    path = out.with_suffix(".run.json") if out.suffix else out / "run.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, record)


def publish(figures: Any, out: Path | None) -> None:
    """Print the figures as JSON, and write them where `out` says."""
    print(json.dumps(figures, indent=1, ensure_ascii=False))
    if out is not None:
        write_json(out, figures)


def is_result(out: Path) -> bool:
    return out.resolve().is_relative_to(ROOT / "results")


def uncommitted() -> list[str]:
    """Files that differ from the commit; results themselves may, while they are being made."""
    git = ["git", "-C", str(ROOT), "status", "--porcelain", "--", ".", ":!results"]
    listed = subprocess.run(git, capture_output=True, text=True, check=True).stdout
    return [line[3:] for line in listed.splitlines()]


def command(arguments: Sequence[str] | None = None) -> str:
    """The command line as a person would type it, without this machine's paths."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    program = f"-m {spec.name}" if spec else os.path.relpath(sys.argv[0], ROOT)
    return " ".join(["python", program, *(sys.argv[1:] if arguments is None else arguments)])
