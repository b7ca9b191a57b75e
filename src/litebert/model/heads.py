"""Heads: states in, logits out (ALBERT §3.1 for the masked token and order, Appendix A.3 for the
tasks).

Masked token: at the masked positions only, tied to the token embedding. Order, classify, regress,
choose: on the pooled state. Span and tag: on every state. The joint span head of SQuAD 2 is
XLNet's: where the answer starts, where it ends given that start, and whether there is one.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from litebert.config import EncoderConfig, HeadConfig
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


class OutputHead(nn.Module):
    """Dropout and one linear layer, on the last axis."""

    width: int

    def __init__(self, config: EncoderConfig, head: HeadConfig) -> None:
        super().__init__()
        self.dropout = dropout(head.dropout)
        self.output = nn.Linear(config.hidden_size, len(head.labels) or self.width)

    def forward(self, states: Float[Tensor, "*rows hidden"]) -> Float[Tensor, "*rows outputs"]:
        logits: Tensor = self.output(self.dropout(states))
        return logits


class OrderHead(OutputHead):
    """Two logits: the segments stand in order (0), or swapped (1)."""

    width = 2


class ClassifyHead(OutputHead):
    """One logit for each label."""


class MultiLabelHead(OutputHead):
    """One logit for each label; several labels may hold."""


class RegressHead(OutputHead):
    """One number."""

    width = 1


class ChooseHead(OutputHead):
    """One logit for each option; the options of a question are rows of the batch."""

    width = 1


class TagHead(OutputHead):
    """One logit for each label at each token."""


class SpanHead(OutputHead):
    """Two logits at each token: the answer starts here, the answer ends here."""

    width = 2


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
    "order": OrderHead,
    "classify": ClassifyHead,
    "multilabel": MultiLabelHead,
    "regress": RegressHead,
    "choose": ChooseHead,
    "tag": TagHead,
    "span": SpanHead,
    "joint_span": JointSpanHead,
}
