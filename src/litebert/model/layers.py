"""One layer of the encoder in plain PyTorch: self-attention and feed-forward, each with its
residual and layer norm (ALBERT §3.1).

States in, states out. This file defines what a layer computes; faster layers compute the same
function over the same modules and are compared with it.
"""

from collections.abc import Callable

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from litebert.config import EncoderConfig
from litebert.model.positions import KeyMask, Needed, Packing, Rotation

States = Float[Tensor, "batch seq hidden"]
Chosen = Float[Tensor, "batch chosen hidden"]
"""States of all tokens, or of the needed ones alone."""
Heads = Float[Tensor, "batch _ heads size"]
Layer = Callable[..., Tensor]
"""What `apply_layer` is: (attention, feed_forward, states, mask, needed, rotate, adapters) →
states."""

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
    "gelu_erf": nn.GELU,
    "relu": nn.ReLU,
}


def apply_layer(
    attention: "Attention",
    feed_forward: "FeedForward",
    states: States,
    mask: KeyMask | Packing | None,
    needed: Needed | None = None,
    rotate: Rotation | None = None,
    adapters: "Adapters | None" = None,
) -> Chosen:
    """One layer; with `needed`, only the states at those positions. `rotate` is there with rotary
    positions."""
    after: Tensor = feed_forward(attention(states, mask, needed, rotate, adapters), adapters)
    return after


class LowRank(nn.Module):
    """B·A x of a low rank: the update of a matrix without the matrix (Hu et al. 2022). B starts at
    zero."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.down, self.up = (
            nn.Linear(inputs, rank, bias=False),
            nn.Linear(rank, outputs, bias=False),
        )

    def forward(self, x: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        updated: Tensor = self.up(self.down(x))
        return updated


class Adapters(nn.Module):
    """The updates that one application of a layer adds to its matrices."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size, ffn_size, rank = config.hidden_size, config.ffn_size, config.adapter_rank
        self.query, self.key, self.value, self.output = (LowRank(size, size, rank) for _ in "qkvo")
        self.inner, self.outer = LowRank(size, ffn_size, rank), LowRank(ffn_size, size, rank)


def linear(
    module: nn.Module, adapters: Adapters | None, name: str, x: Float[Tensor, "*batch inputs"]
) -> Float[Tensor, "*batch outputs"]:
    """The linear layer `name` of a module, with its update where there is one."""
    mapped: Tensor = getattr(module, name)(x)
    return mapped if adapters is None else mapped + getattr(adapters, name)(x)


class Attention(nn.Module):
    """Multi-head self-attention over the real tokens of each row, with residual and norm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.num_heads = config.num_attention_heads
        self.weight_dropout = config.attention_dropout
        self.query, self.key, self.value, self.output = (nn.Linear(size, size) for _ in range(4))
        self.norm = layer_norm(size, config)
        self.dropout = dropout(config.attention_output_dropout)
        self.is_pre_norm = config.norm == "pre"

    def forward(
        self,
        states: States,
        mask: KeyMask | Packing | None,
        needed: Needed | None = None,
        rotate: Rotation | None = None,
        adapters: Adapters | None = None,
    ) -> Chosen:
        return residual(
            self, states, needed, lambda x: self.compute(x, mask, needed, rotate, adapters)
        )

    def compute(
        self,
        x: States,
        mask: KeyMask | Packing | None,
        needed: Needed | None = None,
        rotate: Rotation | None = None,
        adapters: Adapters | None = None,
    ) -> Chosen:
        """What is added to the residual, before dropout."""
        chosen = x if needed is None else needed.of(x)
        query = self.heads(linear(self, adapters, "query", chosen))
        key, value = (self.heads(linear(self, adapters, name, x)) for name in ("key", "value"))
        if rotate is not None:
            query, key = rotate.apply(query, needed), rotate.apply(key)
        dropout = self.weight_dropout if self.training else 0.0
        attended = scaled_dot_product(query, key, value, mask, needed, dropout=dropout)
        return linear(self, adapters, "output", attended.flatten(2))

    def weights(
        self,
        states: States,
        mask: KeyMask | None,
        rotate: Rotation | None = None,
        adapters: Adapters | None = None,
    ) -> Float[Tensor, "batch heads seq seq"]:
        """The softmax that `compute` weighs values with: a row per query, summing to 1."""
        x = self.norm(states) if self.is_pre_norm else states
        query, key = (self.heads(linear(self, adapters, name, x)) for name in ("query", "key"))
        if rotate is not None:
            query, key = rotate.apply(query), rotate.apply(key)
        query, key = query.transpose(1, 2), key.transpose(1, 2)
        scores = query @ key.mT * query.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        weights: Tensor = scores.softmax(-1)
        return weights

    def heads(self, x: Chosen) -> Heads:
        return x.view(*x.shape[:2], self.num_heads, -1)


class FeedForward(nn.Module):
    """H → ffn_size → H with an activation between, with residual and norm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.hidden_size, config.ffn_size)
        self.activation = ACTIVATIONS[config.activation]()
        self.outer = nn.Linear(config.ffn_size, config.hidden_size)
        self.norm = layer_norm(config.hidden_size, config)
        # Hugging Face's AlbertLayer builds this dropout and never calls it.
        self.dropout = dropout(0.0 if config.hf_compat else config.ffn_dropout)
        self.is_pre_norm = config.norm == "pre"

    def forward(self, states: Chosen, adapters: Adapters | None = None) -> Chosen:
        return residual(self, states, None, lambda x: self.compute(x, adapters))

    def compute(self, x: Chosen, adapters: Adapters | None = None) -> Chosen:
        """What is added to the residual, before dropout."""
        inner = self.activation(linear(self, adapters, "inner", x))
        return linear(self, adapters, "outer", inner)


Modules = tuple[Attention, FeedForward, Adapters | None]
"""What one application of a layer runs."""


def residual(
    module: Attention | FeedForward,
    states: States,
    needed: Needed | None,
    function: Callable[[Tensor], Tensor],
) -> Chosen:
    """x + f(LN(x)) for pre-norm, LN(x + f(x)) for post-norm, the paper's; f returns the needed
    positions alone."""
    chosen = states if needed is None else needed.of(states)
    if module.is_pre_norm:
        summed: Tensor = chosen + module.dropout(function(module.norm(states)))
        return summed
    normed: Tensor = module.norm(chosen + module.dropout(function(states)))
    return normed


def scaled_dot_product(
    query: Heads,
    key: Heads,
    value: Heads,
    mask: KeyMask | Packing | None,
    needed: Needed | None,
    *,
    dropout: float,
) -> Heads:
    """Softmax attention of each query over the real tokens of its row."""
    if isinstance(mask, Packing):
        mask = mask.mask(needed, query.shape[1], key.shape[1])
    query, key, value = (projected.transpose(1, 2) for projected in (query, key, value))
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout
    ).transpose(1, 2)


def dropout(probability: float) -> nn.Module:
    """Dropout, or no operation at all where the probability is 0."""
    return nn.Dropout(probability) if probability else nn.Identity()


def layer_norm(size: int, config: EncoderConfig) -> nn.LayerNorm:
    return nn.LayerNorm(size, eps=config.norm_epsilon)
