"""The page: runs in; one HTML text that asks for nothing from outside out.
 Its policy (Content-Security-Policy) allows the one script whose hash it names and no request at
all, so that even a text that slipped through the escaping could do nothing.
"""

import base64
import hashlib
import time
from collections.abc import Sequence
from importlib.resources import files

from litebert import __version__
from litebert.report.chart import Drawn, draw
from litebert.report.compare import compare_section
from litebert.report.curve import window
from litebert.report.figures import evaluations_table, events_table, marks, tiles
from litebert.report.lines import Lines
from litebert.report.markup import text
from litebert.report.masks import masks_section
from litebert.report.panels import Panel, choose
from litebert.report.run import AXES, Run
from litebert.report.scale import ago
from litebert.report.scores import scores_section, slices_section
from litebert.report.settings import environment_section, recipe_section
from litebert.report.worst import worst_section

LIMIT = 1_900_000
"""Bytes of a page; where more would come out, its curves have fewer points."""
POINTS = (600, 300, 150, 80, 40)

STATES = {
    "finished": "done as planned",
    "running": "still being written",
    "silent": "said to be running, but nothing was written for {silent}: it may have been killed",
    "interrupted": "saved; the same command goes on",
    "stopped": "",
    "diverged": "stopped on losses that were not finite",
    "unknown": "no status.json yet",
}


def render(runs: Sequence[Run]) -> bytes:
    """The page's bytes, with as many points as fit."""
    made = b""
    for points in POINTS[len(runs) > 2 :]:
        made = _render(runs, points).encode("utf-8", errors="backslashreplace")
        if len(made) <= LIMIT:
            break
    return made


def _render(runs: Sequence[Run], points: int) -> str:
    lines = Lines(points)
    style = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    script = files(__package__).joinpath("page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    several = len(runs) > 1
    body = compare_section(runs, lines) if several else ""
    body += "".join(_run_section(run, i, lines, several=several) for i, run in enumerate(runs))
    title = (
        runs[0].name if not several else f"{len(runs)} runs: " + ", ".join(run.name for run in runs)
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta '
        'name="color-scheme" content="light dark">'
        f"<title>{text(title, 120)} · litebert report</title><style>{style}</style></head><body>"
        f"{_switch(runs)}<main>{body}</main>"
        f"<footer>Written by litebert {text(__version__)} at {_now()} from metrics.jsonl. Training "
        "curves are means over "
        "a window around each point, not behind it; the light band behind them spans the lowest "
        "and the highest record."
        "</footer>"
        '<script type="application/json" '
        f'id="numbers">{lines.to_json()}</script><script>{script}</script></body></html>\n'
    )


def _switch(runs: Sequence[Run]) -> str:
    """The choice of the horizontal axis, without a script: radio buttons before everything that
    they change."""
    axes = [axis for axis in AXES if any(axis in run.axes for run in runs)]
    words = {"steps": "steps", "tokens": "tokens", "seconds": "time"}
    buttons = "".join(
        f'<input type="radio" name="axis" id="x-{axis}" aria-label="curves over {words[axis]}"'
        f"{' checked' if axis == 'steps' else ''}>"
        for axis in axes
    )
    choices = "".join(f'<label for="x-{axis}">{words[axis]}</label>' for axis in axes)
    links = '<a href="#compare">comparison</a>' if len(runs) > 1 else ""
    links += (
        "".join(f'<a href="#run-{i}">{text(run.name, 60)}</a>' for i, run in enumerate(runs))
        if len(runs) > 1
        else ""
    )
    return f'{buttons}<nav class="top"><span class="choice">curves over {choices}</span><span class="links">{links}</span></nav>'


def _run_section(run: Run, index: int, lines: Lines, *, several: bool) -> str:
    """One run, from its name to its environment."""
    state = run.state
    about = STATES.get(state, "").format(silent=ago(run.silent_seconds or 0))
    about = "; ".join(
        filter(None, [about, str(run.status.get("reason", "")), f"read from {run.folder}"])
    )
    kind = state if state in STATES else "unknown"
    head = (
        f'<header><h1>{text(run.name)} <span class="state {kind}">{text(state, 40)}</span></h1>'
        f'<p class="quiet">{text(about)}</p></header>'
    )
    panels = choose([run])
    moments = marks(run)
    charts = "".join(
        draw(panel, _drawn(panel, run, index, lines), moments, wide=i == 0)
        for i, panel in enumerate(panels)
    )
    half = window(len(run.done))
    smoothed = f"Smoothed over {2 * half + 1:,} records." if half else ""
    hint = " Dashed verticals are events, listed below." if moments else ""
    curves = (
        f'<div class="panels">{charts}</div><p class="quiet">{smoothed}{hint}</p>'
        if charts
        else _NOTHING
    )
    dev = run.dev
    parts = [
        ("Scores on dev", scores_section(dev) if dev else ""),
        ("Curves", curves),
        ("Scores by slice", slices_section(dev) if dev else ""),
        ("Most confidently wrong", worst_section(dev) if dev else ""),
        ("Evaluations on held-out text", evaluations_table(run)),
        ("Events", events_table(run)),
        ("Filled masks", masks_section(run.examples)),
        ("Recipe", recipe_section(run)),
        ("Environment", environment_section(run)),
    ]
    body = "".join(f"<section><h2>{title}</h2>{part}</section>" for title, part in parts if part)
    return f'<article class="run{" one" if several else ""}" id="run-{index}">{head}{tiles(run)}{body}</article>'


_NOTHING = '<p class="quiet">No step has been recorded yet.</p>'


def _drawn(panel: Panel, run: Run, index: int, lines: Lines) -> list[Drawn]:
    """Training in the first color, held-out measures in the next ones."""
    found = []
    trained = lines.trained(run, index, panel.trained) if panel.trained else None
    if trained is not None:
        found.append(Drawn(line=trained, label="training", color=0))
    for color, name in enumerate(panel.held, start=1):
        held = lines.held(run, index, name)
        if held is not None:
            label = "held out" if len(panel.held) == 1 else f"held out, {name.split('_')[0]}"
            found.append(Drawn(line=held, label=label, color=color))
    return found


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M %Z")
