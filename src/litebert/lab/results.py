"""What the runs of a study came to: run folders in; numbers by row, with their spread, out.

A row counts only if something was learned: held-out accuracy at least three times that of always
predicting the most frequent token, and for an order 5 points over chance.
"""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from litebert.config import EncoderConfig
from litebert.data.shards import Shards
from litebert.errors import CheckpointError, ConfigError
from litebert.files import read_json
from litebert.lab.study import MEASURES, Row, Study
from litebert.model.count import TRAINING_BYTES, count_encoder

LEARNED_TIMES, LEARNED_POINTS = 3.0, 0.05
SHARE_OF_RUN = 0.05
"""Part of a run, at its end, whose training loss is compared with held-out text."""
NOT_LEARNED = "not learned"
RESULT, PRETRAINED, OUTPUT = "result.json", "pretrain", "output.txt"
"""In a run's folder: its numbers, the folder of its pretraining, what its last command printed."""
_COUNTED_TOKENS = 2_000_000


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One measure of one row over its seeds."""

    values: tuple[float, ...]
    learned: bool = True

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float:
        """Standard deviation over seeds; 0 for one seed."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


@dataclass(frozen=True, kw_only=True)
class RowResult:
    """One row: its cells by column, and what was counted."""

    row: Row
    parameters: int
    """Of the encoder, at the vocabulary that was trained with."""
    seeds: int
    """Finished runs."""
    cells: Mapping[str, Cell] = field(default_factory=dict)
    curves: tuple[tuple[tuple[float, float], ...], ...] = ()
    """Of each run: (tokens, masked-token accuracy on held-out text)."""
    distances: tuple[Mapping[str, Sequence[float]], ...] = ()
    """Of each run: by application how far states move, as `l2` and `cosine`."""


def most_frequent_share(data: Path) -> float:
    """Share of the most frequent token: the accuracy of always predicting it."""
    tokens = Shards.open(data).arrays(0).tokens[:_COUNTED_TOKENS]
    return float(np.bincount(tokens).max() / len(tokens))


def measure(folder: Path, *, row: str, seed: int, frequent: float) -> dict[str, Any]:
    """The numbers of one finished run, for its result.json; `frequent` is the share of the most
    frequent token."""
    if not (folder / PRETRAINED / "metrics.jsonl").exists():  # a dry run
        printed = json.loads((folder / OUTPUT).read_text(encoding="utf-8"))
        speed = {"tokens_per_second": printed["tokens_per_second"]}
        return {"row": row, "seed": seed, "scores": speed, "tasks": {}, "curve": []}
    records = _records(folder / PRETRAINED / "metrics.jsonl")
    steps = [record for record in records if record["kind"] == "step"]
    evaluations = [record for record in records if record["kind"] == "evaluation"]
    last = evaluations[-1] if evaluations else {}
    scores: dict[str, float] = {
        name: last[name] for name in MEASURES if isinstance(last.get(name), int | float)
    }
    if steps:
        tail = steps[-max(1, round(SHARE_OF_RUN * len(steps))) :]
        scores["seconds"] = steps[-1]["seconds"]
        if "masked_loss" in last:
            trained = statistics.fmean(record["masked_loss"] for record in tail)
            scores["gap"] = last["masked_loss"] - trained
    tasks = {}
    for path in sorted(folder.glob(f"*/{RESULT}")):
        result = read_json(path)
        tasks[path.parent.name] = result["score"]
    return {
        "row": row,
        "seed": seed,
        "scores": scores,
        "tasks": tasks,
        "tokens": steps[-1]["tokens"] if steps else 0,
        "most_frequent_share": frequent,
        "curve": [
            [record["tokens"], record["masked_accuracy"]]
            for record in evaluations
            if "masked_accuracy" in record
        ],
    }


def collect(study: Study, scale: str, folder: Path) -> list[RowResult]:
    """The rows of a study's folder that have a finished run."""
    results: dict[str, list[dict[str, Any]]] = {row.name: [] for row in study.rows}
    if study.kind == "count":
        return _counted(study, scale)
    for path in sorted(folder.glob(f"*-seed*/{RESULT}")):
        result = read_json(path)
        results.setdefault(result["row"], []).append(result | {"folder": path.parent})
    if not any(results.values()):
        raise ConfigError(f"{folder} has no finished run yet; litebert lab run trains them")
    done = [row for row in study.rows if results[row.name]]
    rows = [_row(study, scale, row, results[row.name]) for row in done]
    return _relative(study, rows) if study.kind == "speed" else rows


def columns(study: Study, rows: Sequence[RowResult]) -> list[str]:
    """Measures, then the tasks that were scored."""
    there = {name for row in rows for name in row.cells}
    return [*[name for name in study.measures if name in there], *sorted(there - MEASURES.keys())]


def is_clear(cell: Cell, control: Cell) -> bool:
    """Whether every seed of one lies on one side of every seed of the other, with three each."""
    if min(len(cell.values), len(control.values)) < 3:
        return False
    return min(cell.values) > max(control.values) or max(cell.values) < min(control.values)


def _counted(study: Study, scale: str) -> list[RowResult]:
    """Exact counts: nothing is trained."""
    parts = {row.name: count_encoder(study.recipe(row, scale).encoder) for row in study.rows}
    totals = {name: sum(counts.values()) for name, counts in parts.items()}
    numbers = {
        name: {
            "smaller": totals[study.reference.name] / total,
            "embedding": parts[name]["embedding"] / total,
            "update_bytes": (TRAINING_BYTES - 4) * total / 1e6,
        }
        for name, total in totals.items()
    }
    return [
        RowResult(
            row=row,
            parameters=totals[row.name],
            seeds=1,
            cells={name: Cell(values=(value,)) for name, value in numbers[row.name].items()},
        )
        for row in study.rows
    ]


def _relative(study: Study, rows: Sequence[RowResult]) -> list[RowResult]:
    """With the speed relative to the control's."""
    name = "tokens_per_second"
    measured = {row.row.name: row.cells.get(name) for row in rows}
    control = measured.get(study.reference.name)
    if control is None:
        return list(rows)
    return [
        replace(
            row, cells={**row.cells, "speed": Cell(values=(row.cells[name].mean / control.mean,))}
        )
        if name in row.cells
        else row
        for row in rows
    ]


def _row(study: Study, scale: str, row: Row, runs: Sequence[dict[str, Any]]) -> RowResult:
    cells: dict[str, Cell] = {}
    learned = all(_has_learned(run) for run in runs)
    for name in study.measures:
        values = tuple(run["scores"][name] for run in runs if name in run["scores"])
        if values and all(math.isfinite(value) for value in values):
            cells[name] = Cell(values=values, learned=learned and _is_over_chance(name, values))
    for task in sorted({task for run in runs for task in run["tasks"]}):
        cells[task] = Cell(values=tuple(run["tasks"][task] for run in runs if task in run["tasks"]))
    return RowResult(
        row=row,
        parameters=sum(count_encoder(_encoder(study, scale, row, runs)).values()),
        seeds=len(runs),
        cells=cells,
        curves=tuple(tuple((t, a) for t, a in run["curve"]) for run in runs),
        distances=tuple(run["distances"] for run in runs if "distances" in run),
    )


def _encoder(study: Study, scale: str, row: Row, runs: Sequence[dict[str, Any]]) -> EncoderConfig:
    """The encoder that was trained, whose vocabulary is the data's; or the recipe's."""
    for run in runs:
        try:
            config = read_json(run["folder"] / PRETRAINED / "final" / "config.json")
        except CheckpointError:
            continue
        return EncoderConfig.from_dict(config["encoder"])
    return study.recipe(row, scale).encoder


def _has_learned(run: Mapping[str, Any]) -> bool:
    accuracy = run["scores"].get("masked_accuracy")
    return accuracy is None or bool(accuracy >= LEARNED_TIMES * run["most_frequent_share"])


def _is_over_chance(name: str, values: Iterable[float]) -> bool:
    if name not in ("sop_accuracy", "nsp_accuracy"):
        return True
    return statistics.fmean(values) >= 0.5 + LEARNED_POINTS


def _records(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
