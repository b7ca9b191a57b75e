"""Hugging Face's ALBERT in the shape of an encoder of ours."""

from typing import Any

from litebert.config import EncoderConfig

ACTIVATIONS = {"gelu_tanh": "gelu_new", "gelu_erf": "gelu", "relu": "relu"}


def huggingface_settings(encoder: EncoderConfig) -> dict[str, Any]:
    """Keywords of transformers.AlbertConfig."""
    return {
        "vocab_size": encoder.vocab_size,
        "embedding_size": encoder.embedding_size,
        "hidden_size": encoder.hidden_size,
        "num_hidden_layers": encoder.num_layers,
        "num_attention_heads": encoder.num_attention_heads,
        "intermediate_size": encoder.ffn_size,
        "max_position_embeddings": encoder.max_positions,
        "hidden_act": ACTIVATIONS[encoder.activation],
        "hidden_dropout_prob": encoder.ffn_dropout,
        "attention_probs_dropout_prob": encoder.attention_dropout,
        "classifier_dropout_prob": 0.0,
    }
