"""A model as frozen data: the encoder with every switch of the paper, its heads, and the named
presets. `EncoderConfig` is ALBERT §3.1–3.2; BERT is the same class with `share="none"` and E = H.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from litebert.checks import check_choice, check_known, check_number, check_type, check_whole
from litebert.errors import ConfigError

Share = Literal["none", "attention", "ffn", "all"]
Activation = Literal["gelu_tanh", "gelu_erf", "relu"]
Norm = Literal["post", "pre"]
PositionInit = Literal["normal", "sinusoidal"]
HeadKind = Literal[
    "masked", "order", "classify", "multilabel", "regress", "span", "joint_span", "choose", "tag"
]

MAX_DROPOUT = 0.99
"""Highest dropout probability."""

# Sizes beyond these are a mistake or an attack: a hostile config must not make us allocate.
SIZE_LIMITS = {
    "vocab_size": 2_000_000,
    "embedding_size": 65_536,
    "hidden_size": 65_536,
    "num_layers": 1_000,
    "num_attention_heads": 1_024,
    "ffn_size": 262_144,
    "num_groups": 1_000,
    "layers_per_group": 64,
    "max_positions": 1_048_576,
    "num_segments": 1_024,
}


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The shape of an encoder. The defaults are albert-base-v2."""

    vocab_size: int = 30_000
    """Tokens in the vocabulary, V."""
    embedding_size: int = 128
    """Width of the token, position and segment embeddings, E. A linear layer E→H follows unless
    E = H."""
    hidden_size: int = 768
    """Width of the states between layers, H."""
    num_layers: int = 12
    """Times that a group is applied, with `layers_per_group` distinct layers each time."""
    num_attention_heads: int = 12
    """Attention heads; they divide H."""
    ffn_size: int = 3072
    """Width of the feed-forward network's inner layer."""
    share: Share = "all"
    """Which parameters layers share: none, attention, ffn (feed-forward) or all."""
    num_groups: int = 1
    """Groups of consecutive layers; parameters are shared within a group."""
    layers_per_group: int = 1
    """Distinct layers in a group, applied one after another (Google's inner_group_num)."""
    activation: Activation = "gelu_tanh"
    """Activation of the feed-forward network and the masked-token head. Google trained all of
    ALBERT with the tanh form."""
    norm: Norm = "post"
    """Layer norm after each residual sum (post, the paper) or before each sublayer with one more at
    the end (pre)."""
    embedding_dropout: float = 0.0
    """Dropout probability after the embedding's norm."""
    attention_dropout: float = 0.0
    """Dropout probability of attention weights."""
    attention_output_dropout: float = 0.0
    """Dropout probability of the attention output, before its residual sum."""
    ffn_dropout: float = 0.0
    """Dropout probability of the feed-forward output, before its residual sum."""
    norm_epsilon: float = 1e-12
    """Added to the variance in every layer norm."""
    max_positions: int = 512
    """Longest input, in tokens."""
    num_segments: int = 2
    """Number of segment embeddings."""
    init_std: float = 0.02
    """Standard deviation of the truncated normal that weights are initialized from."""
    residual_init: float = 1.0
    """Factor on init_std for weights that write into a residual sum; 1 is the paper's, less starts
    nearer to the identity."""
    position_init: PositionInit = "normal"
    """Initial position embeddings: the truncated normal (the paper's), or sinusoids of the same
    standard deviation."""
    pooler: bool = True
    """Whether there is a linear layer with tanh over the state of [CLS], which sentence heads
    read."""
    hf_compat: bool = False
    """Deviate as Hugging Face's AlbertModel does: no feed-forward dropout, a linear layer even
    where E = H, its rounding of groups, and initialization from an untruncated normal with a zero
    row for the padding token."""

    def __post_init__(self) -> None:
        for name, limit in SIZE_LIMITS.items():
            check_whole(self, name, 1, limit)
        for name, choices in _CHOICES.items():
            check_choice(self, name, choices)
        for name in (
            "embedding_dropout",
            "attention_dropout",
            "attention_output_dropout",
            "ffn_dropout",
        ):
            check_number(self, name, 0, MAX_DROPOUT)
        for name in ("pooler", "hf_compat"):
            check_type(self, name, bool, "true or false")
        check_number(self, "norm_epsilon", 0, 1)
        check_number(self, "init_std", 0, 100)
        check_number(self, "residual_init", 0, 100)
        if self.hidden_size % self.num_attention_heads:
            raise ConfigError(
                f"hidden_size must be a multiple of num_attention_heads; "
                f"{self.hidden_size} is not a multiple of {self.num_attention_heads}"
            )
        if self.num_groups > self.num_layers:
            raise ConfigError(
                f"num_groups is at most num_layers; got {self.num_groups} groups, "
                f"{self.num_layers} layers"
            )

    @property
    def has_mapping(self) -> bool:
        """Whether a linear layer E→H follows the embedding."""
        return self.embedding_size != self.hidden_size or self.hf_compat

    def plan(self) -> list[tuple[int, int]]:
        """The owners of attention and feed-forward parameters for each application, in order."""
        applications = [
            (i, j) for i in range(self.num_layers) for j in range(self.layers_per_group)
        ]
        attention, ffn = (self._owners(applications, name) for name in ("attention", "ffn"))
        return list(zip(attention, ffn, strict=True))

    def _owners(self, applications: list[tuple[int, int]], sublayer: str) -> list[int]:
        if sublayer not in SHARED[self.share]:
            return list(range(len(applications)))
        return [self.group(i) * self.layers_per_group + j for i, j in applications]

    def group(self, layer: int) -> int:
        """The group of a layer: with 12 layers in 2 groups, group(7) is 1."""
        if self.hf_compat:
            return int(layer / (self.num_layers / self.num_groups))
        return layer * self.num_groups // self.num_layers

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; `from_dict` reads them back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "EncoderConfig":
        _check_keys(cls, data)
        return cls(**data)


# Which sublayers have owners in common.
SHARED: dict[str, tuple[str, ...]] = {
    "none": (),
    "attention": ("attention",),
    "ffn": ("ffn",),
    "all": ("attention", "ffn"),
}


@dataclass(frozen=True, kw_only=True)
class HeadConfig:
    """A head on top of the encoder: from states to logits."""

    kind: HeadKind
    """What it predicts."""
    labels: tuple[str, ...] = ()
    """Names of the classes, for classify, multilabel and tag; their number is the width of the
    output."""
    dropout: float = 0.0
    """Dropout probability before the head's last linear layer."""

    def __post_init__(self) -> None:
        check_choice(self, "kind", get_args(HeadKind))
        check_number(self, "dropout", 0, MAX_DROPOUT)
        if (self.kind in LABELLED_HEADS) != bool(self.labels):
            expected = "needs labels" if self.kind in LABELLED_HEADS else "has no labels"
            raise ConfigError(f"a {self.kind} head {expected}; got {len(self.labels)}")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; `from_dict` reads them back."""
        return asdict(self) | {"labels": list(self.labels)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "HeadConfig":
        _check_keys(cls, data)
        labels = data.get("labels", ())
        if not isinstance(labels, list | tuple) or not all(
            isinstance(label, str) for label in labels
        ):
            raise ConfigError(f"labels is a list of strings; got {labels!r}")
        return cls(**{**data, "labels": tuple(labels)})


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """An encoder and its heads: what a checkpoint's config.json holds."""

    encoder: EncoderConfig
    """The encoder."""
    heads: tuple[HeadConfig, ...] = ()
    """The heads, at most one of each kind."""

    def __post_init__(self) -> None:
        kinds = [head.kind for head in self.heads]
        if len(set(kinds)) < len(kinds):
            raise ConfigError(f"a model has at most one head of each kind; got {', '.join(kinds)}")
        pooled = [kind for kind in kinds if kind in POOLED_HEADS]
        if pooled and not self.encoder.pooler:
            raise ConfigError(
                f"the {pooled[0]} head reads the pooled state, so the encoder needs pooler=True"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; `from_dict` reads them back."""
        return {"encoder": self.encoder.to_dict(), "heads": [head.to_dict() for head in self.heads]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ModelConfig":
        _check_keys(cls, data)
        encoder, heads = data.get("encoder"), data.get("heads", [])
        if not isinstance(encoder, Mapping):
            raise ConfigError(f"encoder is an object of encoder settings; got {encoder!r}")
        if not isinstance(heads, list) or not all(isinstance(head, Mapping) for head in heads):
            raise ConfigError(f"heads is a list of head settings; got {heads!r}")
        return cls(
            encoder=EncoderConfig.from_dict(encoder),
            heads=tuple(HeadConfig.from_dict(head) for head in heads),
        )


# Heads whose outputs have names.
LABELLED_HEADS = ("classify", "multilabel", "tag")
# Heads that read the pooled state; the others read every state.
POOLED_HEADS = ("order", "classify", "multilabel", "regress", "choose")

_CHOICES: dict[str, tuple[str, ...]] = {
    "share": get_args(Share),
    "activation": get_args(Activation),
    "norm": get_args(Norm),
    "position_init": get_args(PositionInit),
}


def _check_keys(cls: type, data: Mapping[str, Any]) -> None:
    known = [field.name for field in fields(cls)]
    for key in data:
        check_known(f"{cls.__name__} setting", key, known)


def _dropped(config: EncoderConfig, probability: float) -> EncoderConfig:
    return replace(
        config,
        embedding_dropout=probability,
        attention_dropout=probability,
        attention_output_dropout=probability,
        ffn_dropout=probability,
    )


def _albert(hidden_size: int, num_layers: int, num_attention_heads: int) -> EncoderConfig:
    return EncoderConfig(
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_attention_heads=num_attention_heads,
        ffn_size=4 * hidden_size,
    )


def _bert(hidden_size: int, num_layers: int, num_attention_heads: int) -> EncoderConfig:
    shape = _albert(hidden_size, num_layers, num_attention_heads)
    return _dropped(replace(shape, share="none", embedding_size=hidden_size), 0.1)


def _presets() -> dict[str, EncoderConfig]:
    presets: dict[str, EncoderConfig] = {}
    # ALBERT Table 1; v1 was trained with dropout 0.1 (but for xxlarge), v2 without any.
    for size, shape in {
        "base": _albert(768, 12, 12),
        "large": _albert(1024, 24, 16),
        "xlarge": _albert(2048, 24, 16),
        "xxlarge": _albert(4096, 12, 64),
    }.items():
        presets[f"albert-{size}-v1"] = _dropped(shape, 0.0 if size == "xxlarge" else 0.1)
        presets[f"albert-{size}-v2"] = shape
    presets["bert-base"] = _bert(768, 12, 12)
    presets["bert-large"] = _bert(1024, 24, 16)
    presets["bert-xlarge"] = _bert(2048, 24, 16)
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
