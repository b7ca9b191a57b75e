"""How far each layer moves the states (ALBERT Figure 1): a checkpoint and shards in; for every
application the L2 distance and the cosine between what goes in and what comes out."""

from pathlib import Path

import torch
import torch.nn.functional as F

from litebert.data.shards import Shards
from litebert.storage.checkpoint import Checkpoint

_ROWS, _LENGTH = 64, 128


@torch.inference_mode()
def layer_distances(checkpoint: Path, data: Path) -> dict[str, list[float]]:
    """By application, the mean over tokens of the first shard, read in rows of up to 128 tokens."""
    model = Checkpoint.load(checkpoint).model.eval()
    length = min(_LENGTH, model.config.encoder.max_positions)
    tokens = Shards.open(data).arrays(0).tokens
    rows = min(_ROWS, len(tokens) // length)
    token_ids = torch.tensor(tokens[: rows * length].astype("int64")).view(rows, length)
    distances: dict[str, list[float]] = {"l2": [], "cosine": []}
    before = model.encoder.embedding(token_ids)
    for _, after in model.encoder.walk(before):
        distances["l2"].append(float((after - before).norm(dim=-1).mean()))
        distances["cosine"].append(float(F.cosine_similarity(after, before, dim=-1).mean()))
        before = after
    return distances
