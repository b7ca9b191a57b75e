"""Hugging Face's config.json (and Google's albert_config.json) ↔ EncoderConfig and HeadConfig; no
torch.

Keys are read by whitelist, with the defaults of Hugging Face's class. A value that changes the
computation and has no counterpart here is refused; keys without effect on it are ignored.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from litebert.checks import shorten
from litebert.config import (
    LABELED_HEADS,
    Activation,
    EncoderConfig,
    HeadConfig,
    HeadKind,
    ModelConfig,
)
from litebert.errors import CheckpointError, ConfigError, ConversionError
from litebert.files import read_json

Family = Literal["albert", "bert"]

ARCHITECTURES: dict[str, tuple[HeadKind, ...]] = {
    "Model": (),
    "ForPreTraining": ("masked", "order"),
    "ForMaskedLM": ("masked",),
    "ForSequenceClassification": ("classify",),
    "ForTokenClassification": ("tag",),
    "ForQuestionAnswering": ("span",),
    "ForMultipleChoice": ("choose",),
}
"""Hugging Face's classes, without the prefix Albert or Bert, and their heads."""
HEAD_CLASSES = {frozenset(heads): name for name, heads in ARCHITECTURES.items()} | {
    frozenset([kind]): "ForSequenceClassification" for kind in ("multilabel", "regress")
}
"""For each set of heads its class."""

_COMMON = {
    "num_hidden_layers": 12,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
DEFAULTS: dict[Family, dict[str, Any]] = {
    "albert": _COMMON
    | {
        "vocab_size": 30000,
        "embedding_size": 128,
        "hidden_size": 4096,
        "num_hidden_groups": 1,
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "inner_group_num": 1,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout_prob": 0.1,
    },
    "bert": _COMMON
    | {
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "classifier_dropout": None,
    },
}
"""The keys that are read, with the defaults of Hugging Face's classes."""

_KEYS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "ffn_size": "intermediate_size",
    "attention_output_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "max_positions": "max_position_embeddings",
    "num_segments": "type_vocab_size",
    "init_std": "initializer_range",
    "norm_epsilon": "layer_norm_eps",
}
"""Hugging Face's key of each setting that both families have."""

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "is_decoder": (False, None),
    "add_cross_attention": (False, None),
    "position_embedding_type": ("absolute", None),
    "pruned_heads": ({}, None),
}
"""Keys that change the computation unless they hold one of these values."""

ACTIVATIONS: dict[str, Activation] = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "relu": "relu",
}
GOOGLE_ACTIVATIONS: dict[str, Activation] = {"gelu": "gelu_tanh", "relu": "relu"}
"""Google's code knows one GELU, the tanh form."""

_FOREIGN_ACTIVATIONS: dict[Activation, str] = {
    "gelu_tanh": "gelu_new",
    "gelu_erf": "gelu",
    "relu": "relu",
}


@contextmanager
def config_errors() -> Iterator[None]:
    """ConversionError where a config that was read cannot be one of ours."""
    try:
        yield
    except ConfigError as error:
        raise ConversionError(f"the config cannot be used: {error}") from error


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a foreign model; ConversionError where there is none."""
    try:
        return read_json(path)
    except CheckpointError as error:
        raise ConversionError(str(error)) from error


def read_encoder(
    data: Mapping[str, Any],
    family: Family,
    *,
    pooler: bool,
    activation: Activation | None = None,
    hf_compat: bool = False,
    activations: Mapping[str, Activation] = ACTIVATIONS,
) -> EncoderConfig:
    """The encoder of a foreign config; `activation` overrides its own."""
    for key, neutral in _NEUTRAL.items():
        if key in data and data[key] not in neutral:
            raise ConversionError(
                f"the config says {key} = {shorten(data[key])}, which this encoder does not do"
            )
    values = {
        key: as_default(data.get(key, default), default)
        for key, default in DEFAULTS[family].items()
    }
    act = values["hidden_act"]
    if activation is None and (not isinstance(act, str) or act not in activations):
        raise ConversionError(
            f"the config says hidden_act = {shorten(act)}; known are {', '.join(activations)}"
        )
    with config_errors():
        return EncoderConfig(
            **{ours: values[theirs] for ours, theirs in _KEYS.items()},
            embedding_size=values.get("embedding_size", values["hidden_size"]),
            share="all" if family == "albert" else "none",
            num_groups=values.get("num_hidden_groups", 1),
            layers_per_group=values.get("inner_group_num", 1),
            activation=activation or activations[act],
            embedding_dropout=values["hidden_dropout_prob"],
            ffn_dropout=values["hidden_dropout_prob"],
            pooler=pooler,
            hf_compat=hf_compat,
        )


def read_head(
    data: Mapping[str, Any], family: Family, kind: HeadKind, *, hf_compat: bool = False
) -> HeadConfig:
    """The head `kind` as a Hugging Face config describes it."""
    names = _label_names(data)
    if kind in ("order", "span") and len(names) != 2:
        raise ConversionError(
            f"the {kind} head has 2 outputs here, the config says {len(names)} labels"
        )
    if kind == "classify":
        problem = data.get("problem_type")
        if problem == "regression" and len(names) > 1:
            raise ConversionError(
                f"the config says problem_type = {shorten(problem)} with {len(names)} labels; "
                "there is no such head"
            )
        if problem == "multi_label_classification":
            kind = "multilabel"
        elif len(names) == 1:
            kind = "regress"
    # Bert's order head has no dropout; Albert's has one in Hugging Face's code alone
    has_dropout = kind in ("classify", "multilabel", "regress", "choose", "tag") or (
        kind == "order" and family == "albert" and hf_compat
    )
    labels = tuple(names) if kind in LABELED_HEADS else ()
    dropout = _head_dropout(data, family) if has_dropout else 0.0
    with config_errors():
        return HeadConfig(kind=kind, labels=labels, dropout=dropout)


def _label_names(data: Mapping[str, Any]) -> list[str]:
    """Names of the labels by id; LABEL_0 and LABEL_1 where the config has none."""
    names = data.get("id2label")
    if names is None:
        count = data.get("num_labels", 2)
        if not isinstance(count, int) or not 1 <= count <= 1_000_000:
            raise ConversionError(
                f"the config says num_labels = {shorten(count)}; expected a whole number from 1 on"
            )
        return [f"LABEL_{index}" for index in range(count)]
    if (
        not isinstance(names, dict)
        or not names
        or {str(key) for key in names} != {str(i) for i in range(len(names))}
    ):
        raise ConversionError(
            "the config's id2label should name the labels 0, 1, 2 … without a gap; it does not"
        )
    return [str(names[key]) for key in sorted(names, key=int)]


def _head_dropout(data: Mapping[str, Any], family: Family) -> Any:
    values = {**DEFAULTS[family], **data}
    value = values["classifier_dropout_prob" if family == "albert" else "classifier_dropout"]
    return as_default(values["hidden_dropout_prob"] if value is None else value, 0.0)


def as_default(value: Any, default: Any) -> Any:
    """The 0 or 1 of released configs as a float where a float belongs; others unchanged."""
    is_whole = type(value) is int and value in (0, 1)
    return float(value) if is_whole and isinstance(default, float) else value


def write_settings(
    encoder: EncoderConfig, family: Family, head: HeadConfig | None
) -> dict[str, Any]:
    """Hugging Face's config.json for this encoder, with dropout and labels of `head`."""
    data: dict[str, Any] = {
        "model_type": family,
        **{theirs: getattr(encoder, ours) for ours, theirs in _KEYS.items()},
        "initializer_range": float(encoder.init_std),
        "layer_norm_eps": float(encoder.norm_epsilon),
        "hidden_act": _FOREIGN_ACTIVATIONS[encoder.activation],
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    dropout = head.dropout if head else 0.0
    if family == "albert":
        data |= {
            "embedding_size": encoder.embedding_size,
            "num_hidden_groups": num_groups(encoder),
            "inner_group_num": encoder.layers_per_group,
            "classifier_dropout_prob": dropout,
            "bos_token_id": 2,
            "eos_token_id": 3,
        }
    else:
        data |= {"num_hidden_layers": len(encoder.plan()), "classifier_dropout": dropout}
    return data | label_settings(head)


def num_groups(encoder: EncoderConfig) -> int:
    """Of Hugging Face's Albert: without any sharing each layer is a group of its own."""
    return encoder.num_groups if encoder.share == "all" else encoder.num_layers


def label_settings(head: HeadConfig | None) -> dict[str, Any]:
    """Hugging Face's keys for the outputs of a head."""
    if not head or not (head.labels or head.kind == "regress"):
        return {}
    labels = head.labels or ("LABEL_0",)
    problems = {"regress": "regression", "multilabel": "multi_label_classification"}
    kind = {"problem_type": problems[head.kind]} if head.kind in problems else {}
    return kind | {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    }


def settings_head(config: ModelConfig) -> HeadConfig | None:
    """The head whose labels and dropout go into Hugging Face's config."""
    return next((head for head in config.heads if head.kind != "masked"), None)
