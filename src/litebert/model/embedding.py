"""Token, position and segment embeddings of width E, summed, normed, then mapped to H (ALBERT §3.1,
factorized embedding).

Ids in, the first states out.
"""

from jaxtyping import Float, Int
from torch import Tensor, nn

from litebert.config import EncoderConfig
from litebert.model.layers import dropout, layer_norm
from litebert.model.positions import position_ids


class Embedding(nn.Module):
    """V×E and E×H in place of V×H; the mapping is absent where E equals H, as in Google's code."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.embedding_size
        padding = 0 if config.hf_compat else None  # Hugging Face keeps the pad token's row at zero
        self.token = nn.Embedding(config.vocab_size, size, padding_idx=padding)
        self.position = nn.Embedding(config.max_positions, size)
        self.segment = nn.Embedding(config.num_segments, size)
        self.norm = layer_norm(size, config)
        self.dropout = dropout(config.embedding_dropout)
        self.mapping = nn.Linear(size, config.hidden_size) if config.has_mapping else nn.Identity()

    def forward(
        self,
        token_ids: Int[Tensor, "batch seq"],
        segment_ids: Int[Tensor, "batch seq"] | None = None,
        positions: Int[Tensor, "batch seq"] | None = None,
    ) -> Float[Tensor, "batch seq hidden"]:
        """`positions` where rows are packed end to end; else they count from 0 in every row."""
        ids = (
            position_ids(token_ids, self.position.num_embeddings)
            if positions is None
            else positions
        )
        segments = self.segment.weight[0] if segment_ids is None else self.segment(segment_ids)
        states: Tensor = self.mapping(
            self.dropout(self.norm(self.token(token_ids) + segments + self.position(ids)))
        )
        return states
