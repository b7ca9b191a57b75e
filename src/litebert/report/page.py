"""litebert report: run folders in; one HTML file that opens offline out.

Its Content-Security-Policy allows the one script whose hash it names and no request at all, so that
even a text that slipped through the escaping could do nothing.
"""

import base64
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from litebert import __version__
from litebert.errors import ConfigError
from litebert.files import check_own, write_file
from litebert.report.charts import Chart, choose_charts
from litebert.report.compare import compare_section
from litebert.report.draw import Series, draw
from litebert.report.examples import masks_section, worst_section
from litebert.report.exits import exits_section
from litebert.report.figures import evaluations_table, event_marks, events_table, key_figures
from litebert.report.lines import LineTable, half_window
from litebert.report.markup import escape
from litebert.report.run import AXES, RunData, read_run
from litebert.report.scores import scores_section, slices_section
from litebert.report.settings import environment_section, recipe_section
from litebert.train.progress import duration

LIMIT = 1_900_000
"""Bytes of a page; where more would come out, its curves have fewer points."""
_POINTS = (600, 300, 150, 80, 40)

_STATES = {
    "finished": "done as planned",
    "running": "still being written",
    "silent": "said to be running, but nothing was written for {silent}: it may have been killed",
    "interrupted": "saved; the same command resumes",
    "stopped": "",
    "diverged": "stopped on losses that were not finite",
    "unknown": "no status.json yet",
}


@dataclass(frozen=True, kw_only=True)
class Report:
    """A written report."""

    path: Path
    num_bytes: int
    runs: tuple[RunData, ...]


def write_report(folders: Sequence[Path | str], out: Path | str | None = None) -> Report:
    """Write a report of runs to `out`, or into a single run's folder, or here for several."""
    if not folders:
        raise ConfigError("a report needs the folder of at least one run")
    runs = [read_run(run) for folder in folders for run in _seeds(Path(folder))]
    for run, name in zip(runs, _names(runs), strict=True):
        run.name = name
    default = (Path(folders[0]) if len(folders) == 1 else Path()) / "report.html"
    path = default if out is None else Path(out)
    if path.is_dir():
        raise ConfigError(
            f"{path} is a folder; --out takes the file to write, such as {path / 'report.html'}"
        )
    check_own(path, "litebert report</title>", "a report")
    page = _render(runs)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, page)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}; choose another --out") from error
    return Report(path=path, num_bytes=len(page), runs=tuple(runs))


def _seeds(folder: Path) -> list[Path]:
    """The folder itself, or the runs of all seeds where it holds those."""
    if (folder / "metrics.jsonl").exists():
        return [folder]
    seeds = [path.parent for path in folder.glob("seed-*/metrics.jsonl")]
    return sorted(seeds, key=lambda path: (len(path.name), path.name)) or [folder]


def _names(runs: Sequence[RunData]) -> list[str]:
    """Names of folders, with as many of the folders above as it takes to tell them apart."""
    paths = [run.folder.resolve().parts for run in runs]
    for depth in range(1, max(map(len, paths)) + 1):
        names = ["/".join(parts[-depth:]) for parts in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{run.name} ({i})" for i, run in enumerate(runs, start=1)]  # the same folder twice


def _render(runs: Sequence[RunData]) -> bytes:
    """The page's bytes, with as many points as fit."""
    page = b""
    for points in _POINTS[len(runs) > 2 :]:
        page = _render_with(runs, points).encode("utf-8", errors="backslashreplace")
        if len(page) <= LIMIT:
            break
    return page


def _render_with(runs: Sequence[RunData], points: int) -> str:
    lines = LineTable(points)
    style = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    script = files(__package__).joinpath("page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    several = len(runs) > 1
    body = compare_section(runs, lines) if several else ""
    body += "".join(_run_section(run, i, lines, several=several) for i, run in enumerate(runs))
    title = ", ".join(run.name for run in runs)
    title = f"{len(runs)} runs: {title}" if several else title
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta '
        'name="color-scheme" content="light dark">'
        f"<title>{escape(title, 120)} · litebert report</title><style>{style}</style></head><body>"
        f"{_switch(runs)}<main>{body}</main>"
        f"<footer>Written by litebert {escape(__version__)} at "
        f"{time.strftime('%Y-%m-%d %H:%M %Z')} from metrics.jsonl. "
        "Training curves are means over a window around each point, not behind it; the light band "
        "behind them spans the lowest and the highest record.</footer>"
        '<script type="application/json" '
        f'id="numbers">{lines.to_json()}</script><script>{script}</script></body></html>\n'
    )


def _switch(runs: Sequence[RunData]) -> str:
    """Radio buttons for the horizontal axis, before everything that they change; no script."""
    axes = [axis for axis in AXES if any(axis in run.axes for run in runs)]
    words = {"steps": "steps", "tokens": "tokens", "seconds": "time"}
    buttons = "".join(
        f'<input type="radio" name="axis" id="x-{axis}" aria-label="curves over {words[axis]}"'
        f"{' checked' if axis == 'steps' else ''}>"
        for axis in axes
    )
    choices = "".join(f'<label for="x-{axis}">{words[axis]}</label>' for axis in axes)
    names = [f'<a href="#run-{i}">{escape(run.name, 60)}</a>' for i, run in enumerate(runs)]
    links = '<a href="#compare">comparison</a>' + "".join(names) if len(runs) > 1 else ""
    return (
        f'{buttons}<nav class="top"><span class="choice">curves over {choices}</span>'
        f'<span class="links">{links}</span></nav>'
    )


def _run_section(run: RunData, index: int, lines: LineTable, *, several: bool) -> str:
    """One run, from its name to its environment."""
    state = run.state
    about = _STATES.get(state, "").format(silent=_ago(run.idle_seconds or 0))
    parts = (about, str(run.status.get("reason", "")), f"read from {run.folder}")
    about = "; ".join(filter(None, parts))
    kind = state if state in _STATES else "unknown"
    head = (
        f'<header><h1>{escape(run.name)} <span class="state {kind}">{escape(state, 40)}</span></h1>'
        f'<p class="quiet">{escape(about)}</p></header>'
    )
    marks = event_marks(run)
    figures = "".join(
        draw(chart, _series(chart, run, index, lines), marks, wide=i == 0)
        for i, chart in enumerate(choose_charts([run]))
    )
    half = half_window(len(run.steps_done))
    smoothed = f"Smoothed over {2 * half + 1:,} records." if half else ""
    hint = " Dashed verticals are events, listed below." if marks else ""
    curves = (
        f'<div class="panels">{figures}</div><p class="quiet">{smoothed}{hint}</p>'
        if figures
        else '<p class="quiet">No step has been recorded yet.</p>'
    )
    dev = run.dev
    sections = [
        ("Scores on dev", scores_section(dev) if dev else ""),
        ("Early exit", exits_section(dev) if dev else ""),
        ("Curves", curves),
        ("Scores by slice", slices_section(dev) if dev else ""),
        ("Most confidently wrong", worst_section(dev) if dev else ""),
        ("Evaluations on held-out text", evaluations_table(run)),
        ("Events", events_table(run)),
        ("Filled masks", masks_section(run.examples)),
        ("Recipe", recipe_section(run)),
        ("Environment", environment_section(run)),
    ]
    body = "".join(f"<section><h2>{title}</h2>{html}</section>" for title, html in sections if html)
    kind = "run one" if several else "run"
    return f'<article class="{kind}" id="run-{index}">{head}{key_figures(run)}{body}</article>'


def _series(chart: Chart, run: RunData, index: int, lines: LineTable) -> list[Series]:
    """Training in the first color, held-out measures in the next ones."""
    series = []
    train = lines.train(run, index, chart.train) if chart.train else None
    if train is not None:
        series.append(Series(line=train, label="training", color=0))
    for color, name in enumerate(chart.heldout, start=1):
        heldout = lines.heldout(run, index, name)
        if heldout is not None:
            label = "held out" if len(chart.heldout) == 1 else f"held out, {name.split('_')[0]}"
            series.append(Series(line=heldout, label=label, color=color))
    return series


def _ago(seconds: float) -> str:
    return f"{seconds / 86_400:.0f} days" if seconds > 2 * 86_400 else duration(seconds)
