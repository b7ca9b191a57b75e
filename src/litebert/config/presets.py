"""The named encoders: ALBERT Table 1, BERT as its baseline, and those of today."""

from dataclasses import replace

from litebert.checks import check_known
from litebert.config.encoder import EncoderConfig


def _albert(hidden_size: int, num_layers: int, num_attention_heads: int) -> EncoderConfig:
    return EncoderConfig(
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_attention_heads=num_attention_heads,
        ffn_size=4 * hidden_size,
    )


def _bert(hidden_size: int, num_layers: int, num_attention_heads: int) -> EncoderConfig:
    shape = _albert(hidden_size, num_layers, num_attention_heads)
    return replace(shape, share="none", embedding_size=hidden_size).with_dropout(0.1)


def _presets() -> dict[str, EncoderConfig]:
    presets: dict[str, EncoderConfig] = {}
    # ALBERT Table 1; v1 was trained with dropout 0.1 (but for xxlarge), v2 without any.
    for size, shape in {
        "base": _albert(768, 12, 12),
        "large": _albert(1024, 24, 16),
        "xlarge": _albert(2048, 24, 16),
        "xxlarge": _albert(4096, 12, 64),
    }.items():
        presets[f"albert-{size}-v1"] = shape.with_dropout(0.0 if size == "xxlarge" else 0.1)
        presets[f"albert-{size}-v2"] = shape
    presets["bert-base"] = _bert(768, 12, 12)
    presets["bert-large"] = _bert(1024, 24, 16)
    presets["bert-xlarge"] = _bert(2048, 24, 16)
    # Of today: pre-norm and rotary positions, one shared layer.
    for size, (hidden_size, heads) in {
        "base": (768, 12),
        "small": (384, 6),
        "mini": (256, 4),
    }.items():
        presets[f"litebert-{size}"] = replace(
            _albert(hidden_size, 12, heads), norm="pre", positions="rotary"
        )
    presets["tiny"] = EncoderConfig(
        vocab_size=256,
        embedding_size=16,
        hidden_size=32,
        num_layers=3,
        num_attention_heads=4,
        ffn_size=64,
        max_positions=64,
    )
    return presets


PRESETS: dict[str, EncoderConfig] = _presets()


def preset(name: str) -> EncoderConfig:
    """The preset called `name`, or a ConfigError that names the known ones."""
    check_known("preset", name, PRESETS)
    return PRESETS[name]
