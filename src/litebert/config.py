"""A model as frozen data: the encoder with every switch of the paper, its heads, and the named
presets. `EncoderConfig` is ALBERT §3.1–3.2; BERT is the same class with `share="none"` and E = H.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from typing import Any, Literal, get_args

from litebert.checks import (
    check_choice,
    check_known,
    check_number,
    check_type,
    check_whole,
    shorten,
)
from litebert.errors import ConfigError

Share = Literal["none", "attention", "ffn", "all"]
Activation = Literal["gelu_tanh", "gelu_erf", "relu"]
Norm = Literal["post", "pre"]
Cycle = Literal["forward", "reversed"]
Positions = Literal["learned", "sinusoidal", "rotary"]
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

MAX_DROPOUT = 0.99
"""Highest dropout probability."""
EXPORT_FORMAT = "litebert-export"
"""The format in config.json of a model that `litebert export` wrote."""
WEB_FORMAT = "litebert-web"
"""The same for a browser."""
ROTARY_BASE = 10_000.0
"""Su et al.'s."""

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
    embedding_bands: tuple[int, ...] = ()
    """First token ids of bands with ever narrower token embeddings (Baevski & Auli 2019), as in
    4000,16000; frequent tokens have low ids. Empty for one width."""
    embedding_band_factor: int = 4
    """How many times narrower each band is than the one before; the first is of width E."""
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
    cycle: Cycle = "forward"
    """Order in which a group's layers are applied: forward each time, or reversed the last time
    (CYCLE and CYCLE (REV) of Takase & Kiyono 2021)."""
    unshared_ends: int = 0
    """Number of layers at the start, and as many at the end, that share with none; the layers
    between them share."""
    adapter_rank: int = 0
    """Rank of an update of its own that each layer adds to the matrices it shares, trained with
    them; 0 for none."""
    activation: Activation = "gelu_tanh"
    """Activation of the feed-forward network and the masked-token head. Google trained all of
    ALBERT with the tanh form."""
    norm: Norm = "post"
    """Layer norm after each residual sum (post, the paper) or before each sublayer with one more at
    the end (pre)."""
    reversible: bool = False
    """Reversible layers: two streams of states, and activations recomputed from each layer's
    outputs (Gomez et al. 2017). Another model than the plain one; pre-norm only."""
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
    """Longest input, in tokens. With learned and sinusoidal positions it is also the number of
    position embeddings."""
    num_segments: int = 2
    """Number of segment embeddings."""
    init_std: float = 0.02
    """Standard deviation of the truncated normal that weights are initialized from."""
    residual_init: float = 1.0
    """Factor on init_std for weights that write into a residual sum; 1 is the paper's, less starts
    nearer to the identity."""
    positions: Positions = "learned"
    """How a token's position enters: learned, as an embedding (the paper's); sinusoidal, as a
    learned embedding that starts from sinusoids; rotary, by rotating queries and keys, without an
    embedding (Su et al. 2021)."""
    rotary_base: float = ROTARY_BASE
    """With rotary positions: the base b of the angles, b^(−2i/d) radians a token for numbers i and
    i + d/2 of a head of size d."""
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
        for name in ("pooler", "hf_compat", "reversible"):
            check_type(self, name, bool, "true or false")
        check_number(self, "norm_epsilon", 0, 1)
        check_number(self, "init_std", 0, 100)
        check_number(self, "residual_init", 0, 100)
        check_number(self, "rotary_base", 1, 1e9)
        if self.hidden_size % self.num_attention_heads:
            raise ConfigError(
                f"hidden_size must be a multiple of num_attention_heads; "
                f"{self.hidden_size} is not a multiple of {self.num_attention_heads}"
            )
        if self.positions == "rotary" and self.head_size % 2:
            raise ConfigError(
                f"rotary positions rotate the two halves of a head, so its size is even; "
                f"hidden_size {self.hidden_size} with {self.num_attention_heads} heads gives "
                f"{self.head_size}"
            )
        if self.positions != "rotary" and self.rotary_base != ROTARY_BASE:
            raise ConfigError(
                f"rotary_base is for positions=rotary; got rotary_base {self.rotary_base} with "
                f"{self.positions} positions"
            )
        if self.num_groups > self.num_layers:
            raise ConfigError(
                f"num_groups is at most num_layers; got {self.num_groups} groups, "
                f"{self.num_layers} layers"
            )
        self._check_bands()
        self._check_plan()
        if self.reversible and self.norm != "pre":
            raise ConfigError(f"reversible layers are pre-norm, so norm is pre; got {self.norm}")

    def _check_bands(self) -> None:
        check_whole(self, "embedding_band_factor", 2, SIZE_LIMITS["embedding_size"])
        bands = self.embedding_bands
        if not isinstance(bands, tuple) or not all(type(start) is int for start in bands):
            raise ConfigError(
                f"embedding_bands are the first ids of bands, as in 4000,16000; got "
                f"{shorten(bands)}"
            )
        if not all(low < high for low, high in pairwise((0, *bands, self.vocab_size))):
            raise ConfigError(
                f"embedding_bands begin at rising ids, from 1 to the last of {self.vocab_size} "
                f"tokens; got {', '.join(map(str, bands))}"
            )
        if self.embedding_size % self.embedding_band_factor ** len(bands):
            raise ConfigError(
                f"each of the {len(bands)} embedding_bands is {self.embedding_band_factor} times "
                f"narrower than the one before, so embedding_size is a multiple of "
                f"{self.embedding_band_factor ** len(bands)}; got {self.embedding_size}"
            )

    def _check_plan(self) -> None:
        check_whole(self, "unshared_ends", 0, SIZE_LIMITS["num_layers"])
        check_whole(self, "adapter_rank", 0, min(self.hidden_size, self.ffn_size))
        applications = self.num_layers * self.layers_per_group
        if self.share == "none" and (self.cycle != "forward" or self.unshared_ends):
            name = "unshared_ends" if self.unshared_ends else "cycle"
            raise ConfigError(
                f"{name} is about shared layers, and share is none; got {name} "
                f"{getattr(self, name)}"
            )
        if self.cycle == "reversed" and (self.layers_per_group == 1 or self.num_groups > 1):
            raise ConfigError(
                "cycle = reversed needs several layers in one group: layers_per_group of at "
                f"least 2 and num_groups 1; got {self.layers_per_group} and {self.num_groups}"
            )
        if self.cycle == "reversed" and self.num_layers == 1:
            raise ConfigError(
                "cycle = reversed needs a group that is applied at least twice; num_layers is 1"
            )
        if self.unshared_ends and 2 * self.unshared_ends > applications - 2:
            raise ConfigError(
                f"between unshared ends at least 2 layers share; got {self.unshared_ends} at each "
                f"end of {applications}"
            )

    def token_tables(self) -> list[tuple[int, int]]:
        """Rows and width of the token embeddings, by band."""
        bounds = pairwise((0, *self.embedding_bands, self.vocab_size))
        return [
            (end - start, self.embedding_size // self.embedding_band_factor**band)
            for band, (start, end) in enumerate(bounds)
        ]

    @property
    def has_mapping(self) -> bool:
        """Whether a linear layer E→H follows the embedding."""
        return self.embedding_size != self.hidden_size or self.hf_compat

    @property
    def head_size(self) -> int:
        """Width of an attention head."""
        return self.hidden_size // self.num_attention_heads

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
        last = self.num_layers - 1 if self.cycle == "reversed" else None
        inner = self.layers_per_group
        owners = [
            self.group(i) * inner + (inner - 1 - j if i == last else j) for i, j in applications
        ]
        return _with_own_ends(owners, self.unshared_ends) if self.unshared_ends else owners

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
        data = current_settings(data)
        _check_keys(cls, data)
        if "embedding_bands" in data:
            data["embedding_bands"] = _read_bands(data["embedding_bands"])
        return cls(**data)


def _read_bands(value: Any) -> Any:
    """A list of JSON, or `4000,16000` of a command line, as a tuple; anything else unchanged."""
    if isinstance(value, str) and all(part.isdecimal() for part in value.split(",")):
        return tuple(map(int, value.split(",")))
    if isinstance(value, list):
        return tuple(value)
    return (value,) if type(value) is int else value


_OF_POSITION_INIT = {"normal": "learned", "sinusoidal": "sinusoidal"}
"""Values of `positions` by those of its first name, position_init."""
_LATER_DEFAULTS: dict[str, Any] = {
    "cycle": "forward",
    "unshared_ends": 0,
    "adapter_rank": 0,
    "rotary_base": ROTARY_BASE,
    "reversible": False,
    "embedding_bands": (),
    "embedding_band_factor": 4,
}
"""Settings that the first configs did not have, with what every encoder did then."""


def current_settings(data: Mapping[str, Any]) -> dict[str, Any]:
    """Encoder settings by the names of this release; `position_init` is now `positions`."""
    if "position_init" not in data or "positions" in data:
        return dict(data)
    return {
        "positions" if name == "position_init" else name: (
            _OF_POSITION_INIT.get(str(value), value) if name == "position_init" else value
        )
        for name, value in data.items()
    }


def first_settings(data: Mapping[str, Any]) -> dict[str, Any]:
    """Encoder settings as the first configs had them, which fingerprints hash: by their first
    names, and later ones only where they differ from what every encoder did then."""
    first = {positions: init for init, positions in _OF_POSITION_INIT.items()}
    return {
        "position_init" if name == "positions" and str(value) in first else name: (
            first.get(str(value), value) if name == "positions" else value
        )
        for name, value in data.items()
        if not (name in _LATER_DEFAULTS and value == _LATER_DEFAULTS[name])
    }


def _with_own_ends(owners: list[int], ends: int) -> list[int]:
    """The first and last `ends` applications own their parameters; owners are numbered anew, in
    order of their first application."""
    labels = [owner if ends <= k < len(owners) - ends else -1 - k for k, owner in enumerate(owners)]
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return [numbers[label] for label in labels]


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
    exits: Exits = "none"
    """Whether it also reads the states of earlier depths, to leave early: none; one, with the head
    and pooler of the last; each, with a head and pooler of its own at every depth."""

    def __post_init__(self) -> None:
        check_choice(self, "kind", get_args(HeadKind))
        check_choice(self, "exits", get_args(Exits))
        check_number(self, "dropout", 0, MAX_DROPOUT)
        if (self.kind in LABELLED_HEADS) != bool(self.labels):
            expected = "needs labels" if self.kind in LABELLED_HEADS else "has no labels"
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
        _check_keys(cls, data)
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
    """What it shares with the model's encoder: the embedding tables (the token head's product
    too), all layers as well, or nothing."""

    def __post_init__(self) -> None:
        check_choice(self, "tie", get_args(Tie))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; `from_dict` reads them back."""
        return {"encoder": self.encoder.to_dict(), "tie": self.tie}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "GeneratorConfig":
        _check_keys(cls, data)
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
    """The encoder."""
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
        _check_keys(cls, data)
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


# Heads whose outputs have names.
LABELLED_HEADS = ("classify", "multilabel", "tag")
EXIT_HEADS = ("classify", "multilabel", "regress")
# Heads that read the pooled state; the others read every state.
POOLED_HEADS = ("order", "classify", "multilabel", "regress", "choose")

_CHOICES: dict[str, tuple[str, ...]] = {
    "share": get_args(Share),
    "activation": get_args(Activation),
    "norm": get_args(Norm),
    "cycle": get_args(Cycle),
    "positions": get_args(Positions),
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
