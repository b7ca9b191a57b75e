"""The table of heads: a query in, one prediction for each example out, in their order; and the
heads whose logits are labels, numbers or options: classify, multilabel, regress, choose and tag
(ALBERT A.3)."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from litebert.packing import row_bounds
from litebert.shapes import Float
from litebert.tasks.decode.outputs import Query
from litebert.tasks.decode.spans import joint_span, span
from litebert.tasks.encode.inputs import within
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    MultiLabelPrediction,
    NumberPrediction,
    Prediction,
    TagPrediction,
)


def _logits(
    query: Query, width: int
) -> tuple[Float[np.ndarray, "units outputs"], list[int | None]]:
    """The logits of each unit, and the depth at which it left; None where none could leave."""
    rows = np.zeros((len(query.inputs), width), np.float32)
    depths: list[int | None] = [None] * len(rows)
    for units, _, outputs in query.batches:
        rows[units] = outputs.logits
        if outputs.depths is not None:
            for unit, depth in zip(units.tolist(), outputs.depths.tolist(), strict=True):
                depths[unit] = depth
    return rows, depths


def _classify(query: Query) -> list[Prediction]:
    """One label for each unit."""
    labels = query.card.task.labels
    logits, depths = _logits(query, len(labels))
    rows = softmax(logits / query.card.temperature)
    return [
        LabelPrediction.of(dict(zip(labels, row, strict=True)), depth)
        for row, depth in zip(rows.tolist(), depths, strict=True)
    ]


def _multilabel(query: Query) -> list[Prediction]:
    """Any number of labels for each unit."""
    labels, threshold = query.card.task.labels, query.card.label_threshold
    logits, depths = _logits(query, len(labels))
    return [
        MultiLabelPrediction(
            probabilities=dict(zip(labels, row, strict=True)), threshold=threshold, depth=depth
        )
        for row, depth in zip(sigmoid(logits).tolist(), depths, strict=True)
    ]


def _regress(query: Query) -> list[Prediction]:
    """One number for each unit."""
    rows, depths = _logits(query, 1)
    return [
        NumberPrediction(value=value, depth=depth)
        for (value,), depth in zip(rows.tolist(), depths, strict=True)
    ]


def _choose(query: Query) -> list[Prediction]:
    """One of a unit's options; they may be more or fewer from unit to unit."""
    sizes = query.inputs.num_rows
    rows = np.zeros((len(sizes), int(sizes.max(initial=1))), np.float32)
    for units, batch, outputs in query.batches:
        options = batch.arrays["options"]
        lowest = np.finfo(outputs.logits.dtype).min  # where a unit has fewer options
        logits = np.where(options < 0, lowest, outputs.logits[options, 0])
        rows[units, : options.shape[1]] = softmax(logits)
    options_of = [
        tuple(row[:size]) for row, size in zip(rows.tolist(), sizes.tolist(), strict=True)
    ]
    return [ChoicePrediction(index=int(np.argmax(row)), probabilities=row) for row in options_of]


def _tag(query: Query) -> list[Prediction]:
    """A label for each word, at its first token."""
    inputs, labels = query.inputs, query.card.task.labels
    assert inputs.sizes is not None
    bounds = row_bounds(inputs.sizes)
    best, highest = np.zeros(bounds[-1], np.int64), np.zeros(bounds[-1], np.float32)
    for units, _, outputs in query.batches:
        rows = softmax(outputs.logits)
        words = within(bounds, units)
        best[words], highest[words] = rows.argmax(1), rows.max(1)
    tags, probabilities = [labels[number] for number in best.tolist()], highest.tolist()
    # windows are in the order of their examples, and each word belongs to one of them
    first = np.searchsorted(inputs.examples, np.arange(len(query.examples)))
    return [
        TagPrediction(tags=tuple(tags[start:stop]), probabilities=tuple(probabilities[start:stop]))
        for start, stop in pairwise(np.append(bounds[first], bounds[-1]).tolist())
    ]


def softmax(logits: Float[np.ndarray, "*rows outputs"]) -> Float[np.ndarray, "*rows outputs"]:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def sigmoid(logits: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    powers = np.exp(-np.abs(logits))  # never overflows
    return np.asarray(np.where(logits >= 0, 1, powers) / (1 + powers))


_DECODERS: dict[str, Callable[[Query], list[Prediction]]] = {
    "classify": _classify,
    "multilabel": _multilabel,
    "regress": _regress,
    "choose": _choose,
    "span": span,
    "joint_span": joint_span,
    "tag": _tag,
}


def decode(query: Query) -> list[Prediction]:
    return _DECODERS[query.card.task.head](query)
