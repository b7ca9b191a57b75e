"""Counting without building: parameters, FLOPs per token, and bytes, from a config alone (no
torch).

Exact to the last parameter (ALBERT Table 1); tests hold the formulas against real modules and real
saved activations.
"""

from litebert.config import EncoderConfig, GeneratorConfig, HeadConfig, ModelConfig

TRAINING_BYTES = 16
"""Per parameter in float32: the weight, its gradient and two moments."""


def linear(inputs: int, outputs: int) -> int:
    """Weights and biases."""
    return inputs * outputs + outputs


def count_encoder(config: EncoderConfig) -> dict[str, int]:
    """Parameters of the encoder by part; their sum is the total."""
    size, embedding = config.hidden_size, config.embedding_size
    num_positions = 0 if config.positions == "rotary" else config.max_positions
    plan = config.plan()
    num_attentions, num_ffns = (1 + max(owners) for owners in zip(*plan, strict=True))
    token = sum(rows * width for rows, width in config.token_tables()) + _band_maps(config)
    updates = 4 * 2 * size + 2 * (size + config.ffn_size)
    return {
        "embedding": token + (num_positions + config.num_segments + 2) * embedding,
        "mapping": linear(embedding, size) if config.has_mapping else 0,
        "attention": num_attentions * (4 * linear(size, size) + 2 * size),
        "ffn": num_ffns
        * (linear(size, config.ffn_size) + linear(config.ffn_size, size) + 2 * size),
        "adapters": len(plan) * config.adapter_rank * updates,
        "final norm": 2 * size if config.norm == "pre" else 0,
        "pooler": linear(size, size) if config.pooler else 0,
    }


def _band_maps(config: EncoderConfig) -> int:
    """Numbers in the linear layers of all bands but the first to the embedding's width."""
    return sum(width * config.embedding_size for _, width in config.token_tables()[1:])


def count_head(config: EncoderConfig, head: HeadConfig) -> int:
    """Parameters that a head adds; the masked-token head's linear layer is tied and adds only its
    bias."""
    size, embedding = config.hidden_size, config.embedding_size
    if head.kind == "masked":
        return linear(size, embedding) + 2 * embedding + config.vocab_size
    if head.kind == "detect":
        return linear(size, size) + linear(size, 1)
    if head.kind == "joint_span":
        return 2 * linear(size, 1) + 2 * linear(2 * size, size) + 2 * size + size
    width = len(head.labels) or {"order": 2, "span": 2, "regress": 1, "choose": 1}[head.kind]
    exits = len(config.plan()) - 1 if head.exits == "each" else 0
    return linear(size, width) + exits * (linear(size, size) + linear(size, width))


def count_generator(generator: GeneratorConfig) -> int:
    """Parameters that a generator adds: what it does not share with the model's encoder."""
    parts = count_encoder(generator.encoder)
    if generator.tie == "embeddings":
        parts["embedding"] = 2 * generator.encoder.embedding_size  # its norm
    own = 0 if generator.tie == "all" else sum(parts.values())
    return own + count_head(generator.encoder, HeadConfig(kind="masked"))


def count_model(config: ModelConfig) -> int:
    """Parameters of the encoder, its heads and its generator."""
    heads = sum(count_head(config.encoder, head) for head in config.heads)
    generator = 0 if config.generator is None else count_generator(config.generator)
    return sum(count_encoder(config.encoder).values()) + heads + generator


def flops_per_token(
    config: EncoderConfig, *, seq: int, masked_fraction: float = 0.0, training: bool = False
) -> float:
    """Multiply-adds counted as two. Logits over the vocabulary count at masked positions only;
    backward is twice forward."""
    size, embedding = config.hidden_size, config.embedding_size
    applications = config.num_layers * config.layers_per_group
    layer = 8 * size**2 + 4 * size * config.ffn_size + 4 * seq * size
    layer += 4 * config.adapter_rank * (5 * size + config.ffn_size)
    mapping = 2 * embedding * size if config.has_mapping else 0
    mapping += 2 * _band_maps(config)
    masked = masked_fraction * 2 * (size * embedding + embedding * config.vocab_size)
    return (3 if training else 1) * (applications * layer + mapping + masked)


def activation_bytes(
    config: EncoderConfig, *, batch: int, seq: int, checkpoint_every: int = 0, width: int = 4
) -> int:
    """Bytes that the layers keep for backward without dropout, `width` bytes a number; norms keep
    float32 statistics.

    With gradient checkpointing: the states between stretches, and all activations of one stretch
    while it is recomputed. With reversible layers: the last two streams, and one layer's
    activations while it is recomputed.
    """
    size, tokens = config.hidden_size, batch * seq
    # input, query, key, value, attended; two sums before norms; the input of ffn; ffn before and
    # after its activation
    activations = width * (8 * size + 2 * config.ffn_size + 6 * config.adapter_rank)
    statistics = 4 * (4 + config.num_attention_heads)
    per_application = tokens * (activations + statistics)
    applications = config.num_layers * config.layers_per_group
    if config.reversible:
        return tokens * 2 * max(width, 4) * size + per_application
    if not checkpoint_every:
        return applications * per_application
    stretch = min(checkpoint_every * config.layers_per_group, applications)
    num_stretches = -(-applications // stretch)
    return num_stretches * tokens * width * size + stretch * per_application
