"""States of windows in, the best spans of each out, as columns with scores: for the plain span head
and the joint one.
 A score is the log-probability of the start plus that of the end, over the context and [CLS]. A
span starts among the tokens its window answers for, so that two windows never offer the same one,
and ends at most `max_answer` tokens on. (facts: SQuAD)
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from litebert.model.heads import JointSpanHead
from litebert.model.layers import States
from litebert.model.model import Model
from litebert.tasks.heads.losses import Units, span_logits

N_BEST = 20
"""Spans that are kept of a window, and of an example."""
NO_SPAN = 1e4
"""Null score of a window without a token to answer with: more than any difference of
log-probabilities."""


class BestSpans(NamedTuple):
    """The best spans of each window, the best first; a score of minus infinity where there are
    fewer."""

    start: Int[Tensor, "rows best"]
    end: Int[Tensor, "rows best"]
    """Column of the last token."""
    score: Float[Tensor, "rows best"]
    null_score: Float[Tensor, " rows"]


def plain_spans(
    model: Model, batch: Units, states: States, cores: Int[Tensor, "rows 2"], *, max_answer: int
) -> BestSpans:
    """Of all spans; the null score is what [CLS] as start and end has over the best of them."""
    start, end = span_logits(model, batch, states).log_softmax(-1)
    seq = start.shape[1]
    ends = end.masked_fill(~_context(batch), -torch.inf)
    reach = min(max_answer, seq)
    # [row, start, length - 1]: the end's log-probability of a span of that length
    ahead = F.pad(ends, (0, reach - 1), value=-torch.inf).unfold(1, reach, 1)
    scores = start.masked_fill(~_within(cores, seq), -torch.inf)[..., None] + ahead
    score, at = scores.flatten(1).topk(min(N_BEST, seq * reach))
    first, length = at // reach, at % reach
    null = start[:, 0] + end[:, 0] - score[:, 0]
    return BestSpans(
        first, first + length, score, null.masked_fill(score[:, 0] == -torch.inf, NO_SPAN)
    )


def joint_spans(
    model: Model,
    batch: Units,
    states: States,
    cores: Int[Tensor, "rows 2"],
    *,
    max_answer: int,
    beam: int,
) -> BestSpans:
    """Of the `beam` best starts the `beam` best ends each; the null score is the head's logit of
    there being no answer.

    XLNet's search, but for what cannot be an answer, which takes no place in the beam here.
    """
    head = model.head("joint_span")
    assert isinstance(head, JointSpanHead)
    assert batch.allowed is not None
    logits = head.start_logits(states, batch.allowed)
    seq = logits.shape[1]
    size = min(beam, seq)
    start_score = logits.float().log_softmax(-1).masked_fill(~_within(cores, seq), -torch.inf)
    start_score, start = start_score.topk(size)
    end_score = head.end_logits(states, batch.allowed, start).float().log_softmax(-1)
    column = torch.arange(seq, device=logits.device)
    reached = (
        (column >= start[..., None])
        & (column < start[..., None] + max_answer)
        & _context(batch)[:, None]
    )
    end_score, end = end_score.masked_fill(~reached, -torch.inf).topk(size)
    scores = (start_score[..., None] + end_score).flatten(1)
    score, at = scores.topk(min(N_BEST, scores.shape[1]))
    return BestSpans(
        start.gather(1, at // size),
        end.flatten(1).gather(1, at),
        score,
        head.unanswerable(states, logits).float(),
    )


def _context(batch: Units) -> Bool[Tensor, "rows seq"]:
    """Where an answer may stand: as `allowed`, without [CLS]."""
    assert batch.allowed is not None
    context = batch.allowed.clone()
    context[:, 0] = False
    return context


def _within(cores: Int[Tensor, "rows 2"], seq: int) -> Bool[Tensor, "rows seq"]:
    column = torch.arange(seq, device=cores.device)
    return (column >= cores[:, :1]) & (column < cores[:, 1:])
