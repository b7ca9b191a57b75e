"""What the paper claims of parameters and speed, by name, beside what was counted or measured here:
rows in; sentences out. And the interaction of two settings, with its spread.
"""

import statistics
from collections.abc import Sequence

from litebert.lab.results import Cell, RowResult
from litebert.lab.study import Study


def headlines(rows: Sequence[RowResult]) -> list[str]:
    """The claims that these rows can be held against."""
    cells = {(row.row.name, name): cell.mean for row in rows for name, cell in row.cells.items()}

    def means(column: str, *names: str) -> list[float]:
        """The column's numbers of these rows; none unless all have one."""
        there = [cells[name, column] for name in names if (name, column) in cells]
        return there if len(there) == len(names) else []

    claims = []
    larges = ("albert-large-v2", "bert-large")
    if smaller := means("smaller", *larges):
        claims.append(
            "“18 × fewer parameters than BERT-large” (albert-large): "
            f"{smaller[0] / smaller[1]:.1f} × by exact count."
        )
    if smaller := means("smaller", "albert-base-v2", "bert-base"):
        claims.append(
            "“About 10 % of BERT-base's parameters” (albert-base): "
            f"{100 * smaller[1] / smaller[0]:.1f} % by exact count."
        )
    for saved in means("saved", "albert-base-v2"):
        claims.append(
            "“Over 80 % saved by sharing all layers” (albert-base, E 128): "
            f"{100 * saved:.1f} % by exact count."
        )
    if sizes := [*means("gradient_bytes", *larges), *means("optimizer_bytes", *larges)]:
        claims.append(
            "In a data-parallel step each rank of albert-large exchanges "
            f"{sizes[0]:,.0f} MB of gradients and keeps {sizes[2]:,.0f} MB of moments; bert-large "
            f"{sizes[1]:,.0f} MB and {sizes[3]:,.0f} MB."
        )
    for speed in means("speed", "albert-large-v2"):
        claims.append(
            f"“1.7 × faster than BERT-large” (albert-large): {speed:.1f} × on this device."
        )
    for speed in means("speed", "albert-xxlarge-v2"):
        verdict = "slower, as in the paper" if speed < 1 else "not slower"
        claims.append(
            f"“About 3 × slower than BERT-large” (albert-xxlarge, 0.3 ×): {speed:.2f} × on this "
            f"device, {verdict}."
        )
    if ratios := means("two_ranks", *larges):
        claims.append(
            f"Two ranks train albert-large at {ratios[0]:.2f} × the speed of one, bert-large at "
            f"{ratios[1]:.2f} ×."
        )
    return claims


def interaction(study: Study, rows: Sequence[RowResult]) -> list[str]:
    """(a − b) − (c − d) of the study's first measure, seed by seed; it counts as decided where
    three seeds or more agree on its sign."""
    if not study.interaction:
        return []
    name = study.measures[0]
    by_name = {row.row.name: row.cells.get(name) for row in rows}
    cells = [by_name.get(each) for each in study.interaction]
    there = [cell for cell in cells if cell is not None and cell.learned]
    if len(there) < 4:
        return []
    a, b, c, d = study.interaction
    values = _differences(there)
    if not values:
        return []
    mean = statistics.fmean(values)
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    agree = all(value > 0 for value in values) or all(value < 0 for value in values)
    verdict = "decided: all seeds agree" if agree and len(values) >= 3 else "undecided"
    unit, factor = ("points", 100.0) if "accuracy" in name else ("", 1.0)
    return [
        f"Interaction: (“{a}” − “{b}”) − (“{c}” − “{d}”) is "
        f"{factor * mean:+.2f} ± {factor * spread:.2f} {unit}".rstrip()
        + f"; {verdict}."
    ]


def _differences(cells: Sequence[Cell]) -> list[float]:
    """Of each seed that all four rows have."""
    by_seed = [dict(zip(cell.seeds, cell.values, strict=True)) for cell in cells]
    shared = [seed for seed in by_seed[0] if all(seed in each for each in by_seed)]
    seeds = (tuple(each[seed] for each in by_seed) for seed in shared)
    return [(a - b) - (c - d) for a, b, c, d in seeds]
