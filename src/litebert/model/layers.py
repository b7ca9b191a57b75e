"""The two parts of a layer, each with its residual sum and layer norm: attention, and feed-forward
(ALBERT §3.1).
 States in, states out, of the same shape. Attention goes through SDPA; a dropout of probability 0
is no operation at all. Products are in the states' own arithmetic, or in 8 bits after `quantize`.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from litebert.config import EncoderConfig
from litebert.kernels.fp8.linear import Quantized
from litebert.kernels.projection import (
    FusedProjection,
    fused_linear,
    takes_fused,
    wide_projection,
    with_biases,
)
from litebert.model.layout import KeyMask, Needed, Packing, attention, takes_wide, wide_attention

States = Float[Tensor, "batch seq hidden"]
Chosen = Float[Tensor, "batch chosen hidden"]
"""States of all tokens, or of the needed ones alone."""

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
    "gelu_erf": nn.GELU,
    "relu": nn.ReLU,
}


def dropout(probability: float) -> nn.Module:
    """Dropout, or nothing where the probability is 0."""
    return nn.Dropout(probability) if probability else nn.Identity()


def layer_norm(size: int, config: EncoderConfig) -> nn.LayerNorm:
    return nn.LayerNorm(size, eps=config.norm_epsilon)


def post_norm(
    norm: nn.Module, part: Callable[[Tensor], Tensor], states: Tensor, needed: Needed | None = None
) -> Tensor:
    """The paper's placement: LN(x + part(x)). Where only some tokens are needed, `part` gives
    those."""
    normed: Tensor = norm((states if needed is None else needed.of(states)) + part(states))
    return normed


def pre_norm(
    norm: nn.Module, part: Callable[[Tensor], Tensor], states: Tensor, needed: Needed | None = None
) -> Tensor:
    """The placement that trains more readily: x + part(LN(x))."""
    return (states if needed is None else needed.of(states)) + part(norm(states))


def forked_pre_norm(
    norm: nn.LayerNorm,
    part: Callable[[Tensor, Tensor], Tensor],
    states: Tensor,
    needed: Needed | None,
    last: nn.Linear,
    before: Tensor | None = None,
) -> Tensor:
    """The same, where `part` adds x itself, in the product of its last map, whose bias is a
    constant there: the norm's way back has its gradient; and that of `before`, a bias that the last
    map's inputs have in them."""
    from litebert.kernels.norm import forked_norm

    around, normed = forked_norm(states, norm, last, before)
    return part(normed, around if needed is None else needed.of(around))


RESIDUALS = {"post": post_norm, "pre": pre_norm}


class Part(nn.Module):
    """What both parts have in common: linear maps, called by name."""

    together: tuple[tuple[str, ...], ...]
    """Names of maps that are applied to the same states."""
    norm: nn.LayerNorm
    dropout: nn.Module
    residual: Callable[..., Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.quantized = nn.ModuleDict()

    def quantize(self) -> list[Quantized]:
        """From now on multiply in 8 bits; what comes back is to be told when the weights have
        changed."""
        made = {
            " ".join(names): Quantized(*(getattr(self, name) for name in names))
            for names in self.together
        }
        self.quantized = nn.ModuleDict(made)
        return list(made.values())

    def forks(self, states: States) -> bool:
        """Whether `forked_pre_norm` is for this part: its norm comes first, and nothing is between
        its last map and the sum."""
        return (
            self.residual is pre_norm
            and isinstance(self.dropout, nn.Identity)
            and takes_fused(states)
        )

    def onto(
        self, around: Chosen, states: Float[Tensor, "batch chosen width"], name: str
    ) -> Chosen:
        """`around` plus the named map of the states, whose bias is a constant."""
        last: nn.Linear = getattr(self, name)
        if name in self.quantized:
            mapped: Tensor = self.quantized[name](states, is_constant=True)
            return around + mapped
        return fused_linear(states, last.weight, last.bias.detach(), around)

    def linear(
        self, states: Chosen, *names: str
    ) -> tuple[Float[Tensor, "batch chosen width"], ...]:
        """The named maps of the states; of several, one product on a GPU: a CPU gains nothing by
        it."""
        key = " ".join(names)
        if key in self.quantized:
            return torch.split(
                self.quantized[key](states),
                [getattr(self, name).out_features for name in names],
                -1,
            )
        parts = [getattr(self, name) for name in names]
        if states.is_cuda and len(parts) > 1:
            fused: tuple[Tensor, ...] = FusedProjection.apply(  # type: ignore[no-untyped-call]
                states, *(parameter for part in parts for parameter in (part.weight, part.bias))
            )
            return fused
        return tuple(part(states) for part in parts)


class Attention(Part):
    """Self-attention over all real tokens, with its residual sum and norm."""

    together = (("query", "key", "value"), ("query",), ("key", "value"), ("output",))

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.num_heads = config.num_attention_heads
        self.probability = config.attention_dropout
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(size, size)
        self.value = nn.Linear(size, size)
        self.output = nn.Linear(size, size)
        self.norm = layer_norm(size, config)
        self.dropout = dropout(config.attention_output_dropout)
        self.residual = RESIDUALS[config.norm]

    def forward(
        self, states: States, among: KeyMask | Packing | None, needed: Needed | None = None
    ) -> Chosen:
        """States after the attention part, of all tokens or of the needed ones alone."""
        is_forked = self.forks(states)
        # Weights add up to 1, unless some are dropped, and hand a value's bias on as it is: the
        # norm's way back can tell it.
        is_known = is_forked and not self.drops and self.is_wide(states, among)

        def part(x: Tensor) -> Tensor:
            (output,) = self.linear(self.attend(x, among, needed), "output")
            dropped: Tensor = self.dropout(output)
            return dropped

        def summed(x: Tensor, around: Tensor) -> Tensor:
            return self.onto(
                around, self.attend(x, among, needed, value_bias=not is_known), "output"
            )

        if is_forked:
            return forked_pre_norm(
                self.norm,
                summed,
                states,
                needed,
                self.output,
                self.value.bias if is_known else None,
            )
        return self.residual(self.norm, part, states, needed)

    @property
    def drops(self) -> float:
        """The part of the weights that is dropped now."""
        return self.probability if self.training else 0.0

    def is_wide(self, states: States, among: KeyMask | Packing | None) -> bool:
        return isinstance(among, Packing) and takes_wide(
            self.in_heads(states), among, drops=self.drops > 0
        )

    def attend(
        self,
        states: States,
        among: KeyMask | Packing | None,
        needed: Needed | None,
        *,
        value_bias: bool = True,
    ) -> Chosen:
        """Attended values, before the output map; `value_bias` says whether that bias gets its
        gradient here."""
        maps: list[tuple[Tensor, tuple[str, ...]]] = [(states, ("query", "key", "value"))]
        if needed is not None:
            maps = [(needed.of(states), ("query",)), (states, ("key", "value"))]
        if isinstance(among, Packing) and self.is_wide(states, among):
            parts = [self.wide(x, *names, value_bias=value_bias) for x, names in maps]
            return wide_attention(parts, among, needed, dropout=self.drops).flatten(2)
        query, key, value = [part for x, names in maps for part in self.project(x, *names)]
        return attention(query, key, value, among, needed, dropout=self.drops).flatten(2)

    def project(self, states: States, *names: str) -> list[Float[Tensor, "batch seq heads size"]]:
        return [self.in_heads(part) for part in self.linear(states, *names)]

    def wide(
        self, states: States, *names: str, value_bias: bool
    ) -> Float[Tensor, "batch seq maps heads size"]:
        """The same, side by side in one tensor. A key's bias has no gradient: softmax does not see
        what all keys share."""
        key, parts = " ".join(names), {name: getattr(self, name) for name in names}
        is_quantized = key in self.quantized
        mapped: Tensor = (
            self.quantized[key](states, is_constant=True)
            if is_quantized
            else wide_projection(states, list(parts.values()))
        )
        places = {
            name: None if name == "key" else place * self.value.out_features
            for place, name in enumerate(names)
        }
        if not value_bias:
            places.pop("value", None)
        mapped = with_biases(mapped, [parts[name].bias for name in places], list(places.values()))
        return mapped.view(*states.shape[:2], len(names), self.num_heads, -1)

    def in_heads(self, states: States) -> Float[Tensor, "batch seq heads size"]:
        return states.view(*states.shape[:2], self.num_heads, -1)


class FeedForward(Part):
    """H → ffn_size → H with an activation between, with its residual sum and norm."""

    together = (("inner",), ("outer",))

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.hidden_size, config.ffn_size)
        self.activation = ACTIVATIONS[config.activation]()
        self.outer = nn.Linear(config.ffn_size, config.hidden_size)
        self.norm = layer_norm(config.hidden_size, config)
        # Hugging Face's AlbertLayer builds this dropout and never calls it.
        self.dropout = dropout(0.0 if config.hf_compat else config.ffn_dropout)
        self.residual = RESIDUALS[config.norm]

    def forward(self, states: States) -> States:
        is_fused = (
            isinstance(self.activation, nn.GELU) and not len(self.quantized) and takes_fused(states)
        )

        def part(x: Tensor) -> Tensor:
            outer = (
                self.fused(x, self.outer.bias)
                if is_fused
                else self.linear(self.activated(x), "outer")[0]
            )
            dropped: Tensor = self.dropout(outer)
            return dropped

        def summed(x: Tensor, around: Tensor) -> Tensor:
            if is_fused:
                return self.fused(x, self.outer.bias.detach(), around)
            return self.onto(around, self.activated(x), "outer")

        if self.forks(states):
            return forked_pre_norm(self.norm, summed, states, None, self.outer)
        return self.residual(self.norm, part, states)

    def activated(self, states: States) -> Float[Tensor, "batch seq inner"]:
        (inner,) = self.linear(states, "inner")
        activated: Tensor = self.activation(inner)
        return activated

    def fused(self, states: States, outer_bias: Tensor, around: States | None = None) -> States:
        """Both maps, plus `around`, with the sum for the inner bias on GELU's way back."""
        from litebert.kernels.feed_forward import feed_forward

        is_tanh = isinstance(self.activation, nn.GELU) and self.activation.approximate == "tanh"
        maps = self.inner.weight, self.inner.bias, self.outer.weight, outer_bias
        return feed_forward(states, *maps, around, is_tanh=is_tanh)
