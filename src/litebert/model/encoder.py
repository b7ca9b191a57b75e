"""The encoder: who owns which parameters, and the walk of the states through the layers (ALBERT
§3.1, parameter sharing).
 Ids in, states out. Sharing is a plan, not a branch: a list of (attention owner, feed-forward
owner), one pair for each application. none / attention / ffn / all, groups, several layers per
group and BERT itself are one class with another plan.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from litebert.config import EncoderConfig
from litebert.errors import ConfigError
from litebert.model.embedding import Embedding
from litebert.model.layers import Attention, Chosen, FeedForward, States, layer_norm
from litebert.model.layout import KeyMask, Needed, Packing

Ids = Int[Tensor, "batch seq"]
Mask = Bool[Tensor, "batch seq"]
Pooled = Float[Tensor, "batch hidden"]


class Encoder(nn.Module):
    """ALBERT or BERT, by its config; `checkpoint_every=k` recomputes activations in stretches of k
    layers."""

    def __init__(self, config: EncoderConfig, *, checkpoint_every: int = 0) -> None:
        super().__init__()
        self.config = config
        self.checkpoint_every = checkpoint_every
        self.plan = config.plan()
        # whether layers draw random numbers, which must then be drawn again when they are
        # recomputed
        self.draws = any(
            (config.attention_dropout, config.attention_output_dropout, config.ffn_dropout)
        )
        # where training may put a compiled one: compiled once, since all layers are one layer
        self.layer = apply_layer
        size = config.hidden_size
        self.embedding = Embedding(config)
        self.attentions = nn.ModuleList(
            Attention(config) for _ in range(1 + max(a for a, _ in self.plan))
        )
        self.feed_forwards = nn.ModuleList(
            FeedForward(config) for _ in range(1 + max(f for _, f in self.plan))
        )
        # Without a norm at its end a pre-norm stack would hand on an unnormed sum.
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

        `mask` is True at real tokens, None where all are; where rows lie end to end it is a
        Packing, and `positions` says where each token stands in its own row.
        """
        states, among = self.embedding(token_ids, segment_ids, positions), broadcast(mask)
        plan = self.plan_to(depth)
        if self.checkpoint_every and torch.is_grad_enabled():
            stride = self.checkpoint_every * self.config.layers_per_group
            for start in range(0, len(plan), stride):
                stretch, is_last = plan[start : start + stride], start + stride >= len(plan)
                chosen = needed if is_last else None
                states = checkpoint(
                    self.run,
                    stretch,
                    states,
                    among,
                    chosen,
                    use_reentrant=False,
                    preserve_rng_state=self.draws,
                )
        else:
            states = self.run(plan, states, among, needed)
        final: Tensor = self.norm(states)
        return final

    def all_states(
        self, *, token_ids: Ids, segment_ids: Ids | None = None, mask: Mask | None = None
    ) -> list[Float[Tensor, "batch seq hidden"]]:
        """The states after the embedding and after every application; the last item is what
        `forward` returns."""
        found, key_mask = [self.embedding(token_ids, segment_ids)], broadcast(mask)
        for application in self.plan:
            found.append(self.run([application], found[-1], key_mask))
        found[-1] = self.norm(found[-1])
        return found

    def run(
        self,
        plan: Sequence[tuple[int, int]],
        states: States,
        among: KeyMask | Packing | None,
        needed: Needed | None = None,
    ) -> Chosen:
        """Apply the layers that `plan` names, one after another; the last of them at the needed
        tokens alone."""
        for place, (attention, feed_forward) in enumerate(plan, start=1):
            chosen = needed if place == len(plan) else None
            states = self.layer(
                self.attentions[attention], self.feed_forwards[feed_forward], states, among, chosen
            )
        return states

    def plan_to(self, depth: int | None) -> list[tuple[int, int]]:
        """The plan of the first `depth` layers."""
        if depth is None:
            return self.plan
        if not 1 <= depth <= self.config.num_layers:
            raise ConfigError(
                f"depth is from 1 to the model's {self.config.num_layers} layers; got {depth}"
            )
        return self.plan[: depth * self.config.layers_per_group]

    def pool(self, states: States) -> Pooled:
        """The first token's state through a dense layer and tanh."""
        if self.pooler is None:
            raise ConfigError(
                "this encoder has no pooler; sentence heads need one, so build it with pooler=True"
            )
        return torch.tanh(self.pooler(states[:, 0]))


def apply_layer(
    attention: nn.Module,
    feed_forward: nn.Module,
    states: States,
    among: KeyMask | Packing | None,
    needed: Needed | None = None,
) -> Chosen:
    """One layer: the attention part, then the feed-forward part."""
    after: Tensor = feed_forward(attention(states, among, needed))
    return after


def broadcast(mask: Mask | Packing | None) -> KeyMask | Packing | None:
    """The mask of real tokens as SDPA reads it, over heads and queries."""
    return mask[:, None, None, :] if isinstance(mask, Tensor) else mask


def initialize(module: nn.Module, config: EncoderConfig) -> None:
    """Truncated normal at two standard deviations, zero biases, unit norms: as Google's code."""
    std = config.init_std
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            if config.hf_compat:
                nn.init.normal_(part.weight, std=std)
            else:
                nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.Embedding) and part.padding_idx is not None:
            nn.init.zeros_(part.weight[part.padding_idx])
    for part in module.modules():
        if isinstance(part, Attention | FeedForward):
            writer = part.output if isinstance(part, Attention) else part.outer
            writer.weight.data.mul_(config.residual_init)
        if isinstance(part, Embedding) and config.position_init == "sinusoidal":
            part.position.weight.data.copy_(sinusoids(*part.position.weight.shape) * std)


def sinusoids(positions: int, size: int) -> Float[Tensor, "positions size"]:
    """Sines and cosines of falling frequency (Vaswani et al. 2017), of unit variance: near
    positions look alike."""
    frequencies = 10_000 ** (-torch.arange(0, size, 2) / size)
    angles = torch.arange(positions)[:, None] * frequencies
    return 2**0.5 * torch.cat([angles.sin(), angles.cos()], 1)[:, :size]
