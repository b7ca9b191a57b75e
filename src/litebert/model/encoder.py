"""The encoder: who owns which parameters, and the states' path through the layers (ALBERT §3.1,
parameter sharing).

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
from litebert.model.layers import (
    Attention,
    Chosen,
    FeedForward,
    Layer,
    States,
    apply_layer,
    layer_norm,
)
from litebert.model.positions import KeyMask, Needed, Packing, sinusoids

Ids = Int[Tensor, "batch seq"]
Mask = Bool[Tensor, "batch seq"]


class Encoder(nn.Module):
    """ALBERT or BERT, by its config; `checkpoint_every=k` recomputes activations in stretches of k
    layers."""

    def __init__(self, config: EncoderConfig, *, checkpoint_every: int = 0) -> None:
        super().__init__()
        self.config = config
        self.checkpoint_every = checkpoint_every
        self.plan = config.plan()
        # whether layers draw random numbers: recomputing must then draw the same ones again
        self.draws = any(
            (config.attention_dropout, config.attention_output_dropout, config.ffn_dropout)
        )
        # one function for all layers; a faster or compiled one may take its place
        self.layer: Layer = apply_layer
        size = config.hidden_size
        self.embedding = Embedding(config)
        self.attentions = nn.ModuleList(
            Attention(config) for _ in range(1 + max(a for a, _ in self.plan))
        )
        self.feed_forwards = nn.ModuleList(
            FeedForward(config) for _ in range(1 + max(f for _, f in self.plan))
        )
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
        states, key_mask = self.embedding(token_ids, segment_ids, positions), _broadcast(mask)
        plan = self._plan_to(depth)
        if self.checkpoint_every and torch.is_grad_enabled():
            stride = self.checkpoint_every * self.config.layers_per_group
            for start in range(0, len(plan), stride):
                stretch, is_last = plan[start : start + stride], start + stride >= len(plan)
                chosen = needed if is_last else None
                states = checkpoint(
                    self.run,
                    stretch,
                    states,
                    key_mask,
                    chosen,
                    use_reentrant=False,
                    preserve_rng_state=self.draws,
                )
        else:
            states = self.run(plan, states, key_mask, needed)
        final: Tensor = self.norm(states)
        return final

    def all_states(
        self, *, token_ids: Ids, segment_ids: Ids | None = None, mask: Mask | None = None
    ) -> list[Float[Tensor, "batch seq hidden"]]:
        """The states after the embedding and after every application; the last item is what
        `forward` returns."""
        states, key_mask = [self.embedding(token_ids, segment_ids)], _broadcast(mask)
        for application in self.plan:
            states.append(self.run([application], states[-1], key_mask))
        states[-1] = self.norm(states[-1])
        return states

    def attention_weights(
        self, *, token_ids: Ids, segment_ids: Ids | None = None, mask: Mask | None = None
    ) -> list[Float[Tensor, "batch heads seq seq"]]:
        """The softmax of every application, by the plain layer and without dropout."""
        states, key_mask = self.embedding(token_ids, segment_ids), _broadcast(mask)
        weights = []
        for attention, feed_forward in self.plan:
            weights.append(self.attentions[attention].weights(states, key_mask))  # type: ignore[operator]
            states = apply_layer(
                self.attentions[attention],  # type: ignore[arg-type]
                self.feed_forwards[feed_forward],  # type: ignore[arg-type]
                states,
                key_mask,
            )
        return weights

    def run(
        self,
        plan: Sequence[tuple[int, int]],
        states: States,
        mask: KeyMask | Packing | None,
        needed: Needed | None = None,
    ) -> Chosen:
        """Apply the layers that `plan` names, the last of them at the needed positions alone."""
        for number, (attention, feed_forward) in enumerate(plan, start=1):
            chosen = needed if number == len(plan) else None
            states = self.layer(
                self.attentions[attention], self.feed_forwards[feed_forward], states, mask, chosen
            )
        return states

    def pool(self, states: States) -> Float[Tensor, "batch hidden"]:
        """The first token's state through a dense layer and tanh."""
        if self.pooler is None:
            raise ConfigError(
                "this encoder has no pooler; sentence heads need one, so build it with pooler=True"
            )
        return torch.tanh(self.pooler(states[:, 0]))

    def _plan_to(self, depth: int | None) -> list[tuple[int, int]]:
        """The plan of the first `depth` layers."""
        if depth is None:
            return self.plan
        if not 1 <= depth <= self.config.num_layers:
            raise ConfigError(
                f"depth is from 1 to the model's {self.config.num_layers} layers; got {depth}"
            )
        return self.plan[: depth * self.config.layers_per_group]


def initialize(module: nn.Module, config: EncoderConfig) -> None:
    """Truncated normal at two standard deviations, zero biases, unit norms: as Google's code."""
    std = config.init_std
    for child in module.modules():
        if isinstance(child, nn.Linear | nn.Embedding):
            if config.hf_compat:
                nn.init.normal_(child.weight, std=std)
            else:
                nn.init.trunc_normal_(child.weight, std=std, a=-2 * std, b=2 * std)
        if isinstance(child, nn.Linear) and child.bias is not None:
            nn.init.zeros_(child.bias)
        if isinstance(child, nn.Embedding) and child.padding_idx is not None:
            nn.init.zeros_(child.weight[child.padding_idx])
    for child in module.modules():
        if isinstance(child, Attention | FeedForward):
            writer = child.output if isinstance(child, Attention) else child.outer
            writer.weight.data.mul_(config.residual_init)
        if isinstance(child, Embedding) and config.position_init == "sinusoidal":
            child.position.weight.data.copy_(sinusoids(*child.position.weight.shape) * std)


def _broadcast(mask: Mask | Packing | None) -> KeyMask | Packing | None:
    """The mask over heads and queries, as SDPA reads it."""
    return mask[:, None, None, :] if isinstance(mask, Tensor) else mask
