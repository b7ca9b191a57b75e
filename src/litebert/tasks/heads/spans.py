"""Heads whose logits are spans of a context: span and joint_span (SQuAD; ALBERT A.3).

span: cross-entropy of start and end, their mean. joint_span: the same, the end given the true
start, plus half the binary cross-entropy of there being no answer (XLNet's head).

A span's score is the log-probability of its start plus that of its end, over the context and
[CLS]. A span starts among the tokens its window predicts, so that two windows never offer the same
one, and has at most `max_answer` tokens.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from litebert.model.batch import DeviceBatch
from litebert.model.heads import JointSpanHead
from litebert.model.layers import States
from litebert.model.model import Model
from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.examples import AnswerExample, only
from litebert.tasks.heads.head import Query, TaskSums, without_padding
from litebert.tasks.predictions import Prediction, Span, SpanPrediction
from litebert.tasks.task import TaskCard

N_BEST = 20
"""Best spans of a window, and of an example."""
NO_SPAN = 1e4
"""Null score of a window without a token to answer with: more than any difference of
log-probabilities."""
_NULL_WEIGHT = 0.5
"""Weight of the answerability loss beside start and end."""


class _BestSpans(NamedTuple):
    """The best spans of each window, the best first; a score of minus infinity where there are
    fewer."""

    start: Int[Tensor, "rows best"]
    end: Int[Tensor, "rows best"]
    """Column of the last token."""
    score: Float[Tensor, "rows best"]
    null_score: Float[Tensor, " rows"]


class PlainSpan:
    """Start and end, independent of each other. Targets are columns (start, end), 0 for no
    answer."""

    dtype = torch.int64

    def loss(self, model: Model, batch: DeviceBatch, states: States, targets: Tensor) -> TaskSums:
        start, end = self._logits(model, batch, states)
        return _span_loss(start, end, targets)

    def _best_spans(
        self,
        model: Model,
        card: TaskCard,
        batch: DeviceBatch,
        states: States,
        cores: Int[Tensor, "rows 2"],
    ) -> _BestSpans:
        """Over all spans; the null score is that of [CLS] as start and end minus the best."""
        start, end = self._logits(model, batch, states).log_softmax(-1)
        seq = start.shape[1]
        ends = end.masked_fill(~_context(batch), -torch.inf)
        reach = min(card.max_answer, seq)
        # [row, start, length - 1]: the end's log-probability of a span of that length
        ahead = F.pad(ends, (0, reach - 1), value=-torch.inf).unfold(1, reach, 1)
        scores = start.masked_fill(~_within(cores, seq), -torch.inf)[..., None] + ahead
        score, index = scores.flatten(1).topk(min(N_BEST, seq * reach))
        first, length = index // reach, index % reach
        null = start[:, 0] + end[:, 0] - score[:, 0]
        return _BestSpans(
            first, first + length, score, null.masked_fill(score[:, 0] == -torch.inf, NO_SPAN)
        )

    def predict(self, query: Query) -> list[Prediction]:
        """The best spans of all windows of a question. Its null score is the lowest of its windows:
        one with an answer is enough."""
        inputs, card = query.inputs, query.card
        assert inputs.cores is not None
        candidates: list[list[tuple[float, int, int]]] = [[] for _ in query.examples]
        null_scores = np.full(len(candidates), np.inf)
        for units, batch, states in query.batches:
            cores = torch.from_numpy(inputs.cores[units]).to(states.device)
            best = self._best_spans(query.model, card, batch, states, cores)
            numbers = inputs.examples[units]
            np.minimum.at(null_scores, numbers, best.null_score.cpu().numpy())
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

    def average(self, predictions: Sequence[Prediction]) -> Prediction:
        """Means of the scores of every span that a model names, and of the null scores, each
        counted from its model's threshold.

        A model that does not name a span gives it the score of the last that it names, which is an
        upper bound. The mean over only those that name it would prefer what one model believes to
        what all of them do.
        """
        models = only(predictions, SpanPrediction)
        named = [
            {(span.start, span.end): span for span in each.spans} for each in models if each.spans
        ]
        lowest = [min(span.score for span in spans.values()) for spans in named]
        texts = {ends: span.text for spans in named for ends, span in spans.items()}
        means = []
        for ends, text in texts.items():
            scores = [
                spans[ends].score if ends in spans else low
                for spans, low in zip(named, lowest, strict=True)
            ]
            means.append(Span(text=text, start=ends[0], end=ends[1], score=float(np.mean(scores))))
        means.sort(key=lambda span: (-span.score, span.start, span.end))
        nulls = [each.null_score - (each.null_threshold or 0.0) for each in models]
        always_answers = all(each.null_threshold is None for each in models)
        return SpanPrediction(
            spans=tuple(means[: max(len(each.spans) for each in models)]),
            null_score=float(np.mean(nulls)),
            null_threshold=None if always_answers else 0.0,
        )

    def _logits(
        self, model: Model, batch: DeviceBatch, states: States
    ) -> Float[Tensor, "2 rows seq"]:
        """Start's and end's, the lowest number where an answer cannot stand."""
        logits = model.logits("span", states).float().permute(2, 0, 1)
        return logits.masked_fill(~batch.head_inputs["allowed"], torch.finfo(logits.dtype).min)


class JointSpan(PlainSpan):
    """Start, end given start, and answerability."""

    def loss(self, model: Model, batch: DeviceBatch, states: States, targets: Tensor) -> TaskSums:
        head = _joint_head(model)
        # padding has no start: any will do
        logits = head(states, batch.head_inputs["allowed"], targets[:, 0].clamp(min=0))
        sums = _span_loss(logits.start.float(), logits.end.float(), targets)
        is_null = (targets[:, 0] == 0).float()
        null = F.binary_cross_entropy_with_logits(
            logits.unanswerable.float(), is_null, reduction="none"
        )
        return TaskSums(
            loss=sums.loss + _NULL_WEIGHT * without_padding(batch, null).sum(), correct=sums.correct
        )

    def _best_spans(
        self,
        model: Model,
        card: TaskCard,
        batch: DeviceBatch,
        states: States,
        cores: Int[Tensor, "rows 2"],
    ) -> _BestSpans:
        """The `beam` best ends of each of the `beam` best starts; the null score is the head's
        logit for no answer.

        XLNet's search, except that what cannot be an answer takes no place in the beam.
        """
        head = _joint_head(model)
        logits = head.start_logits(states, batch.head_inputs["allowed"])
        seq = logits.shape[1]
        size = min(card.beam, seq)
        start_score = logits.float().log_softmax(-1).masked_fill(~_within(cores, seq), -torch.inf)
        start_score, start = start_score.topk(size)
        end_score = (
            head.end_logits(states, batch.head_inputs["allowed"], start).float().log_softmax(-1)
        )
        column = torch.arange(seq, device=logits.device)
        reached = (
            (column >= start[..., None])
            & (column < start[..., None] + card.max_answer)
            & _context(batch)[:, None]
        )
        end_score, end = end_score.masked_fill(~reached, -torch.inf).topk(size)
        scores = (start_score[..., None] + end_score).flatten(1)
        score, index = scores.topk(min(N_BEST, scores.shape[1]))
        return _BestSpans(
            start.gather(1, index // size),
            end.flatten(1).gather(1, index),
            score,
            head.unanswerable(states, logits).float(),
        )


def _joint_head(model: Model) -> JointSpanHead:
    head = model.head("joint_span")
    assert isinstance(head, JointSpanHead)
    return head


def _span_loss(start: Tensor, end: Tensor, targets: Tensor) -> TaskSums:
    losses = [
        F.cross_entropy(logits, columns, reduction="sum")
        for logits, columns in zip((start, end), targets.unbind(1), strict=True)
    ]
    correct = (start.argmax(-1) == targets[:, 0]) & (end.argmax(-1) == targets[:, 1])
    return TaskSums(loss=torch.stack(losses).sum() / 2, correct=correct.sum().float())


def _context(batch: DeviceBatch) -> Bool[Tensor, "rows seq"]:
    """Where an answer may stand: `allowed` without [CLS]."""
    context = batch.head_inputs["allowed"].clone()
    context[:, 0] = False
    return context


def _within(cores: Int[Tensor, "rows 2"], seq: int) -> Bool[Tensor, "rows seq"]:
    column = torch.arange(seq, device=cores.device)
    return (column >= cores[:, :1]) & (column < cores[:, 1:])


def _in_characters(
    inputs: Inputs, units: Int[np.ndarray, " rows"], best: _BestSpans
) -> Iterator[list[tuple[float, int, int]]]:
    """Of each window its spans as (score, first character, character after the last)."""
    assert inputs.offsets is not None
    start, end, score = (tensor.cpu().numpy() for tensor in (best.start, best.end, best.score))
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
