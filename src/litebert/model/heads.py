"""Heads: states in, logits out (ALBERT §3.1 for the masked token and order, Appendix A.3 for the
tasks).

Masked token: at the masked positions only, tied to the token embedding. Detect: on every state,
whether the token was replaced (ELECTRA §2). Order, classify, regress, choose: on the pooled state.
Span and tag: on every state. The joint span head of SQuAD 2 is XLNet's: where the answer starts,
where it ends given that start, and whether there is one. Text vectors have no parameters: POOLINGS.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from litebert.config import EncoderConfig, HeadConfig, Pooling
from litebert.model.layers import ACTIVATIONS, States, dropout, layer_norm

Allowed = Bool[Tensor, "batch seq"]


class MaskedHead(nn.Module):
    """H → E, activation, norm, then a matmul with the token embedding, and a bias per token."""

    def __init__(self, config: EncoderConfig, head: HeadConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.embedding_size)
        self.activation = ACTIVATIONS[config.activation]()
        self.norm = layer_norm(config.embedding_size, config)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(
        self,
        states: Float[Tensor, "masked hidden"],
        token_embedding: Float[Tensor, "vocab embedding"],
    ) -> Float[Tensor, "masked vocab"]:
        return F.linear(self.norm(self.activation(self.dense(states))), token_embedding, self.bias)


class DetectHead(nn.Module):
    """H → H, activation, then one logit at each token: positive where it was replaced."""

    def __init__(self, config: EncoderConfig, head: HeadConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACTIVATIONS[config.activation]()
        self.output = nn.Linear(config.hidden_size, 1)

    def forward(self, states: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows"]:
        logits: Tensor = self.output(self.activation(self.dense(states)))
        return logits[..., 0]


class OutputHead(nn.Module):
    """Dropout and one linear layer, on the last axis: a logit for each label, or as many as
    OUTPUTS says."""

    def __init__(self, config: EncoderConfig, head: HeadConfig) -> None:
        super().__init__()
        self.dropout = dropout(head.dropout)
        self.output = nn.Linear(config.hidden_size, len(head.labels) or OUTPUTS[head.kind])

    def forward(self, states: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows outputs"]:
        logits: Tensor = self.output(self.dropout(states))
        return logits


class ExitHead(nn.Module):
    """Pooler and output of one depth before the last: the state of [CLS] in, logits out."""

    def __init__(self, config: EncoderConfig, head: HeadConfig) -> None:
        super().__init__()
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        self.output = OutputHead(config, head)

    def forward(self, states: Float[Tensor, "rows hidden"]) -> Float[Tensor, "rows outputs"]:
        logits: Tensor = self.output(torch.tanh(self.pooler(states)))
        return logits


OUTPUTS = {"order": 2, "regress": 1, "choose": 1, "span": 2}
"""Logits of the heads without labels. order: the segments stand in order (0), or swapped (1).
choose: the options of a question are rows of the batch. span: the answer starts here, ends here."""


class SpanLogits(NamedTuple):
    """Logits of the joint span head; the end's depend on the start."""

    start: Float[Tensor, "batch seq"]
    end: Float[Tensor, "batch seq"]
    unanswerable: Float[Tensor, " batch"]


class JointSpanHead(nn.Module):
    """Start, end given start, answerability; positions that are not `allowed` get the lowest finite
    logit."""

    def __init__(self, config: EncoderConfig, head: HeadConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.start = nn.Linear(size, 1)
        self.end_dense = nn.Linear(2 * size, size)
        self.end_norm = layer_norm(size, config)
        self.end = nn.Linear(size, 1)
        self.answer_dense = nn.Linear(2 * size, size)
        self.dropout = dropout(head.dropout)
        self.answer = nn.Linear(size, 1, bias=False)

    def forward(
        self, states: States, allowed: Allowed, start_positions: Int[Tensor, " batch"] | None = None
    ) -> SpanLogits:
        """`start_positions`: the true starts in training; None for the likeliest."""
        start = self.start_logits(states, allowed)
        starts = start.argmax(-1) if start_positions is None else start_positions
        end = self.end_logits(states, allowed, starts[:, None])[:, 0]
        return SpanLogits(start, end, self.unanswerable(states, start))

    def start_logits(self, states: States, allowed: Allowed) -> Float[Tensor, "batch seq"]:
        return _hide(self.start(states)[..., 0], allowed)

    def end_logits(
        self, states: States, allowed: Allowed, starts: Int[Tensor, "batch beam"]
    ) -> Float[Tensor, "batch beam seq"]:
        """For each of several starts."""
        at_start = states.gather(1, starts[..., None].expand(-1, -1, states.shape[2]))
        # The matmul of [state; state at the start] in two halves: a beam shares the larger one.
        of_state, of_start = self.end_dense.weight.chunk(2, 1)
        inner = (
            F.linear(states, of_state)[:, None]
            + F.linear(at_start, of_start, self.end_dense.bias)[:, :, None]
        )
        logits = self.end(self.end_norm(torch.tanh(inner)))[..., 0]
        return _hide(logits, allowed[:, None])

    def unanswerable(
        self, states: States, start_logits: Float[Tensor, "batch seq"]
    ) -> Float[Tensor, " batch"]:
        """A logit, high where the passage holds no answer; it reads the expected start state and
        the first token's."""
        expected = (start_logits.softmax(-1)[..., None] * states).sum(1)
        inner = torch.tanh(self.answer_dense(torch.cat([expected, states[:, 0]], -1)))
        logits: Tensor = self.answer(self.dropout(inner))[:, 0]
        return logits


def _hide(logits: Tensor, allowed: Tensor) -> Tensor:
    """A finite lowest value, so that half precision has no infinity to subtract."""
    return logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)


HEADS: dict[str, type[nn.Module]] = {
    "masked": MaskedHead,
    "order": OutputHead,
    "detect": DetectHead,
    "classify": OutputHead,
    "multilabel": OutputHead,
    "regress": OutputHead,
    "choose": OutputHead,
    "tag": OutputHead,
    "span": OutputHead,
    "joint_span": JointSpanHead,
}


def mean_pooled(
    states: Float[Tensor, "batch seq hidden"], mask: Bool[Tensor, "batch seq"] | None
) -> Float[Tensor, "batch hidden"]:
    """The mean over every real token, [CLS] and [SEP] included, as sentence-transformers does."""
    if mask is None:
        return states.mean(1)
    weights = mask.to(states.dtype)[..., None]
    return (states * weights).sum(1) / weights.sum(1)


POOLINGS: dict[Pooling, Callable[[Tensor, Tensor | None], Tensor]] = {
    "mean": mean_pooled,
    "cls": lambda states, mask: states[:, 0],
}
"""From states and the mask of real tokens to a text's vector."""
