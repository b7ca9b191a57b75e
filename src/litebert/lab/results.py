"""What the runs of a study came to: run folders in; numbers by row, with their spread, out.

A row counts only if something was learned: held-out accuracy (of masked tokens, or of next ones for
a causal model) at least three times that of always predicting the most frequent token; for vectors,
a mean over tasks above that of the majority; and for an order 5 points over chance.
"""

import contextlib
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from litebert.config import EncoderConfig
from litebert.errors import CheckpointError, ConfigError
from litebert.files import read_json
from litebert.lab.study import MEASURES, Row, Study
from litebert.model.count import count_encoder

_LEARNED_TIMES, _LEARNED_POINTS = 3.0, 0.05
NOT_LEARNED = "not learned"
STUDY, RESULT, RECIPE, LOG = "study.json", "result.json", "recipe.json", "log.txt"
ENVIRONMENT = "environment.json"
PRETRAINED, OUTPUT = "pretrain", "output.txt"
"""In a run's folder: the folder of its pretraining, what a command printed."""
PROBES, BLIMP, TEXT, VECTORS = "probes.json", "blimp.json", "text.json", "vectors.json"
SPEED, SPEED_RANKS = "speed.json", "speed_ranks.json"
METHOD = "method.json"
FROZEN = " (frozen)"
"""After a task's name: a linear model of frozen vectors."""
_FACTS = ("seconds", "tokens", "touched", "tokens_per_second", "two_ranks")
"""Measures that hold whether a model has learned or not."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One measure of one row over its seeds."""

    values: tuple[float, ...]
    learned: bool = True
    seeds: tuple[int, ...] = ()
    """Of the values, where they have any."""

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
    learned: bool = True
    """Whether its models learned something; if not, no picture shows them."""
    is_shared: bool = False
    """Whether other runs were on the device at the same time, so that `seconds` do not compare."""
    cells: Mapping[str, Cell] = field(default_factory=dict)
    curves: tuple[tuple[tuple[float, float], ...], ...] = ()
    """Of each run: (tokens, masked-token accuracy on held-out text)."""
    distances: tuple[Mapping[str, Sequence[float]], ...] = ()
    """Of each run: by application how far states move, as `l2` and `cosine`."""
    exits: tuple[Mapping[str, Any], ...] = ()
    """Of each run: by task the scores of all depths, and by criterion mean depths and scores."""


@contextlib.contextmanager
def writing(target: Path) -> Iterator[None]:
    """ConfigError where the block cannot write into a file or a folder."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}; name another") from error


def collect(study: Study, scale: str, folder: Path) -> list[RowResult]:
    """The rows of a study's folder that have a finished run."""
    if study.kind == "count":
        return _counted(study, scale)
    results: dict[str, list[dict[str, Any]]] = {row.name: [] for row in study.rows}
    for path in sorted(folder.glob(f"*-seed*/{RESULT}")):
        result = read_json(path)
        results.setdefault(result["row"], []).append(result | {"folder": path.parent})
    if not any(results.values()):
        raise ConfigError(f"{folder} has no finished run yet; litebert lab run trains them")
    rows = []
    for row in study.rows:
        if results[row.name]:
            # an ensemble has learned where its members have
            trained = [run for name in row.members or (row.name,) for run in results[name]]
            rows.append(_row(study, scale, row, results[row.name], trained))
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
    control = sum(count_encoder(study.recipe(study.reference, scale).encoder).values())
    rows = []
    for row in study.rows:
        encoder = study.recipe(row, scale).encoder
        parts = count_encoder(encoder)
        total = sum(parts.values())
        numbers = {
            "smaller": control / total,
            "embedding": parts["embedding"] / total,
            "gradient_bytes": 4 * total / 1e6,
            "optimizer_bytes": 8 * total / 1e6,
        }
        if encoder.share != "none":
            unshared = replace(encoder, share="none", num_groups=1)
            numbers["saved"] = 1 - total / sum(count_encoder(unshared).values())
        cells = {name: Cell(values=(value,)) for name, value in numbers.items()}
        rows.append(RowResult(row=row, parameters=total, seeds=1, cells=cells))
    return rows


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
        by_seed = {run["seed"]: run["scores"][name] for run in runs if name in run["scores"]}
        values = tuple(by_seed.values())
        if values and all(math.isfinite(value) for value in values):
            counts = learned or name in _FACTS
            is_learned = counts and _is_over_chance(name, values)
            cells[name] = Cell(values=values, learned=is_learned, seeds=tuple(by_seed))
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
        learned=learned,
        is_shared=any(run.get("is_shared") for run in runs),
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
    accuracy = run["scores"].get("masked_accuracy", run.get("next_token_accuracy"))
    if accuracy is not None:
        return bool(accuracy >= _LEARNED_TIMES * run["most_frequent_share"])
    return "majority" not in run or bool(run["scores"]["frozen"] > run["majority"])


def _is_over_chance(name: str, values: Iterable[float]) -> bool:
    if name not in ("sop_accuracy", "nsp_accuracy", "sop_probe", "nsp_probe", "agreement"):
        return True
    return statistics.fmean(values) >= 0.5 + _LEARNED_POINTS
