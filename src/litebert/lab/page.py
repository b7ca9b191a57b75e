"""A study as one HTML page that opens offline: a study's folder in; the page's path out."""

import base64
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from litebert import __version__
from litebert.errors import ConfigError, MissingExtraError
from litebert.files import check_own, write_file
from litebert.lab.plot import plot
from litebert.lab.results import RESULT, RowResult, collect
from litebert.lab.run import open_study
from litebert.lab.study import MEASURES, Study
from litebert.lab.table import footnotes, table_cells
from litebert.report.markup import cell, escape, table


def write_study_page(folder: Path, out: Path | None = None) -> Path:
    """Write STUDY_FOLDER/report.html, or `out`."""
    study, scale = open_study(folder)
    rows = collect(study, scale, folder)
    path = out or folder / "report.html"
    check_own(path, "litebert lab</title>", "a page")
    write_file(path, _render(study, scale, rows, folder))
    return path


def _render(study: Study, scale: str, rows: Sequence[RowResult], folder: Path) -> str:
    heads, lines = table_cells(study, rows, marks=True)
    numbers = table(heads, [[cell(text) for text in line] for line in lines])
    notes = "".join(f"<li>{escape(note)}</li>" for note in footnotes(study, scale, rows))
    explained = "".join(
        f"<li><b>{escape(head)}</b>: {escape(meaning)}</li>"
        for head, meaning in MEASURES.values()
        if head in heads
    )
    source = f"<p>The paper's numbers: {escape(study.source)}.</p>" if study.source else ""
    picture = _picture(study, rows)
    finished = sorted(folder.glob(f"*-seed*/{RESULT}"))
    runs = "".join(f"<li>{escape(path.parent.name)}</li>" for path in finished)
    style = files("litebert.report").joinpath("page.css").read_text(encoding="utf-8")
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(study.title, 120)} · litebert lab</title><style>{style}</style></head>"
        f'<body><main><article class="run"><header><h1>{escape(study.title)}</h1>'
        f'<p class="quiet">{escape(study.question)}</p></header>{source}'
        f"<section><h2>Table</h2>{numbers}<ul>{notes}</ul></section>{picture}"
        f"<section><h2>Columns</h2><ul>{explained}</ul></section>"
        f"<section><h2>Finished runs</h2><ul>{runs or '<li>nothing is trained</li>'}</ul></section>"
        f"</article></main><footer>Written by litebert {escape(__version__)}.</footer>"
        "</body></html>\n"
    )


def _picture(study: Study, rows: Sequence[RowResult]) -> str:
    try:
        with TemporaryDirectory() as folder:
            svg = plot(study, rows, Path(folder))[0].read_bytes()
    except (ConfigError, MissingExtraError) as error:  # the table stands without
        return f"<section><h2>Picture</h2><p>{escape(error)}.</p></section>"
    data = base64.b64encode(svg).decode()
    return (
        '<section><h2>Picture</h2><img style="max-width:100%;background:white" '
        f'alt="{escape(study.title)}" src="data:image/svg+xml;base64,{data}"></section>'
    )
