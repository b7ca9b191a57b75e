"""A checkpoint in; the config and the weights that graphs are written from out."""

from dataclasses import replace

from litebert.config import ModelConfig
from litebert.errors import ConfigError
from litebert.infer.export.network import Weights
from litebert.storage.checkpoint import Checkpoint


def exported_config(config: ModelConfig) -> ModelConfig:
    """What is exported: all but what only pretraining reads. Refuses what graphs do not compute."""
    encoder = config.encoder
    for is_set, what in (
        (encoder.reversible, "reversible layers, with their two streams of states,"),
        (bool(encoder.embedding_bands), "embeddings in bands"),
    ):
        if is_set:
            raise ConfigError(f"{what} are computed by torch alone; predict with --engine torch")
    heads = tuple(head for head in config.heads if head.kind != "detect")
    return replace(config, heads=heads, generator=None)


def weights_of(checkpoint: Checkpoint) -> Weights:
    """As float32 arrays, under the names of the checkpoint."""
    return {
        name: tensor.detach().float().cpu().numpy()
        for name, tensor in checkpoint.model.state_dict().items()
    }
