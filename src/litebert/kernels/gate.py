"""One gate for everything that exists for speed alone: a device, a dtype and a config in; which
kernel families run there, and why others do not, out.

Resolved once, when a model is placed on a device. `Gate.apply` then puts one fast function
(kernels/layer.py) over the same modules in place of `model.layers.apply_layer`. Each family can be
switched off: `--kernels off`, `--kernels attention=off,norm=off`, or the environment variable
LITEBERT_KERNELS with the same syntax. `litebert doctor` prints what was chosen.

Kernels are for Hopper GPUs (compute capability 9.0), where they were measured. Other GPUs run the
plain layer: from Ampere (8.0) on with torch's variable-length attention for packed rows, earlier
ones over padded rows.
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch

from litebert.config import EncoderConfig
from litebert.errors import ConfigError
from litebert.model.encoder import Encoder
from litebert.model.layers import Attention, FeedForward, Layer, apply_layer
from litebert.model.model import Model

if TYPE_CHECKING:
    from litebert.kernels.fp8.linear import QuantizedLinear

FAMILIES = {
    "attention": "attention over packed rows of up to 512 tokens",
    "norm": "pre-norm whose backward has the bias gradients next to it",
    "linear": "query, key and value in one matmul; cuBLASLt algorithms chosen by measurement",
    "feed_forward": "both matmuls and GELU as one operator",
    "cross_entropy": "cross entropy over a vocabulary",
    "fp8": "rounding to 8-bit floats",
}
"""Family → what it computes."""
OF_LAYER = ("attention", "norm", "linear", "feed_forward", "fp8")
"""Families that compute in the layer."""
VARIABLE = "LITEBERT_KERNELS"
HOPPER = 9
LEAST_VARLEN = 8
"""Major compute capability that torch's variable-length attention asks for."""
SHARED_MEMORY = 128 << 10
"""Bytes of a multiprocessor's shared memory that the largest tile takes."""
SHORT, LONG = 128, 512
"""Tokens up to which our two attentions read a row: a longer one has more scores than a program of
the first has registers; the second was measured and tested no further."""
HEAD_SIZES = (16, 32, 64, 128)
LEAST_ROTARY = 32
"""Numbers of a head whose halves are large enough for a tensor core."""
WIDEST = 4096
"""Numbers of a row that a norm's program can hold."""
MANY_LABELS = 1024
"""Labels from which the cross-entropy kernel was measured."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Which kernel families run; the default is none, the plain layer."""

    attention: bool = False
    norm: bool = False
    linear: bool = False
    feed_forward: bool = False
    cross_entropy: bool = False
    fp8: bool = False
    varlen: bool = False
    """Whether torch's variable-length attention reads packed rows: on a GPU from Ampere on, in half
    precision."""
    quantizes: bool = False
    """Whether the layers' linear layers multiply in 8-bit floats (`--dtype fp8`)."""
    reasons: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Family that is off → why."""
    note: str | None = field(default=None, compare=False)
    """What a user should know about speed on this GPU; None for nothing."""

    @classmethod
    def detect(
        cls,
        device: torch.device | str,
        dtype: torch.dtype,
        *,
        config: EncoderConfig | None = None,
        quantizes: bool = False,
        off: Collection[str] = (),
    ) -> "Gate":
        """What is for this device, dtype and config (None: any), less what is switched off."""
        device = torch.device(device)
        plain = None if config is None else _plain_layer_only(config)
        if quantizes and plain:
            raise ConfigError(f"--dtype fp8 is not for {plain}; choose bfloat16")
        has_packed_rows = not plain and _has_varlen(device)
        note = f"{plain}: the plain layer runs, without fused kernels and packed rows"
        machine = _machine_lacks(device, dtype)
        by_variable = parse(os.environ.get(VARIABLE, ""), source=VARIABLE)
        reasons: dict[str, str] = {}
        for family in FAMILIES:
            reason = (
                machine
                or ("switched off by --kernels" if family in off else None)
                or (f"switched off by {VARIABLE}" if family in by_variable else None)
                or (None if config is None else _config_lacks(family, config))
            )
            if reason:
                reasons[family] = reason
        return cls(
            **{family: family not in reasons for family in FAMILIES},
            varlen=has_packed_rows and dtype in (torch.bfloat16, torch.float16),
            quantizes=quantizes,
            reasons=reasons,
            note=note if plain and device.type == "cuda" else None,
        )

    def layer(self) -> Layer:
        """The layer that runs what is on, or `apply_layer` where nothing is."""
        if not (self.varlen or self.quantizes or any(getattr(self, name) for name in OF_LAYER)):
            return apply_layer
        from litebert.kernels.layer import fast_layer

        return fast_layer(self)

    def apply(self, model: Model) -> list["QuantizedLinear"]:
        """Give the model's encoder this gate's layer. Returned are its 8-bit weights, to be
        refreshed when the weights have changed."""
        model.encoder.layer = self.layer()
        _GATES[model.encoder] = self
        if not self.quantizes:
            return []
        from litebert.kernels.fp8.linear import quantize_layer

        children = model.encoder.modules()
        owners = [child for child in children if isinstance(child, Attention | FeedForward)]
        return [each for owner in owners for each in quantize_layer(owner, kernels=self.fp8)]

    def packs(self, longest: int, *, dropout: float) -> bool:
        """Whether rows of up to `longest` tokens are read packed; with attention dropout, our own
        kernel alone does that."""
        return self.varlen and (not dropout or (self.attention and longest <= LONG))


_GATES: WeakKeyDictionary[Encoder, Gate] = WeakKeyDictionary()


def gate_of(model: Model) -> Gate:
    """The gate that was applied to a model; that of the plain layer where none was."""
    return _GATES.get(model.encoder, Gate())


def can_pack(model: Model, longest: int) -> bool:
    """Whether a model, as it was placed on its device, reads rows of up to `longest` tokens
    packed."""
    dropout = model.config.encoder.attention_dropout if model.training else 0.0
    return gate_of(model).packs(longest, dropout=dropout)


def parse(text: str, *, source: str = "--kernels") -> frozenset[str]:
    """The families that `off` or `attention=off,norm=off` switches off; none by an empty text."""
    if text in ("", "on"):
        return frozenset()
    if text == "off":
        return frozenset(FAMILIES)
    switched = set()
    for item in text.split(","):
        family, _, state = item.strip().partition("=")
        if family not in FAMILIES or state not in ("on", "off"):
            raise ConfigError(
                f"{source} is off, on or a list such as attention=off,norm=off; got {item!r}; the "
                f"families are {', '.join(FAMILIES)}"
            )
        switched |= {family} if state == "off" else set()
    return frozenset(switched)


def _has_varlen(device: torch.device) -> bool:
    """Whether torch's variable-length attention runs on a device."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return False
    return bool(torch.cuda.get_device_properties(device).major >= LEAST_VARLEN)


def _machine_lacks(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why no kernel runs on a device, or None."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return "no GPU"
    if find_spec("triton") is None:
        return "Triton is not installed"
    properties = torch.cuda.get_device_properties(device)
    if properties.major != HOPPER:
        return f"compute capability {properties.major}.{properties.minor}, kernels are for 9.0"
    memory = getattr(properties, "shared_memory_per_block_optin", SHARED_MEMORY)
    if memory < SHARED_MEMORY:
        return f"{memory >> 10} KiB of shared memory, kernels take {SHARED_MEMORY >> 10}"
    if dtype != torch.bfloat16:
        return f"{str(dtype).removeprefix('torch.')}, kernels are for bfloat16"
    return None


def _plain_layer_only(config: EncoderConfig) -> str | None:
    """Why the fast layer is not for a config, or None."""
    if config.reversible:
        return "reversible layers"
    return f"adapter_rank {config.adapter_rank}" if config.adapter_rank else None


def _config_lacks(family: str, config: EncoderConfig) -> str | None:
    """Why a family is not for a config, or None."""
    plain = _plain_layer_only(config)
    if plain and family in OF_LAYER:
        return f"{plain}, which the plain layer computes"
    hidden, head_size = config.hidden_size, config.head_size
    if family == "attention" and head_size not in HEAD_SIZES:
        return f"heads of {head_size} numbers, not a power of two from 16 to 128"
    if family == "attention" and config.positions == "rotary" and head_size < LEAST_ROTARY:
        return f"rotary positions in heads of {head_size} numbers, not {LEAST_ROTARY} to 128"
    if family in ("norm", "linear", "feed_forward") and (hidden % 16 or hidden > WIDEST):
        return f"hidden_size {hidden}, not a multiple of 16 up to {WIDEST}"
    if family == "norm" and config.norm != "pre":
        return "post-norm"
    if family == "feed_forward" and not config.activation.startswith("gelu"):
        return f"activation {config.activation}"
    if family == "cross_entropy" and (config.vocab_size < MANY_LABELS or config.vocab_size % 8):
        return f"{config.vocab_size} tokens, not a multiple of 8 from {MANY_LABELS}"
    return None
