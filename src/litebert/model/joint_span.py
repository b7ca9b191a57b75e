"""The joint head of SQuAD 2: where the answer starts, where it ends given that start, and whether
there is one.
 States in; logits out, those of the end for a given start: the true one in training, those of a
beam in prediction (tasks/heads/spans.py). ALBERT Appendix A.3 takes it from XLNet.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from litebert.config import EncoderConfig, HeadConfig
from litebert.model.layers import dropout, layer_norm

States = Float[Tensor, "batch seq hidden"]
Allowed = Bool[Tensor, "batch seq"]


class SpanLogits(NamedTuple):
    """Logits with the true start given."""

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
        self, states: States, allowed: Allowed, start_positions: Int[Tensor, " batch"]
    ) -> SpanLogits:
        start = self.start_logits(states, allowed)
        end = self.end_logits(states, allowed, start_positions[:, None])[:, 0]
        return SpanLogits(start, end, self.unanswerable(states, start))

    def start_logits(self, states: States, allowed: Allowed) -> Float[Tensor, "batch seq"]:
        return _hide(self.start(states)[..., 0], allowed)

    def end_logits(
        self, states: States, allowed: Allowed, starts: Int[Tensor, "batch beam"]
    ) -> Float[Tensor, "batch beam seq"]:
        """For each of several starts."""
        at_start = states.gather(1, starts[..., None].expand(-1, -1, states.shape[2]))
        # The product of [state; state at the start] in two parts, so that a beam shares the larger
        # one.
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
