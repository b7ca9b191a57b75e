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
from litebert.model.count import count_encoder

LEARNED_TIMES, LEARNED_POINTS = 3.0, 0.05
NOT_LEARNED = "not learned"
STUDY, RESULT, RECIPE, LOG = "study.json", "result.json", "recipe.json", "log.txt"
ENVIRONMENT = "environment.json"
PRETRAINED, OUTPUT = "pretrain", "output.txt"
"""In a run's folder: the folder of its pretraining, what a command printed."""
PROBES, BLIMP, TEXT, VECTORS = "probes.json", "blimp.json", "text.json", "vectors.json"
SPEED, SPEED_RANKS = "speed.json", "speed_ranks.json"
METHOD = "method.json"
AGREEMENT = "subject_verb_agreement"
"""BLiMP's term."""
FROZEN = " (frozen)"
"""After a task's name: a linear model of frozen vectors."""
_FACTS = ("seconds", "tokens", "touched", "tokens_per_second", "two_ranks")
"""Measures that hold whether a model has learned or not."""
_COUNTED_TOKENS = 2_000_000
_SHARED_NAMES = {"all", "attention", "ffn"}


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
    exits: tuple[Mapping[str, Any], ...] = ()
    """Of each run: by task the scores of all depths, and by criterion mean depths and scores."""


def most_frequent_share(data: Path) -> float:
    """Share of the most frequent token: the accuracy of always predicting it."""
    tokens = Shards.open(data).arrays(0).tokens[:_COUNTED_TOKENS]
    return float(np.bincount(tokens).max() / len(tokens))


def measure(study: Study, folder: Path, *, row: str, seed: int, frequent: float) -> dict[str, Any]:
    """The numbers of one finished run, for its result.json; `frequent` is the share of the most
    frequent token."""
    result: dict[str, Any] = {"row": row, "seed": seed, "scores": {}, "tasks": {}, "curve": []}
    if study.kind == "speed":
        return result | {"scores": _speeds(folder)}
    result["most_frequent_share"] = frequent
    scores: dict[str, float] = result["scores"]
    metrics = folder / PRETRAINED / "metrics.jsonl"
    if metrics.exists():  # the baselines have none
        records = _records(metrics)
        steps = [record for record in records if record["kind"] == "step"]
        evaluations = [record for record in records if record["kind"] == "evaluation"]
        last = evaluations[-1] if evaluations else {}
        numbers = {name: last.get(name) for name in MEASURES}
        scores |= {name: n for name, n in numbers.items() if isinstance(n, int | float)}
        if steps:
            scores["seconds"] = steps[-1]["seconds"]
            scores["tokens"] = steps[-1]["tokens"] / 1e6
        result["curve"] = [
            [record["tokens"], record["masked_accuracy"]]
            for record in evaluations
            if "masked_accuracy" in record
        ]
    probed = _optional(folder / PROBES)
    if "distances" in probed:
        result["distances"] = probed.pop("distances")
    scores |= probed
    minimal_pairs, text = _optional(folder / BLIMP), _optional(folder / TEXT)
    if minimal_pairs:
        scores["blimp"] = minimal_pairs["overall"]["accuracy"]
        if AGREEMENT in minimal_pairs["terms"]:
            scores["agreement"] = minimal_pairs["terms"][AGREEMENT]["accuracy"]
        terms = minimal_pairs["terms"].items()
        result["blimp"] = {name: each["accuracy"] for name, each in terms}
    if text:
        scores["text_loss"] = text["scores"]["loss"]
        scores["text_accuracy"] = text["scores"]["accuracy"]
    exits = {}
    for path in sorted(folder.glob(f"*/{RESULT}")):
        finetuned = read_json(path)
        task = path.parent.name
        result["tasks"][task] = finetuned["score"]
        if finetuned.get("exit_curves"):
            exits[task] = _exits_of(finetuned)
    if exits:
        result["exits"] = exits
        scores |= half_depth_scores(exits)
    frozen = _optional(folder / VECTORS)
    if frozen:
        scores["frozen"] = statistics.fmean(frozen.values())
    parameters = _parameters(folder)
    if parameters is not None:
        result["parameters"] = parameters
    result["tasks"] |= {f"{task}{FROZEN}": score for task, score in frozen.items()}
    return result


def half_depth_scores(exits: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Mean over tasks of the score of all layers, of the exit after half of them, and of each
    criterion where it takes half of them on average, between its nearest two thresholds."""
    columns: dict[str, list[float]] = {}
    for each in exits.values():
        depths = each["depths"]
        half = len(depths) / 2
        columns.setdefault("exit_full", []).append(depths[-1])
        columns.setdefault("exit_fixed", []).append(depths[max(int(half), 1) - 1])
        for criterion, points in each["curves"].items():
            across, up = zip(*sorted(points), strict=True)
            columns.setdefault(f"exit_{criterion}", []).append(float(np.interp(half, across, up)))
    return {name: statistics.fmean(values) for name, values in columns.items()}


def _exits_of(finetuned: Mapping[str, Any]) -> dict[str, Any]:
    """Scores by depth, and by criterion (mean depth, score)."""
    return {
        "depths": [next(iter(each.values())) for each in finetuned["depth_scores"]],
        "curves": {
            criterion: [[point["mean_depth"], point["score"]] for point in points]
            for criterion, points in finetuned["exit_curves"].items()
        },
    }


def _parameters(folder: Path) -> int | None:
    """Of what was trained, whose vocabulary is the data's; the encoder alone where there is one."""
    record = _optional(folder / PRETRAINED / METHOD)
    if "parameters" in record:
        return int(record["parameters"])
    config = _optional(folder / PRETRAINED / "final" / "config.json")
    if not config:
        return None
    return sum(count_encoder(EncoderConfig.from_dict(config["encoder"])).values())


def _speeds(folder: Path) -> dict[str, float]:
    speed = read_json(folder / SPEED)["tokens_per_second"]
    scores = {"tokens_per_second": float(speed)}
    ranks = _optional(folder / SPEED_RANKS)
    if ranks:
        scores["two_ranks"] = ranks["tokens_per_second"] / speed
    return scores


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


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
    rows = [_row(study, scale, row, results[row.name], _trained(row, results)) for row in done]
    return _relative(study, rows) if study.kind == "speed" else rows


def columns(study: Study, rows: Sequence[RowResult]) -> list[str]:
    """Measures, then the tasks that were scored."""
    there = {name for row in rows for name in row.cells}
    extra = [name for name in ("text_loss", "text_accuracy") if name not in study.measures]
    measures = [name for name in (*study.measures, *extra) if name in there]
    return [*measures, *sorted(there - MEASURES.keys())]


def is_clear(cell: Cell, control: Cell) -> bool:
    """Whether every seed of one lies on one side of every seed of the other, with three each."""
    if min(len(cell.values), len(control.values)) < 3:
        return False
    return min(cell.values) > max(control.values) or max(cell.values) < min(control.values)


def _counted(study: Study, scale: str) -> list[RowResult]:
    """Exact counts: nothing is trained."""
    parts = {row.name: count_encoder(study.recipe(row, scale).encoder) for row in study.rows}
    totals = {name: sum(counts.values()) for name, counts in parts.items()}
    numbers: dict[str, dict[str, float]] = {}
    for row in study.rows:
        name, total = row.name, totals[row.name]
        numbers[name] = {
            "smaller": totals[study.reference.name] / total,
            "embedding": parts[name]["embedding"] / total,
            "gradient_bytes": 4 * total / 1e6,
            "optimizer_bytes": 8 * total / 1e6,
        }
        encoder = study.recipe(row, scale).encoder
        if encoder.share in _SHARED_NAMES:
            unshared = replace(encoder, share="none", num_groups=1)
            numbers[name]["saved"] = 1 - total / sum(count_encoder(unshared).values())
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


def _trained(row: Row, results: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The runs whose learning counts: a row's own, or those of an ensemble's members."""
    return [run for name in row.members or (row.name,) for run in results.get(name, [])]


def _row(
    study: Study,
    scale: str,
    row: Row,
    runs: Sequence[dict[str, Any]],
    trained: Sequence[dict[str, Any]],
) -> RowResult:
    cells: dict[str, Cell] = {}
    learned = all(_has_learned(run) for run in trained)
    for name in dict.fromkeys((*study.measures, "text_loss", "text_accuracy")):
        values = tuple(run["scores"][name] for run in runs if name in run["scores"])
        if values and all(math.isfinite(value) for value in values):
            counts = learned or name in _FACTS
            cells[name] = Cell(values=values, learned=counts and _is_over_chance(name, values))
    for task in sorted({task for run in runs for task in run["tasks"]}):
        cells[task] = Cell(
            values=tuple(run["tasks"][task] for run in runs if task in run["tasks"]),
            learned=learned,
        )
    counted = [run["parameters"] for run in runs if "parameters" in run]
    if counted:
        parameters = counted[0]
    else:  # a dry run, or a result from before it was written down
        parameters = sum(count_encoder(_encoder(study, scale, row, runs)).values())
        parameters *= len(runs[0].get("members", row.members)) if row.members else 1
    return RowResult(
        row=row,
        parameters=parameters,
        seeds=len(runs),
        cells=cells,
        curves=tuple(tuple((t, a) for t, a in run["curve"]) for run in runs),
        distances=tuple(run["distances"] for run in runs if "distances" in run),
        exits=tuple(run["exits"] for run in runs if "exits" in run),
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
    if name not in ("sop_accuracy", "nsp_accuracy", "sop_probe", "nsp_probe", "agreement"):
        return True
    return statistics.fmean(values) >= 0.5 + LEARNED_POINTS


def _records(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
