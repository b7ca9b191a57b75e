"""One finished run: the files that its commands left in; the numbers of its result.json out."""

import statistics
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from litebert.config import EncoderConfig
from litebert.data.shards import Shards
from litebert.files import read_json
from litebert.lab.results import (
    BLIMP,
    FROZEN,
    METHOD,
    PRETRAINED,
    PROBES,
    RESULT,
    SPEED,
    SPEED_RANKS,
    TEXT,
    VECTORS,
)
from litebert.lab.study import MEASURES, Study
from litebert.model.count import count_encoder
from litebert.train.log import read_records

_AGREEMENT = "subject_verb_agreement"
"""BLiMP's term."""
_COUNTED_TOKENS = 2_000_000


@cache
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
        records = list(read_records(metrics))
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
        terms = minimal_pairs["terms"].items()
        result["blimp"] = {name: each["accuracy"] for name, each in terms}
        if _AGREEMENT in result["blimp"]:
            scores["agreement"] = result["blimp"][_AGREEMENT]
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
    vectors = _optional(folder / VECTORS)
    frozen = vectors.get("scores", {})
    if frozen:
        scores["frozen"] = statistics.fmean(frozen.values())
        result["majority"] = statistics.fmean(vectors["majority"].values())
    baseline = _optional(folder / PRETRAINED / METHOD)
    if baseline.get("next_token_accuracy") is not None:
        result["next_token_accuracy"] = baseline["next_token_accuracy"]
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
            if not points:  # as patience of two layers
                continue
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
