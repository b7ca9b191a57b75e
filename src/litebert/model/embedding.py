"""Token, position and segment embeddings of width E, summed, normed, then mapped to H (ALBERT §3.1,
factorized embedding). Rotary positions have no embedding: attention adds them.

Ids in, the first states out.
"""

from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from litebert.config import EncoderConfig
from litebert.model.layers import dropout, layer_norm
from litebert.model.positions import position_ids


class BandedEmbedding(nn.Module):
    """Adaptive input embeddings (Baevski & Auli 2019): bands of ids have ever narrower tables, each
    with a linear layer to E; the first table has width E and none."""

    def __init__(self, config: EncoderConfig, padding: int | None) -> None:
        super().__init__()
        (rows, size), *narrow = config.token_tables()
        self.starts = config.embedding_bands
        first = nn.Embedding(rows, size, padding_idx=padding)
        self.tables = nn.ModuleList([first, *(nn.Embedding(*shape) for shape in narrow)])
        self.maps = nn.ModuleList(nn.Linear(width, size, bias=False) for _, width in narrow)

    def forward(self, token_ids: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch seq embedding"]:
        """Every band is looked up for every token, so that shapes do not depend on the ids."""
        first, *narrow = self.tables
        tokens: Tensor = first(token_ids.clamp(max=self.starts[0] - 1))
        ends = [*(start - 1 for start in self.starts[1:]), None]  # a last id too high is an error
        for start, end, table, to_size in zip(self.starts, ends, narrow, self.maps, strict=True):
            own = to_size(table(token_ids.clamp(start, end) - start))
            tokens = torch.where((token_ids >= start)[..., None], own, tokens)
        return tokens

    @property
    def weight(self) -> Float[Tensor, "vocab embedding"]:
        """The rows of all tokens, as the masked-token head reads them."""
        first, *narrow = (cast(nn.Embedding, table).weight for table in self.tables)
        mapped = (to_size(table) for table, to_size in zip(narrow, self.maps, strict=True))
        return torch.cat([first, *mapped])


class Embedding(nn.Module):
    """V×E and E×H in place of V×H; the mapping is absent where E equals H, as in Google's code."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.embedding_size
        padding = 0 if config.hf_compat else None  # Hugging Face keeps the pad token's row at zero
        self.token = (
            BandedEmbedding(config, padding)
            if config.embedding_bands
            else nn.Embedding(config.vocab_size, size, padding_idx=padding)
        )
        self.max_positions = config.max_positions
        self.position = (
            None if config.positions == "rotary" else nn.Embedding(config.max_positions, size)
        )
        self.segment = nn.Embedding(config.num_segments, size)
        self.norm = layer_norm(size, config)
        self.dropout = dropout(config.embedding_dropout)
        self.mapping = nn.Linear(size, config.hidden_size) if config.has_mapping else nn.Identity()

    def tables(self) -> list[str]:
        """Names of the tables whose rows are summed."""
        own = ("norm", "dropout", "mapping")
        return [name for name, _ in self.named_children() if name not in own]

    def forward(
        self,
        token_ids: Int[Tensor, "batch seq"],
        segment_ids: Int[Tensor, "batch seq"] | None = None,
        positions: Int[Tensor, "batch seq"] | None = None,
    ) -> Float[Tensor, "batch seq hidden"]:
        """`positions` where rows are packed end to end; else they count from 0 in every row."""
        ids = position_ids(token_ids, self.max_positions) if positions is None else positions
        segments = self.segment.weight[0] if segment_ids is None else self.segment(segment_ids)
        summed = self.token(token_ids) + segments
        if self.position is not None:
            summed = summed + self.position(ids)
        states: Tensor = self.mapping(self.dropout(self.norm(summed)))
        return states
