"""Heads whose logits are spans of a context: span and joint_span (SQuAD; ALBERT A.3).

span: cross-entropy of start and end, their mean. joint_span: the same, the end given the true
start, plus half the binary cross-entropy of there being no answer (XLNet's head).
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from litebert.model.batch import DeviceBatch
from litebert.model.heads import JointSpanHead
from litebert.model.layers import States
from litebert.model.model import Model
from litebert.tasks.decode.decode import Outputs
from litebert.tasks.examples import only
from litebert.tasks.heads.head import Head, TaskSums, to_numpy, without_padding
from litebert.tasks.predictions import Prediction, Span, SpanPrediction

_NULL_WEIGHT = 0.5
"""Weight of the answerability loss beside start and end."""


class PlainSpan(Head):
    """Start and end, independent of each other. Targets are columns (start, end), 0 for no
    answer."""

    kind, dtype = "span", torch.int64

    def logits(
        self, model: Model, batch: DeviceBatch, states: States
    ) -> Float[Tensor, "2 rows seq"]:
        """Start's and end's, the lowest number where an answer cannot stand."""
        logits = model.logits(self.kind, states).float().permute(2, 0, 1)
        return logits.masked_fill(~batch.head_inputs["allowed"], torch.finfo(logits.dtype).min)

    def sums(
        self, batch: DeviceBatch, logits: Tensor, targets: Tensor, weights: Tensor | None
    ) -> TaskSums:
        losses = [
            F.cross_entropy(each, columns, reduction="sum")
            for each, columns in zip(logits.unbind(), targets.unbind(1), strict=True)
        ]
        correct = (logits.argmax(-1) == targets.T).all(0)
        return TaskSums(loss=torch.stack(losses).sum() / 2, correct=correct.sum().float())

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


class JointSpan(PlainSpan):
    """Start, end given start, and answerability."""

    def loss(
        self,
        model: Model,
        batch: DeviceBatch,
        states: States,
        targets: Tensor,
        weights: Tensor | None,
    ) -> TaskSums:
        head = _joint_head(model)
        # padding has no start: any will do
        logits = head(states, batch.head_inputs["allowed"], targets[:, 0].clamp(min=0))
        sums = self.sums(batch, torch.stack([logits.start, logits.end]).float(), targets, weights)
        is_null = (targets[:, 0] == 0).float()
        null = F.binary_cross_entropy_with_logits(
            logits.unanswerable.float(), is_null, reduction="none"
        )
        return TaskSums(
            loss=sums.loss + _NULL_WEIGHT * without_padding(batch, null).sum(), correct=sums.correct
        )

    def outputs(self, model: Model, batch: DeviceBatch, states: States) -> Outputs:
        head, allowed = _joint_head(model), batch.head_inputs["allowed"]
        start = head.start_logits(states, allowed)

        def ends(starts: Int[np.ndarray, "rows beam"]) -> Float[np.ndarray, "rows beam seq"]:
            chosen = torch.from_numpy(starts).to(states.device)
            return to_numpy(head.end_logits(states, allowed, chosen))

        return Outputs(
            logits=to_numpy(start),
            unanswerable=to_numpy(head.unanswerable(states, start)),
            ends=ends,
        )


def _joint_head(model: Model) -> JointSpanHead:
    head = model.head("joint_span")
    assert isinstance(head, JointSpanHead)
    return head
