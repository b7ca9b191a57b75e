"""An encoder as frozen data, with every switch of the paper (ALBERT §3.1–3.2), and who owns which
parameters (Takase & Kiyono 2021); BERT is the same class with `share="none"` and E = H."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from typing import Any, Literal

from litebert.checks import (
    check_choices,
    check_known,
    check_number,
    check_whole,
    shorten,
)
from litebert.errors import ConfigError

Share = Literal["none", "attention", "ffn", "all"]
Activation = Literal["gelu_tanh", "gelu_erf", "relu"]
Norm = Literal["post", "pre"]
Cycle = Literal["forward", "reversed"]
Positions = Literal["learned", "sinusoidal", "rotary"]

_ROTARY_BASE = 10_000.0
"""Su et al.'s."""
_OF_POSITION_INIT = {"normal": "learned", "sinusoidal": "sinusoidal"}
"""Values of `positions` by those of its first name, position_init."""
_LATER_DEFAULTS: dict[str, Any] = {
    "cycle": "forward",
    "unshared_ends": 0,
    "adapter_rank": 0,
    "rotary_base": _ROTARY_BASE,
    "reversible": False,
    "embedding_bands": (),
    "embedding_band_factor": 4,
}
"""Settings that the first configs did not have, with what every encoder did then."""

MAX_DROPOUT = 0.99
"""Highest dropout probability."""
DROPOUTS = ("embedding_dropout", "attention_dropout", "attention_output_dropout", "ffn_dropout")
"""The dropout probabilities of an encoder."""

_SHARED: dict[str, tuple[str, ...]] = {
    "none": (),
    "attention": ("attention",),
    "ffn": ("ffn",),
    "all": ("attention", "ffn"),
}
"""Which sublayers have owners in common."""

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
    rotary_base: float = _ROTARY_BASE
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
        check_choices(self)
        for name in DROPOUTS:
            check_number(self, name, 0, MAX_DROPOUT)
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
        if self.positions != "rotary" and self.rotary_base != _ROTARY_BASE:
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
        check_whole(self, "unshared_ends", 0, SIZE_LIMITS["num_layers"])
        check_whole(self, "adapter_rank", 0, min(self.hidden_size, self.ffn_size))
        self._check_sharing()
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

    def _check_sharing(self) -> None:
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
        return self.hidden_size // self.num_attention_heads

    def plan(self) -> list[tuple[int, int]]:
        """The owners of attention and feed-forward parameters for each application, in order."""
        applications = [
            (i, j) for i in range(self.num_layers) for j in range(self.layers_per_group)
        ]
        attention, ffn = (_owners(self, applications, name) for name in ("attention", "ffn"))
        return list(zip(attention, ffn, strict=True))

    def with_dropout(self, probability: float) -> "EncoderConfig":
        """The same encoder with one dropout probability everywhere."""
        changes: dict[str, Any] = dict.fromkeys(DROPOUTS, probability)
        return replace(self, **changes)

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
        check_keys(cls, data)
        if "embedding_bands" in data:
            data["embedding_bands"] = _read_bands(data["embedding_bands"])
        return cls(**data)


def _owners(config: EncoderConfig, applications: list[tuple[int, int]], sublayer: str) -> list[int]:
    if sublayer not in _SHARED[config.share]:
        return list(range(len(applications)))
    last = config.num_layers - 1 if config.cycle == "reversed" else None
    inner = config.layers_per_group
    owners = [
        config.group(i) * inner + (inner - 1 - j if i == last else j) for i, j in applications
    ]
    return _with_own_ends(owners, config.unshared_ends) if config.unshared_ends else owners


def _with_own_ends(owners: list[int], ends: int) -> list[int]:
    """The first and last `ends` applications own their parameters; owners are numbered anew, in
    order of their first application."""
    labels = [owner if ends <= k < len(owners) - ends else -1 - k for k, owner in enumerate(owners)]
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    return [numbers[label] for label in labels]


def current_settings(data: Mapping[str, Any]) -> dict[str, Any]:
    """Encoder settings by the names of this release; `position_init` is now `positions`."""
    if "position_init" not in data or "positions" in data:
        return dict(data)
    init = data["position_init"]
    renamed = {"positions" if name == "position_init" else name: data[name] for name in data}
    return renamed | {"positions": _OF_POSITION_INIT.get(str(init), init)}


def first_settings(data: Mapping[str, Any]) -> dict[str, Any]:
    """Encoder settings as the first configs had them, which fingerprints hash: by their first
    names, and later ones only where they differ from what every encoder did then."""
    settings = {
        name: value
        for name, value in data.items()
        if not (name in _LATER_DEFAULTS and value == _LATER_DEFAULTS[name])
    }
    first = {positions: init for init, positions in _OF_POSITION_INIT.items()}
    if str(settings.get("positions")) in first:
        settings["position_init"] = first[str(settings.pop("positions"))]
    return settings


def _read_bands(value: Any) -> Any:
    """A list of JSON, or `4000,16000` of a command line, as a tuple; anything else unchanged."""
    if isinstance(value, str) and all(start.isdecimal() for start in value.split(",")):
        return tuple(map(int, value.split(",")))
    if isinstance(value, list):
        return tuple(value)
    return (value,) if type(value) is int else value


def check_keys(cls: type, data: Mapping[str, Any]) -> None:
    """Refuse settings that the class does not have, with the likeliest that was meant."""
    known = [field.name for field in fields(cls)]
    for key in data:
        check_known(f"{cls.__name__} setting", key, known)
