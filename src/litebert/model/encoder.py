"""The encoder: who owns which parameters, and the states' path through the layers (ALBERT §3.1,
parameter sharing).

Ids in, states out. Sharing is a plan, not a branch: a list of (attention owner, feed-forward
owner), one pair for each application. none / attention / ffn / all, groups, several layers per
group in either order, unshared ends and BERT itself are one class with another plan.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from litebert.config import EncoderConfig, Tie
from litebert.errors import ConfigError
from litebert.model.embedding import BandedEmbedding, Embedding
from litebert.model.layers import (
    Adapters,
    Attention,
    Chosen,
    FeedForward,
    Layer,
    LowRank,
    Modules,
    States,
    apply_layer,
    layer_norm,
)
from litebert.model.positions import KeyMask, Needed, Packing, Rotation, sinusoids
from litebert.model.reversible import Reversible

Ids = Int[Tensor, "batch seq"]
Mask = Bool[Tensor, "batch seq"]


class Application(NamedTuple):
    """One application of a layer: the owners of its parameters, and its number from 0."""

    attention: int
    feed_forward: int
    number: int


class Plain:
    """A stack in which each layer reads the states that the one before it left."""

    def run(
        self,
        layer: Layer,
        modules: Sequence[Modules],
        states: States,
        mask: KeyMask | Packing | None,
        needed: Needed | None = None,
        rotate: Rotation | None = None,
    ) -> Chosen:
        """The states after the last layer, at the needed positions alone."""
        for number, (attention, feed_forward, adapters) in enumerate(modules, start=1):
            chosen = needed if number == len(modules) else None
            states = layer(attention, feed_forward, states, mask, chosen, rotate, adapters)
        return states

    def walk(
        self,
        layer: Layer,
        modules: Sequence[Modules],
        states: States,
        mask: KeyMask | Packing | None,
        rotate: Rotation | None = None,
    ) -> Iterator[tuple[States, States]]:
        """Of each layer: the states that its attention reads, and the states after it."""
        for each in modules:
            after = self.run(layer, [each], states, mask, rotate=rotate)
            yield states, after
            states = after


class Encoder(nn.Module):
    """ALBERT or BERT, by its config; `checkpoint_every=k` recomputes activations in stretches of k
    layers."""

    def __init__(self, config: EncoderConfig, *, checkpoint_every: int = 0) -> None:
        super().__init__()
        self.config = config
        self.checkpoint_every = checkpoint_every
        self.plan = [Application(*owners, number) for number, owners in enumerate(config.plan())]
        # whether layers draw random numbers: recomputing must then draw the same ones again
        self.draws = any(
            (config.attention_dropout, config.attention_output_dropout, config.ffn_dropout)
        )
        # one function for all layers; a faster or compiled one may take its place
        self.layer: Layer = apply_layer
        self.stack = Reversible(self.draws) if config.reversible else Plain()
        if config.reversible and checkpoint_every:
            raise ConfigError(
                "reversible layers save no activations that checkpointing could recompute; "
                f"checkpoint_every is then 0, got {checkpoint_every}"
            )
        size = config.hidden_size
        self.embedding = Embedding(config)
        self.attentions = nn.ModuleList(
            Attention(config) for _ in range(1 + max(each.attention for each in self.plan))
        )
        self.feed_forwards = nn.ModuleList(
            FeedForward(config) for _ in range(1 + max(each.feed_forward for each in self.plan))
        )
        self.adapters = nn.ModuleList(Adapters(config) for _ in self.plan if config.adapter_rank)
        # Without a final norm a pre-norm stack would return an unnormed sum.
        self.norm = layer_norm(size, config) if config.norm == "pre" else nn.Identity()
        self.pooler = nn.Linear(size, size) if config.pooler else None
        initialize(self, config)

    def forward(
        self,
        *,
        token_ids: Ids,
        segment_ids: Ids | None = None,
        mask: Mask | Packing | None = None,
        positions: Ids | None = None,
        depth: int | None = None,
        needed: Needed | None = None,
    ) -> Chosen:
        """The last states, of all tokens or of the `needed` ones alone; `depth` stops after that
        many layers.

        `mask` is True at real tokens, None where all are. For packed rows it is a Packing, and
        `positions` are the position ids within each row.
        """
        states, key_mask = self.embedding(token_ids, segment_ids, positions), broadcast(mask)
        rotate = self.rotation(states, mask, positions)
        *stretches, last = self._stretches(self._plan_to(depth))
        for stretch in stretches:
            states = self._sparing(self.run, stretch, states, key_mask, None, rotate)
        states = self._sparing(self.run, last, states, key_mask, needed, rotate)
        final: Tensor = self.norm(states)
        return final

    def exit_states(
        self,
        *,
        token_ids: Ids,
        segment_ids: Ids | None = None,
        mask: Mask | Packing | None = None,
        positions: Ids | None = None,
        needed: Needed,
    ) -> list[Chosen]:
        """The states of the needed tokens after every layer, as heads read them; the last item is
        what `forward` returns."""
        states, key_mask = self.embedding(token_ids, segment_ids, positions), broadcast(mask)
        rotate = self.rotation(states, mask, positions)
        chosen: list[Chosen] = []
        for stretch in self._stretches(self.plan):
            states, *some = self._sparing(
                self._exit_stretch, stretch, states, key_mask, needed, rotate
            )
            chosen.extend(some)
        return [self.norm(each) for each in chosen]

    @property
    def _saves(self) -> bool:
        """Whether activations are recomputed in the backward pass."""
        return bool(self.checkpoint_every) and torch.is_grad_enabled()

    def _stretches(self, plan: list[Application]) -> list[list[Application]]:
        """The plan, cut where states are saved."""
        stride = len(plan)
        if self._saves:
            stride = self.checkpoint_every * self.config.layers_per_group
        return [plan[start : start + stride] for start in range(0, len(plan), stride)]

    def _sparing(self, function: Callable[..., Any], *inputs: Any) -> Any:
        """`function`, of whose activations those within a stretch are not saved."""
        if not self._saves:
            return function(*inputs)
        return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=self.draws)

    def _exit_stretch(
        self,
        stretch: Sequence[Application],
        states: States,
        mask: KeyMask | Packing | None,
        needed: Needed,
        rotate: Rotation | None,
    ) -> tuple[Tensor, ...]:
        """The states after these layers, then those of the needed tokens after each of them."""
        chosen = []
        for application in stretch:
            is_last = application.number == len(self.plan) - 1
            states = self.run([application], states, mask, needed if is_last else None, rotate)
            chosen.append(states if is_last else needed.of(states))
        return states, *chosen

    def all_states(
        self, *, token_ids: Ids, segment_ids: Ids | None = None, mask: Mask | None = None
    ) -> list[Float[Tensor, "batch seq hidden"]]:
        """The states after the embedding and after every application; the last item is what
        `forward` returns."""
        first = self.embedding(token_ids, segment_ids)
        states = [first, *(after for _, after in self.walk(first, mask))]
        states[-1] = self.norm(states[-1])
        return states

    def walk(self, states: States, mask: Mask | None = None) -> Iterator[tuple[States, States]]:
        """From the embedding's states on, of every application: the states that its attention
        reads, and the states after it."""
        modules = [self.modules_of(application) for application in self.plan]
        return self.stack.walk(self.layer, modules, states, broadcast(mask), self.rotation(states))

    def attention_weights(
        self, *, token_ids: Ids, segment_ids: Ids | None = None, mask: Mask | None = None
    ) -> list[Float[Tensor, "batch heads seq seq"]]:
        """The softmax of every application, by the plain layer and without dropout."""
        states, key_mask = self.embedding(token_ids, segment_ids), broadcast(mask)
        assert not isinstance(key_mask, Packing)
        modules = [self.modules_of(application) for application in self.plan]
        rotate = self.rotation(states)
        walk = self.stack.walk(apply_layer, modules, states, key_mask, rotate)
        return [
            attention.weights(read, key_mask, rotate, adapters)
            for (attention, _, adapters), (read, _) in zip(modules, walk, strict=True)
        ]

    def rotation(
        self, states: States, mask: Mask | Packing | None = None, positions: Ids | None = None
    ) -> Rotation | None:
        """What all layers rotate queries and keys by; None without rotary positions."""
        if self.config.positions != "rotary":
            return None
        packing = mask if isinstance(mask, Packing) else None
        return Rotation.of(self.config, states, positions, packing)

    def run(
        self,
        plan: Sequence[Application],
        states: States,
        mask: KeyMask | Packing | None,
        needed: Needed | None = None,
        rotate: Rotation | None = None,
    ) -> Chosen:
        """Apply the layers that `plan` names, the last of them at the needed positions alone."""
        modules = [self.modules_of(application) for application in plan]
        return self.stack.run(self.layer, modules, states, mask, needed, rotate)

    def modules_of(self, application: Application) -> Modules:
        """The modules that an application runs; adapters are its own."""
        return (
            cast(Attention, self.attentions[application.attention]),
            cast(FeedForward, self.feed_forwards[application.feed_forward]),
            cast(Adapters, self.adapters[application.number]) if self.adapters else None,
        )

    def pool(self, states: States) -> Float[Tensor, "batch hidden"]:
        """The first token's state through a dense layer and tanh."""
        if self.pooler is None:
            raise ConfigError(
                "this encoder has no pooler; sentence heads need one, so build it with pooler=True"
            )
        return torch.tanh(self.pooler(states[:, 0]))

    def _plan_to(self, depth: int | None) -> list[Application]:
        if depth is None:
            return self.plan
        if not 1 <= depth <= self.config.num_layers:
            raise ConfigError(
                f"depth is from 1 to the model's {self.config.num_layers} layers; got {depth}"
            )
        return self.plan[: depth * self.config.layers_per_group]


def tie(encoder: Encoder, other: Encoder, what: Tie) -> None:
    """Let an encoder compute with the embedding tables of another, or with all of its modules.

    They stay the other's: they are no parameters of this encoder, so that nothing is counted,
    updated or stored twice. Copies and moves of a model that holds both keep them tied.
    """
    if what == "embeddings":
        tables = encoder.embedding.tables()
        _borrow(encoder.embedding, other.embedding, tables)
    elif what == "all":
        _borrow(encoder, other, [name for name, _ in encoder.named_children()])


def _borrow(owner: nn.Module, lender: nn.Module, names: Sequence[str]) -> None:
    for name in names:
        del owner._modules[name]
        owner.__dict__[name] = getattr(lender, name)


def initialize(module: nn.Module, config: EncoderConfig) -> None:
    """Truncated normal at two standard deviations, zero biases, unit norms: as Google's code."""
    std = config.init_std
    for child in module.modules():
        if isinstance(child, nn.Linear | nn.Embedding):
            if config.hf_compat:
                nn.init.normal_(child.weight, std=std)
            else:
                _fill(child.weight, std)
        if isinstance(child, nn.Linear) and child.bias is not None:
            nn.init.zeros_(child.bias)
        if isinstance(child, nn.Embedding) and child.padding_idx is not None:
            nn.init.zeros_(child.weight[child.padding_idx])
    for child in module.modules():
        if isinstance(child, Attention | FeedForward):
            writer = child.output if isinstance(child, Attention) else child.outer
            writer.weight.data.mul_(config.residual_init)
        if isinstance(child, BandedEmbedding):  # mapped rows start as wide ones do
            for linear in child.maps:
                assert isinstance(linear, nn.Linear)
                _fill(linear.weight, linear.in_features**-0.5)
        if isinstance(child, LowRank):
            nn.init.zeros_(child.up.weight)
        if isinstance(child, Embedding) and config.positions == "sinusoidal":
            assert child.position is not None
            child.position.weight.data.copy_(sinusoids(*child.position.weight.shape) * std)


def _fill(weight: Tensor, std: float) -> None:
    nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)


def broadcast(mask: Mask | Packing | None) -> KeyMask | Packing | None:
    """The mask over heads and queries, as SDPA reads it."""
    return mask[:, None, None, :] if isinstance(mask, Tensor) else mask
