"""An encoder with its heads: what a checkpoint holds, training trains and a predictor reads. Token
ids in; states, the pooled state and each head's logits out."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from litebert.config import POOLED_HEADS, HeadConfig, ModelConfig
from litebert.errors import ConfigError
from litebert.model.encoder import Encoder, initialize, tie
from litebert.model.heads import HEADS, ExitHead, JointSpanHead, SpanLogits
from litebert.model.layers import States


class ModelOutput(NamedTuple):
    """Result of `Model.forward`."""

    states: Float[Tensor, "batch seq hidden"]
    """Of the last layer."""
    pooled: Float[Tensor, "batch hidden"] | None
    """Of the first token; None where the encoder has no pooler."""
    logits: dict[str, Tensor | SpanLogits]
    """By head; those of the masked head at every token."""


class Model(nn.Module):
    """An encoder and its heads; `logits` and `masked_logits` apply one head to states. After
    replaced-token detection it has a generator, a smaller model with the masked-token head."""

    def __init__(self, config: ModelConfig, *, checkpoint_every: int = 0) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder, checkpoint_every=checkpoint_every)
        self.heads = nn.ModuleDict(
            {head.kind: HEADS[head.kind](config.encoder, head) for head in config.heads}
        )
        initialize(self.heads, config.encoder)
        self.exits = nn.ModuleDict(
            {
                head.kind: nn.ModuleList(
                    ExitHead(config.encoder, head) for _ in self.encoder.plan[:-1]
                )
                for head in config.heads
                if head.exits == "each"
            }
        )
        initialize(self.exits, config.encoder)
        self.generator: Model | None = None
        if config.generator is not None:
            own = ModelConfig(encoder=config.generator.encoder, heads=(HeadConfig(kind="masked"),))
            self.generator = Model(own, checkpoint_every=checkpoint_every)
            tie(self.generator.encoder, self.encoder, config.generator.tie)

    @property
    def filler(self) -> "Model":
        """The model that fills masks: the generator where there is one."""
        return self if self.generator is None else self.generator

    def forward(
        self,
        *,
        token_ids: Int[Tensor, "batch seq"],
        segment_ids: Int[Tensor, "batch seq"] | None = None,
        mask: Bool[Tensor, "batch seq"] | None = None,
    ) -> ModelOutput:
        """States, pooled state and logits of all heads; `mask` is True at real tokens."""
        states = self.encoder(token_ids=token_ids, segment_ids=segment_ids, mask=mask)
        logits: dict[str, Tensor | SpanLogits] = {}
        for kind, head in self.heads.items():
            if isinstance(head, JointSpanHead):
                allowed = torch.ones_like(token_ids, dtype=torch.bool) if mask is None else mask
                logits[kind] = head(states, allowed)
            elif kind == "masked":
                logits[kind] = self.masked_logits(states).view(*token_ids.shape, -1)
            else:
                logits[kind] = self.logits(kind, states)
        pooled = None if self.encoder.pooler is None else self.encoder.pool(states)
        return ModelOutput(states, pooled, logits)

    def masked_logits(
        self, states: States, masked_positions: Int[Tensor, " masked"] | None = None
    ) -> Float[Tensor, "masked vocab"]:
        """Logits over the vocabulary at flat positions (row-major over batch and sequence); at all
        where None."""
        rows = states.flatten(0, 1)
        chosen = rows if masked_positions is None else rows[masked_positions]
        logits: Tensor = self.head("masked")(chosen, self.encoder.embedding.token.weight)
        return logits

    def logits(self, kind: str, states: States) -> Float[Tensor, "batch *seq outputs"]:
        """Logits of the head `kind`: a row for each input, or for each token with span and tag."""
        logits: Tensor = self.head(kind)(
            self.encoder.pool(states) if kind in POOLED_HEADS else states
        )
        return logits

    def exit_logits(self, kind: str, depth: int, states: States) -> Float[Tensor, "batch outputs"]:
        """Logits of the head `kind` after `depth` layers, from 1; after all of them `logits`."""
        if kind not in self.exits or depth == len(self.encoder.plan):
            return self.logits(kind, states)
        exits = self.exits[kind]
        assert isinstance(exits, nn.ModuleList)
        logits: Tensor = exits[depth - 1](states[:, 0])
        return logits

    def head(self, kind: str) -> nn.Module:
        """The head `kind`, or an error that names those there are."""
        if kind not in self.heads:
            there = ", ".join(self.heads) or "none"
            raise ConfigError(
                f"this model has no {kind} head (it has: {there}); fine-tune one for that, or "
                "choose another model"
            )
        return self.heads[kind]


def bare_model(config: ModelConfig) -> Model:
    """A model on torch's meta device: names and shapes without weights."""
    with torch.device("meta"), _WithoutNormal():
        return Model(config)


class _WithoutNormal(TorchFunctionMode):
    """Skips `nn.init.normal_`: on the meta device there is nothing to fill, and to find that out
    torch imports its compiler, which takes longer than all the rest of loading a model."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is nn.init.normal_:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)
