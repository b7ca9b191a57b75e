"""States of windows in, answers out: the best spans of all windows of a question, as text of its
context (SQuAD)."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from litebert.model.model import Model
from litebert.tasks.card import TaskCard
from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.examples import AnswerExample, TaskExample
from litebert.tasks.heads.losses import Units
from litebert.tasks.heads.spans import N_BEST, BestSpans, joint_spans, plain_spans
from litebert.tasks.predictions import Prediction, Span, SpanPrediction

Batches = Iterable[tuple[np.ndarray, Units, Tensor]]
"""Numbers of the units, the units and their states."""


def span_answers(
    model: Model, card: TaskCard, inputs: Inputs, examples: Sequence[TaskExample], batches: Batches
) -> list[Prediction]:
    """One prediction for each example; its null score is the lowest of its windows, since one with
    an answer is enough."""
    assert inputs.cores is not None
    per_example: list[list[tuple[float, int, int]]] = [[] for _ in examples]
    null_scores = np.full(len(examples), np.inf)
    for units, batch, states in batches:
        cores = torch.from_numpy(inputs.cores[units]).to(states.device)
        if card.task.head == "joint_span":
            found = joint_spans(
                model, batch, states, cores, max_answer=card.max_answer, beam=card.beam
            )
        else:
            found = plain_spans(model, batch, states, cores, max_answer=card.max_answer)
        numbers = inputs.examples[units]
        np.minimum.at(null_scores, numbers, found.null_score.cpu().numpy())
        for number, candidates in zip(
            numbers.tolist(), _in_characters(inputs, units, found), strict=True
        ):
            per_example[number] += candidates
    threshold = card.null_threshold if card.task.has_null else None
    return [
        SpanPrediction(
            spans=_best(example, candidates), null_score=null_score, null_threshold=threshold
        )
        for example, candidates, null_score in zip(
            examples, per_example, null_scores.tolist(), strict=True
        )
        if isinstance(example, AnswerExample)
    ]


def _in_characters(
    inputs: Inputs, units: Int[np.ndarray, " rows"], found: BestSpans
) -> Iterator[list[tuple[float, int, int]]]:
    """Of each window its spans as (score, first character, character after the last)."""
    assert inputs.offsets is not None
    start, end, score = (part.cpu().numpy() for part in (found.start, found.end, found.score))
    there = score > -np.inf
    first, second = inputs.first[units], inputs.second[units]
    shift = (second[:, 0] - (first[:, 1] - first[:, 0]) - 2)[
        :, None
    ]  # from columns to places in the pool
    starts = inputs.offsets[np.where(there, start + shift, 0), 0] if inputs.offsets.size else start
    stops = inputs.offsets[np.where(there, end + shift, 0), 1] if inputs.offsets.size else end
    for row in range(len(units)):
        kept = there[row]
        yield list(
            zip(
                score[row, kept].tolist(),
                starts[row, kept].tolist(),
                stops[row, kept].tolist(),
                strict=True,
            )
        )


def _best(example: AnswerExample, candidates: list[tuple[float, int, int]]) -> tuple[Span, ...]:
    """The best spans of all windows; of those that read the same characters the better."""
    spans: dict[tuple[int, int], Span] = {}
    for score, start, end in sorted(candidates, key=lambda found: (-found[0], found[1], found[2])):
        if start < end and (start, end) not in spans:
            spans[start, end] = Span(
                text=example.context[start:end], start=start, end=end, score=score
            )
            if len(spans) == N_BEST:
                break
    return tuple(spans.values())
