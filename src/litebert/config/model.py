"""A model as frozen data, as config.json of a checkpoint holds it: the encoder, its heads, and the
generator of replaced-token detection."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from litebert.checks import check_choices, check_number, shorten
from litebert.config.encoder import MAX_DROPOUT, EncoderConfig, check_keys
from litebert.errors import ConfigError

Tie = Literal["embeddings", "all", "none"]
Exits = Literal["none", "one", "each"]
Pooling = Literal["mean", "cls"]
"""A text's vector: the mean of the last states over all tokens, or the last state of [CLS]."""
HeadKind = Literal[
    "masked",
    "order",
    "detect",
    "classify",
    "multilabel",
    "regress",
    "span",
    "joint_span",
    "choose",
    "tag",
]

# Heads whose outputs have names.
LABELED_HEADS = ("classify", "multilabel", "tag")
EXIT_HEADS = ("classify", "multilabel", "regress")
# Heads that read the pooled state; the others read every state.
POOLED_HEADS = ("order", "classify", "multilabel", "regress", "choose")

EXPORT_FORMAT = "litebert-export"
"""The format in config.json of a model that `litebert export` wrote."""
WEB_FORMAT = "litebert-web"
"""The same for a browser."""


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
    exits: Exits = "none"
    """Whether it also reads the states of earlier depths, to leave early: none; one, with the head
    and pooler of the last; each, with a head and pooler of its own at every depth."""

    def __post_init__(self) -> None:
        check_choices(self)
        check_number(self, "dropout", 0, MAX_DROPOUT)
        if (self.kind in LABELED_HEADS) != bool(self.labels):
            expected = "needs labels" if self.kind in LABELED_HEADS else "has no labels"
            raise ConfigError(f"a {self.kind} head {expected}; got {len(self.labels)}")
        if self.exits != "none" and self.kind not in EXIT_HEADS:
            raise ConfigError(
                f"exits are for {', '.join(EXIT_HEADS)} heads, a {self.kind} head has none; got "
                f"exits {self.exits}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; `from_dict` reads them back."""
        data = asdict(self) | {"labels": list(self.labels)}
        # earlier versions do not know exits, and need not where there are none
        return {name: value for name, value in data.items() if (name, value) != ("exits", "none")}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "HeadConfig":
        check_keys(cls, data)
        if "kind" not in data:
            raise ConfigError(f"a head needs its kind, one of {', '.join(get_args(HeadKind))}")
        labels = data.get("labels", ())
        if not isinstance(labels, list | tuple) or not all(
            isinstance(label, str) for label in labels
        ):
            raise ConfigError(f"labels is a list of strings; got {shorten(labels)}")
        return cls(**{**data, "labels": tuple(labels)})


@dataclass(frozen=True, kw_only=True)
class GeneratorConfig:
    """The smaller model that proposes tokens in replaced-token detection (ELECTRA §2)."""

    encoder: EncoderConfig
    """Its own encoder, with a masked-token head on top."""
    tie: Tie = "embeddings"
    """What it shares with the model's encoder: the embedding tables (those of the token
    head too), all layers as well, or nothing."""

    def __post_init__(self) -> None:
        check_choices(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; `from_dict` reads them back."""
        return {"encoder": self.encoder.to_dict(), "tie": self.tie}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "GeneratorConfig":
        check_keys(cls, data)
        encoder = data.get("encoder")
        if not isinstance(encoder, Mapping):
            raise ConfigError(
                f"encoder of a generator is an object of encoder settings; got {shorten(encoder)}"
            )
        return cls(**{**data, "encoder": EncoderConfig.from_dict(encoder)})

    def check_fits(self, encoder: EncoderConfig) -> None:
        """Refuse a generator that cannot share what it is to share with this encoder."""
        sizes = ("vocab_size", "embedding_size", "max_positions", "num_segments")
        bands = ("embedding_bands", "embedding_band_factor")
        tables = (*sizes, *bands, "positions", "hf_compat")
        own = ("num_layers", "pooler")
        alike = {
            "none": ("vocab_size",),
            "embeddings": tables,
            "all": tuple(name for name in encoder.to_dict() if name not in own),
        }
        for name in alike[self.tie]:
            mine, other = getattr(self.encoder, name), getattr(encoder, name)
            if mine != other:
                raise ConfigError(
                    f"a generator with tie = {self.tie} has the encoder's {name}, {other}; got "
                    f"{mine}"
                )
        if self.tie == "all" and self.encoder.num_layers > encoder.num_layers:
            raise ConfigError(
                f"a generator with tie = all is the encoder's first layers, at most "
                f"{encoder.num_layers}; got {self.encoder.num_layers}"
            )
        plan = self.encoder.plan()
        if self.tie == "all" and plan != encoder.plan()[: len(plan)]:
            raise ConfigError(
                "a generator with tie = all is the encoder's first layers, and with groups, "
                "unshared ends or a reversed cycle fewer layers share differently; choose "
                f"{encoder.num_layers} layers, or tie = embeddings"
            )


def generator_of(
    encoder: EncoderConfig, *, size: int | None, layers: int | None, tie: Tie
) -> GeneratorConfig:
    """The generator of an encoder: as wide as `size` (none: a third of its heads, or with tie = all
    its width) and `layers` deep (none: as deep), with heads of the same size."""
    if size is None:
        heads = max(encoder.num_attention_heads // 3, 1)
        size = encoder.hidden_size if tie == "all" else heads * encoder.head_size
    if size % encoder.head_size or not size:
        raise ConfigError(
            "generator_size is a multiple of the encoder's head size, "
            f"{encoder.head_size}; got {size}"
        )
    try:
        generator = replace(
            encoder,
            hidden_size=size,
            num_attention_heads=size // encoder.head_size,
            ffn_size=max(encoder.ffn_size * size // encoder.hidden_size, 1),
            num_layers=layers or encoder.num_layers,
            pooler=False,
        )
    except ConfigError as error:
        raise ConfigError(
            f"the generator is an encoder too, and cannot be of this size: {error}; change "
            "generator_size or generator_layers"
        ) from error
    config = GeneratorConfig(encoder=generator, tie=tie)
    config.check_fits(encoder)
    return config


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """An encoder and its heads: what a checkpoint's config.json holds."""

    encoder: EncoderConfig
    heads: tuple[HeadConfig, ...] = ()
    """The heads, at most one of each kind."""
    generator: GeneratorConfig | None = None
    """The generator of replaced-token detection, which fills masks."""

    def __post_init__(self) -> None:
        kinds = [head.kind for head in self.heads]
        if len(set(kinds)) < len(kinds):
            raise ConfigError(f"a model has at most one head of each kind; got {', '.join(kinds)}")
        pooled = [kind for kind in kinds if kind in POOLED_HEADS]
        if pooled and not self.encoder.pooler:
            raise ConfigError(
                f"the {pooled[0]} head reads the pooled state, so the encoder needs pooler=True"
            )
        if self.encoder.reversible and any(head.exits != "none" for head in self.heads):
            raise ConfigError(
                "reversible layers carry two streams from layer to layer, which exits do not "
                "read; choose exits none"
            )
        if self.generator is not None:
            self.generator.check_fits(self.encoder)

    def converted(self) -> "ModelConfig":
        """What is converted to other libraries: of a model with a generator the encoder alone."""
        return self if self.generator is None else ModelConfig(encoder=self.encoder)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; `from_dict` reads them back."""
        generator = {} if self.generator is None else {"generator": self.generator.to_dict()}
        heads = [head.to_dict() for head in self.heads]
        return {"encoder": self.encoder.to_dict(), "heads": heads} | generator

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ModelConfig":
        check_keys(cls, data)
        encoder, heads = data.get("encoder"), data.get("heads", [])
        generator = data.get("generator")
        if generator is not None and not isinstance(generator, Mapping):
            raise ConfigError(f"generator is an object of its settings; got {shorten(generator)}")
        if not isinstance(encoder, Mapping):
            raise ConfigError(f"encoder is an object of encoder settings; got {shorten(encoder)}")
        if not isinstance(heads, list) or not all(isinstance(head, Mapping) for head in heads):
            raise ConfigError(f"heads is a list of head settings; got {shorten(heads)}")
        return cls(
            encoder=EncoderConfig.from_dict(encoder),
            heads=tuple(HeadConfig.from_dict(head) for head in heads),
            generator=None if generator is None else GeneratorConfig.from_dict(generator),
        )
