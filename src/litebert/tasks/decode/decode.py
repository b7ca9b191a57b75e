"""What a head computed in; one prediction for each example out, in their order. numpy only: every
engine predicts through it.

classify, multilabel, regress, choose and tag read labels, numbers and options (ALBERT A.3). span
and joint_span (SQuAD) read spans of a context: a span's score is the log-probability of its start
plus that of its end, over the context and [CLS]. It starts among the tokens its window predicts, so
that two windows never offer the same one, and has at most `max_answer` tokens.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from litebert.packing import HostBatch, row_bounds
from litebert.shapes import Bool, Float, Int
from litebert.tasks.encode.inputs import Inputs, within
from litebert.tasks.examples import AnswerExample, TaskExample, only
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    MultiLabelPrediction,
    NumberPrediction,
    Prediction,
    Span,
    SpanPrediction,
    TagPrediction,
)
from litebert.tasks.task import TaskCard

N_BEST = 20
"""Best spans of a window, and of an example."""
NO_SPAN = 1e4
"""Null score of a window without a token to answer with: more than any difference of
log-probabilities."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Outputs:
    """Logits of one batch, in float32."""

    logits: Float[np.ndarray, "..."]
    """A row for each row of the batch (classify, multilabel, regress, choose) or for each word
    (tag); start and end of each token as the last axis (span); the start of each token
    (joint_span)."""
    depths: Int[np.ndarray, " rows"] | None = None
    """After how many layers each row left; None where none could leave early."""
    unanswerable: Float[np.ndarray, " rows"] | None = None
    """High where the passage holds no answer (joint_span)."""
    ends: Callable[[Int[np.ndarray, "rows beam"]], Float[np.ndarray, "rows beam seq"]] | None = None
    """Logits of the end for each of several starts (joint_span)."""


Batches = Iterable[tuple[Int[np.ndarray, " units"], HostBatch, Outputs]]
"""Numbers of the units, their batch and what the head computed for it; computed while read."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """Encoded examples to predict, and what the head computes for them."""

    card: TaskCard
    inputs: Inputs
    examples: Sequence[TaskExample]
    batches: Batches


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
    labels = query.card.task.labels
    logits, depths = _logits(query, len(labels))
    rows = softmax(logits / query.card.temperature)
    return [
        LabelPrediction.of(dict(zip(labels, row, strict=True)), depth)
        for row, depth in zip(rows.tolist(), depths, strict=True)
    ]


def _multilabel(query: Query) -> list[Prediction]:
    labels, threshold = query.card.task.labels, query.card.label_threshold
    logits, depths = _logits(query, len(labels))
    return [
        MultiLabelPrediction(
            probabilities=dict(zip(labels, row, strict=True)), threshold=threshold, depth=depth
        )
        for row, depth in zip(sigmoid(logits).tolist(), depths, strict=True)
    ]


def _regress(query: Query) -> list[Prediction]:
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


class _BestSpans(NamedTuple):
    """The best spans of each window, the best first; a score of minus infinity where there are
    fewer."""

    start: Int[np.ndarray, "rows best"]
    end: Int[np.ndarray, "rows best"]
    """Column of the last token."""
    score: Float[np.ndarray, "rows best"]
    null_score: Float[np.ndarray, " rows"]


_Search = Callable[[TaskCard, HostBatch, Outputs, Any], _BestSpans]


def _independent_spans(
    card: TaskCard, batch: HostBatch, outputs: Outputs, cores: Int[np.ndarray, "rows 2"]
) -> _BestSpans:
    """Over all spans; the null score is that of [CLS] as start and end minus the best."""
    allowed = batch.arrays["allowed"]
    # the lowest number where an answer cannot stand
    lowest = np.finfo(outputs.logits.dtype).min
    logits = np.where(allowed[..., None], outputs.logits, lowest)
    start, end = (_log_softmax(logits[..., side]) for side in (0, 1))
    rows, seq = start.shape
    reach = min(card.max_answer, seq)
    starts = np.where(_within(cores, seq), start, -np.inf)
    ends = np.pad(
        np.where(_context(allowed), end, -np.inf),
        ((0, 0), (0, reach - 1)),
        constant_values=-np.inf,
    )
    # [row, start, length - 1]: the end's log-probability of a span of that length
    ends_of_spans = np.lib.stride_tricks.sliding_window_view(ends, reach, axis=1)
    # The best spans have few starts: those whose own best span is among the best.
    few = _best(starts + ends_of_spans.max(-1), min(N_BEST, seq))
    row = np.arange(rows)[:, None]
    scores = (starts[row, few][..., None] + ends_of_spans[row, few]).reshape(rows, -1)
    index = _best(scores, min(N_BEST, scores.shape[1]))
    first, score = few[row, index // reach], scores[row, index]
    best = score[:, 0]
    null = start[:, 0] + end[:, 0] - np.where(best == -np.inf, 0, best)
    return _BestSpans(first, first + index % reach, score, np.where(best == -np.inf, NO_SPAN, null))


def _beam_spans(
    card: TaskCard, batch: HostBatch, outputs: Outputs, cores: Int[np.ndarray, "rows 2"]
) -> _BestSpans:
    """The `beam` best ends of each of the `beam` best starts; the null score is the head's logit
    for no answer.

    XLNet's search, except that what cannot be an answer takes no place in the beam.
    """
    assert outputs.ends is not None
    assert outputs.unanswerable is not None
    allowed = batch.arrays["allowed"]
    rows, seq = allowed.shape
    size = min(card.beam, seq)
    row = np.arange(rows)[:, None]
    start_score = np.where(_within(cores, seq), _log_softmax(outputs.logits), -np.inf)
    start = _best(start_score, size)
    end_score = _log_softmax(outputs.ends(start))
    column = np.arange(seq)
    reached = (
        (column >= start[..., None])
        & (column < start[..., None] + card.max_answer)
        & _context(allowed)[:, None]
    )
    end_score = np.where(reached, end_score, -np.inf).reshape(rows * size, seq)
    end = _best(end_score, size)
    end_score = np.take_along_axis(end_score, end, 1).reshape(rows, size, size)
    scores = (start_score[row, start][..., None] + end_score).reshape(rows, -1)
    index = _best(scores, min(N_BEST, scores.shape[1]))
    return _BestSpans(
        start[row, index // size],
        end.reshape(rows, -1)[row, index],
        scores[row, index],
        outputs.unanswerable,
    )


def _log_softmax(logits: Float[np.ndarray, "*rows seq"]) -> Float[np.ndarray, "*rows seq"]:
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def _spans(query: Query, search: _Search) -> list[Prediction]:
    """The best spans of all windows of a question. Its null score is the lowest of its windows: one
    with an answer is enough."""
    inputs, card = query.inputs, query.card
    assert inputs.cores is not None
    candidates: list[list[tuple[float, int, int]]] = [[] for _ in query.examples]
    null_scores = np.full(len(candidates), np.inf)
    for units, batch, outputs in query.batches:
        best = search(card, batch, outputs, inputs.cores[units])
        numbers = inputs.examples[units]
        np.minimum.at(null_scores, numbers, best.null_score)
        spans = _in_characters(inputs, units, best)
        for number, of_window in zip(numbers.tolist(), spans, strict=True):
            candidates[number] += of_window
    threshold = card.null_threshold if card.task.has_null else None
    examples = only(query.examples, AnswerExample)
    return [
        SpanPrediction(
            spans=_n_best(example.context, spans),
            null_score=null_score,
            null_threshold=threshold,
        )
        for example, spans, null_score in zip(
            examples, candidates, null_scores.tolist(), strict=True
        )
    ]


def _best(scores: Float[np.ndarray, "rows n"], count: int) -> Int[np.ndarray, "rows count"]:
    """Columns of the highest scores of each row, the highest first; of equal ones any."""
    if count == scores.shape[1]:
        return np.argsort(-scores, axis=1, kind="stable")
    few = np.argpartition(-scores, count - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(scores, few, 1), axis=1, kind="stable")
    return np.take_along_axis(few, order, 1)


def _context(allowed: Bool[np.ndarray, "rows seq"]) -> Bool[np.ndarray, "rows seq"]:
    """Where an answer may stand: `allowed` without [CLS]."""
    context = allowed.copy()
    context[:, 0] = False
    return context


def _within(cores: Int[np.ndarray, "rows 2"], seq: int) -> Bool[np.ndarray, "rows seq"]:
    column = np.arange(seq)
    return (column >= cores[:, :1]) & (column < cores[:, 1:])


def _in_characters(
    inputs: Inputs, units: Int[np.ndarray, " rows"], best: _BestSpans
) -> Iterator[list[tuple[float, int, int]]]:
    """Of each window its spans as (score, first character, character after the last)."""
    assert inputs.offsets is not None
    start, end, score = best.start, best.end, best.score
    exists = score > -np.inf
    first, second = inputs.first[units], inputs.second[units]
    # from columns to positions in the pool
    shift = (second[:, 0] - (first[:, 1] - first[:, 0]) - 2)[:, None]
    starts = inputs.offsets[np.where(exists, start + shift, 0), 0] if inputs.offsets.size else start
    stops = inputs.offsets[np.where(exists, end + shift, 0), 1] if inputs.offsets.size else end
    for row, mask in enumerate(exists):
        columns = (values[row, mask].tolist() for values in (score, starts, stops))
        yield list(zip(*columns, strict=True))


def _n_best(context: str, candidates: list[tuple[float, int, int]]) -> tuple[Span, ...]:
    """The best spans of all windows; of those with the same characters the better."""
    spans: dict[tuple[int, int], Span] = {}
    for score, start, end in sorted(candidates, key=lambda span: (-span[0], span[1], span[2])):
        if start < end and (start, end) not in spans:
            spans[start, end] = Span(text=context[start:end], start=start, end=end, score=score)
            if len(spans) == N_BEST:
                break
    return tuple(spans.values())


_DECODERS: dict[str, Callable[[Query], list[Prediction]]] = {
    "classify": _classify,
    "multilabel": _multilabel,
    "regress": _regress,
    "choose": _choose,
    "span": partial(_spans, search=_independent_spans),
    "joint_span": partial(_spans, search=_beam_spans),
    "tag": _tag,
}


def decode(query: Query) -> list[Prediction]:
    return _DECODERS[query.card.task.head](query)
