"""The scores of the embedded pretrained models beside published ones, for results and for the
README.

    python -m tools.model_table RESULTS [NAME=RESULTS …] [--readme README.md] [--check]

RESULTS holds benchmarks.json (bench/studies/benchmarks.py --table) and pretraining.json
(tools/model_record.py) of `base`, or of NAME. Every embedded model that fills masks has a row.
Writes table.md into the first RESULTS, and the same table between the two marks in the README;
--check changes nothing and fails where the README says something else.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.studies.benchmarks import NOTES
from litebert.models.index import embedded_models

MARKS = ("<!-- scores: made by tools/model_table.py -->", "<!-- scores end -->")
COLUMNS = {
    # heading: run of bench/studies/benchmarks.py, score
    "CoLA": ("cola", "matthews"),
    "SST-2": ("sst2", "accuracy"),
    "MRPC": ("mrpc", "f1"),
    "STS-B": ("stsb", "pearson"),
    "RTE": ("rte", "accuracy"),
    "MNLI": ("mnli", "accuracy"),
    "RACE": ("race", "accuracy"),
    "SQuAD 1.1": ("squad1", "f1"),
    "SQuAD 2.0": ("squad2", "f1"),
}
PUBLISHED: dict[str, tuple[int, dict[str, float | str]]] = {
    # Turc et al. 2019 (arXiv 1908.08962) and their release, on GLUE's test sets; the release of
    # ELECTRA and its README, on dev, of which ELECTRA-Small is the paper's Small++; Wang et al.
    # 2020 and the release of MiniLM, on dev; Lan et al. 2020, Table 2, on dev. A star: another
    # score than the column's.
    "BERT-Mini (published, test)": (
        11_200_000,
        {"CoLA": 0.0, "SST-2": 85.9, "MRPC": 81.1, "STS-B": 75.4, "RTE": 57.9, "MNLI": 74.8},
    ),
    "BERT-Small (published, test)": (
        28_800_000,
        {"CoLA": 27.8, "SST-2": 89.7, "MRPC": 83.4, "STS-B": 78.8, "RTE": 61.8, "MNLI": 77.6},
    ),
    "BERT-Medium (published, test)": (
        41_400_000,
        {"CoLA": 38.0, "SST-2": 89.6, "MRPC": 86.6, "STS-B": 80.4, "RTE": 62.2, "MNLI": 80.0},
    ),
    "ELECTRA-Small of OpenWebText (published, dev)": (
        14_000_000,
        {"CoLA": 56.8, "SST-2": 88.3, "MRPC": "87.4*", "STS-B": "86.8*", "RTE": 68.5, "MNLI": 78.9},
    ),
    "ELECTRA-Small++ (published, dev)": (
        14_000_000,
        {"CoLA": 57.0, "SST-2": 91.2, "MRPC": "88.0*", "STS-B": "87.5*", "RTE": 66.7, "MNLI": 81.3},
    ),
    "MiniLM-L6-H384 (published, dev)": (
        22_000_000,
        {"CoLA": 47.5, "SST-2": 91.5, "MRPC": "88.9*", "RTE": 68.8, "MNLI": 83.3},
    ),
    "ALBERT-base of the paper (published, dev)": (
        12_000_000,
        {"SST-2": 90.3, "MNLI": 81.6, "RACE": 64.0, "SQuAD 1.1": 89.3, "SQuAD 2.0": 80.0},
    ),
}
STAR = "\\* ELECTRA: accuracy, and Spearman for STS-B; MiniLM: as its authors score MRPC."
"""Under the table."""


Rows = dict[str, dict[str, Any]]
"""Of benchmarks.json, by run."""


def table(models: Mapping[str, tuple[Rows, dict[str, Any]]]) -> str:
    """Markdown: ours by name (scores, pretraining.json), what they have to beat on the same
    examples, and the published ones."""
    lines = [
        "| | parameters | "
        + " | ".join(f"{name} ({score})" for name, (_, score) in COLUMNS.items())
        + " |",
        "|---" * (len(COLUMNS) + 2) + "|",
    ]
    notes = []
    for name, (rows, pretraining) in models.items():
        minutes = f"{pretraining['gpu_minutes']:.0f} minutes on one {pretraining['device']}"
        minutes += f", {pretraining['flops']:.1e} FLOPs"
        title = f"**litebert `{name}`** ({minutes}, dev)"
        lines.append(line(title, pretraining["parameters"], percent(rows, "found"), bold=True))
        notes += [f"`{name}`, {note}" for note in footnotes(rows)]
    first, _ = next(iter(models.values()))  # all are scored on the same examples
    for kind, shown in (("majority", "majority baseline"), ("bag_of_words", "bag of words")):
        lines.append(line(f"{shown} (dev)", None, percent(first, kind)))
    for name, (parameters, scores) in PUBLISHED.items():
        lines.append(line(name, parameters, scores))
    return "\n".join([*lines, "", STAR, *notes]) + "\n"


def footnotes(rows: Rows) -> list[str]:
    """What our runs began with and how they were set, by column; the page says the other notes."""
    columns: dict[str, list[str]] = {}
    for name, (run, _) in COLUMNS.items():
        for note in rows.get(run, {"note": ""})["note"].split("; "):
            if note and note not in NOTES.values():
                columns.setdefault(note, []).append(name)
    return [f"{', '.join(names)}: {note}." for note, names in columns.items()]


def read(results: Path) -> tuple[Rows, dict[str, Any]]:
    """Scores by run, and pretraining.json. What was cut from dev is scored on a part of it, stands
    beside nothing, and is left out."""
    rows = json.loads((results / "benchmarks.json").read_text())
    comparable = {row["run"]: row for row in rows if not row["note"].startswith("cut from dev")}
    return comparable, json.loads((results / "pretraining.json").read_text())


def percent(rows: Rows, kind: str) -> dict[str, float]:
    """Times 100, by column: found, majority or bag_of_words."""
    scores = {name: (rows.get(run) or {}).get(kind, {}) for name, (run, _) in COLUMNS.items()}
    values = {name: each.get(COLUMNS[name][1]) for name, each in scores.items()}
    return {name: 100 * value for name, value in values.items() if value is not None}


def line(
    name: str,
    parameters: int | None,
    scores: Mapping[str, float | str],
    *,
    bold: bool = False,
) -> str:
    shown = {name: f"{s:.1f}" if isinstance(s, float) else s for name, s in scores.items()}
    cells = [shown.get(column, "–") for column in COLUMNS]
    cells = [f"**{cell}**" if bold and cell != "–" else cell for cell in cells]
    return (
        " | ".join([f"| {name}", "" if parameters is None else f"{parameters / 1e6:.1f} M", *cells])
        + " |"
    )


def between_marks(page: str, text: str) -> str:
    """The page with `text` between its two marks."""
    before, rest = page.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    return f"{before}{MARKS[0]}\n{text}{MARKS[1]}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", metavar="[NAME=]RESULTS")
    parser.add_argument("--readme", type=Path)
    parser.add_argument(
        "--check",
        action="store_true",
        help="change nothing; fail where the README says something else",
    )
    args = parser.parse_args()
    named = (each.rpartition("=") for each in args.results)
    folders = {name or "base": Path(folder) for name, _, folder in named}
    missing = [m.name for m in embedded_models() if "fill" in m.verbs and m.name not in folders]
    if missing:
        parser.error(f"embedded, and without results: {', '.join(missing)}; add NAME=RESULTS")
    text = table({name: read(folder) for name, folder in folders.items()})
    page = args.readme.read_text(encoding="utf-8") if args.readme else None
    wanted = None if page is None else between_marks(page, text)
    if args.check:
        return int(wanted != page)
    (next(iter(folders.values())) / "table.md").write_text(text, encoding="utf-8")
    if args.readme and wanted is not None:
        args.readme.write_text(wanted, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
