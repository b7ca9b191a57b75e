"""An encoder with its heads: what a checkpoint holds, training trains and a predictor reads."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from litebert.config import POOLED_HEADS, ModelConfig
from litebert.errors import ConfigError
from litebert.model.encoder import Encoder, initialize
from litebert.model.heads import HEADS
from litebert.model.layers import States


class Model(nn.Module):
    """`model.encoder` makes states; `model.logits(kind, states)` and `model.masked_logits(states,
    …)` read them."""

    def __init__(self, config: ModelConfig, *, checkpoint_every: int = 0) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder, checkpoint_every=checkpoint_every)
        self.heads = nn.ModuleDict(
            {head.kind: HEADS[head.kind](config.encoder, head) for head in config.heads}
        )
        initialize(self.heads, config.encoder)

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

    def head(self, kind: str) -> nn.Module:
        """The head `kind`, or an error that names those there are."""
        if kind not in self.heads:
            there = ", ".join(self.heads) or "none"
            raise ConfigError(
                f"this model has no {kind} head (it has: {there}); fine-tune one for that, or "
                "choose another model"
            )
        return self.heads[kind]
