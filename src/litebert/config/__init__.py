"""A model as frozen data: the encoder with every switch of the paper, its heads, and the named
presets. Settings in; plain data out, which recipes, checkpoints and modules read. No torch."""

from litebert.config.encoder import (
    DROPOUTS,
    MAX_DROPOUT,
    SIZE_LIMITS,
    Activation,
    EncoderConfig,
    current_settings,
    first_settings,
)
from litebert.config.model import (
    EXIT_HEADS,
    EXPORT_FORMAT,
    LABELED_HEADS,
    POOLED_HEADS,
    WEB_FORMAT,
    Exits,
    GeneratorConfig,
    HeadConfig,
    HeadKind,
    ModelConfig,
    Pooling,
    Tie,
    generator_of,
)
from litebert.config.presets import PRESETS, preset

__all__ = [
    "DROPOUTS",
    "EXIT_HEADS",
    "EXPORT_FORMAT",
    "LABELED_HEADS",
    "MAX_DROPOUT",
    "POOLED_HEADS",
    "PRESETS",
    "SIZE_LIMITS",
    "WEB_FORMAT",
    "Activation",
    "EncoderConfig",
    "Exits",
    "GeneratorConfig",
    "HeadConfig",
    "HeadKind",
    "ModelConfig",
    "Pooling",
    "Tie",
    "current_settings",
    "first_settings",
    "generator_of",
    "preset",
]
