"""What the paper claims of parameters and speed, by name, beside what was counted or measured here:
rows in; sentences out. And the interaction of two settings, with its spread.
"""

import statistics
from collections.abc import Sequence

from litebert.lab.results import Cell, RowResult
from litebert.lab.study import Study


def headlines(rows: Sequence[RowResult]) -> list[str]:
    """The claims that these rows can be held against."""
    by_name = {row.row.name: row for row in rows}
    return [*_of_parameters(by_name), *_of_speed(by_name)]


def _of_parameters(rows: dict[str, RowResult]) -> list[str]:
    counts = {name: row.parameters for name, row in rows.items()}
    claims = []
    if _are_counted(rows, "bert-large", "albert-large-v2"):
        times = counts["bert-large"] / counts["albert-large-v2"]
        claims.append(
            f"“18 × fewer parameters than BERT-large” (albert-large): {times:.1f} × by exact count."
        )
    if _are_counted(rows, "bert-base", "albert-base-v2"):
        share = counts["albert-base-v2"] / counts["bert-base"]
        claims.append(
            "“About 10 % of BERT-base's parameters” (albert-base): "
            f"{100 * share:.1f} % by exact count."
        )
    base = rows.get("albert-base-v2")
    if base is not None and "saved" in base.cells:
        claims.append(
            "“Over 80 % saved by sharing all layers” (albert-base, E 128): "
            f"{100 * base.cells['saved'].mean:.1f} % by exact count."
        )
    names = ("bert-large", "albert-large-v2")
    if all(name in rows and "gradient_bytes" in rows[name].cells for name in names):
        ours, theirs = (rows[name].cells for name in reversed(names))
        claims.append(
            "In a data-parallel step each rank of albert-large exchanges "
            f"{ours['gradient_bytes'].mean:,.0f} MB of gradients and keeps "
            f"{ours['optimizer_bytes'].mean:,.0f} MB of moments; bert-large "
            f"{theirs['gradient_bytes'].mean:,.0f} MB and {theirs['optimizer_bytes'].mean:,.0f} MB."
        )
    return claims


def _are_counted(rows: dict[str, RowResult], *names: str) -> bool:
    return all(name in rows and "smaller" in rows[name].cells for name in names)


def _of_speed(rows: dict[str, RowResult]) -> list[str]:
    speeds = {name: row.cells["speed"].mean for name, row in rows.items() if "speed" in row.cells}
    claims = []
    if "albert-large-v2" in speeds:
        claims.append(
            "“1.7 × faster than BERT-large” (albert-large): "
            f"{speeds['albert-large-v2']:.1f} × on this device."
        )
    if "albert-xxlarge-v2" in speeds:
        speed = speeds["albert-xxlarge-v2"]
        verdict = "slower, as in the paper" if speed < 1 else "not slower"
        claims.append(
            f"“About 3 × slower than BERT-large” (albert-xxlarge, 0.3 ×): {speed:.2f} × on this "
            f"device, {verdict}."
        )
    ratios = {n: row.cells["two_ranks"].mean for n, row in rows.items() if "two_ranks" in row.cells}
    if {"bert-large", "albert-large-v2"} <= ratios.keys():
        claims.append(
            "Two ranks train albert-large at "
            f"{ratios['albert-large-v2']:.2f} × the speed of one, bert-large at "
            f"{ratios['bert-large']:.2f} ×."
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
