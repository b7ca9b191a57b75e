"""Heads: from states to logits (ALBERT §3.1 for the masked token and order, Appendix A.3 for the
tasks).
 Masked token: at the masked positions only, tied to the token embedding. Order, classify, regress,
choose: on the pooled state. Span and tag: on every state. The joint head of SQuAD 2 stands in
joint_span.py.
"""

from jaxtyping import Float
from torch import Tensor, nn, zeros

from litebert.config import EncoderConfig, HeadConfig
from litebert.model.joint_span import JointSpanHead
from litebert.model.layers import ACTIVATIONS, dropout, layer_norm


class MaskedHead(nn.Module):
    """H → E, activation, norm, then the product with the token embedding and a bias for each
    piece."""

    def __init__(self, config: EncoderConfig, head: HeadConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.embedding_size)
        self.activation = ACTIVATIONS[config.activation]()
        self.norm = layer_norm(config.embedding_size, config)
        self.bias = nn.Parameter(zeros(config.vocab_size))

    def forward(
        self,
        states: Float[Tensor, "masked hidden"],
        token_embedding: Float[Tensor, "vocab embedding"],
    ) -> Float[Tensor, "masked vocab"]:
        return nn.functional.linear(
            self.norm(self.activation(self.dense(states))), token_embedding, self.bias
        )


class OutputHead(nn.Module):
    """Dropout and one product, on the last axis of whatever it is given."""

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


HEADS: dict[str, type[nn.Module]] = {
    "masked": MaskedHead,
    "order": OrderHead,
    "classify": ClassifyHead,
    "regress": RegressHead,
    "choose": ChooseHead,
    "tag": TagHead,
    "span": SpanHead,
    "joint_span": JointSpanHead,
}
