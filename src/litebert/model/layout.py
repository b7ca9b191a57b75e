"""How tokens lie in memory: padded rows side by side, or rows end to end without padding; and which
last states are read.
 Packed rows waste no work on padding, and attention finds their bounds itself. Where only some of
the last states are read (the masked tokens and [CLS] in pretraining) the last layer is computed
there alone: exact, and most of a layer is saved.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from litebert.config import EncoderConfig

KeyMask = Bool[Tensor, "batch 1 1 seq"]
Queries = Float[Tensor, "batch queries heads size"]
Keys = Float[Tensor, "batch seq heads size"]
HAS_TRITON = find_spec("triton") is not None
"""It comes with torch's CUDA builds."""
SHORT_KERNELS = True
"""Whether rows of at most 128 tokens have kernels of their own: half the time of flash attention on
an H200."""
LONG_KERNELS = True
"""Whether rows of 129 to 512 tokens have, too: docs/decisions/long_attention.md has their times."""
HOPPER = 9
"""Compute capability of the GPUs that they are made for and were measured on: others may lack the
shared memory."""
WIDE = True
"""Whether they read query, key and value as one tensor, and so give one gradient:
docs/decisions/short_attention.md has both ways' times."""


class Packing(NamedTuple):
    """Rows end to end, as one row of the batch."""

    bounds: Int[Tensor, " rows_and_one"]
    """int32: row r has the tokens from bounds[r] to bounds[r + 1]."""
    longest: int
    """No row has more tokens."""


class Needed(NamedTuple):
    """The tokens whose last states are read."""

    places: Int[Tensor, "batch needed"]
    """Row-major over batch and sequence; of each row as many, or all of them in the one row of a
    packed batch."""
    bounds: Int[Tensor, " rows_and_one"] | None = None
    """Of a packed batch, int32: of row r those from bounds[r] to bounds[r + 1]."""
    longest: int = 0
    """No row of a packed batch has more."""

    def of(self, states: Float[Tensor, "batch seq hidden"]) -> Float[Tensor, "batch needed hidden"]:
        """Their states."""
        return states.flatten(0, 1)[self.places]


def attention(
    query: Queries,
    key: Keys,
    value: Keys,
    among: KeyMask | Packing | None,
    needed: Needed | None,
    *,
    dropout: float,
) -> Queries:
    """Softmax attention of each query over the real tokens of its row."""
    if not isinstance(among, Packing):
        return _dense(query, key, value, among, dropout)
    bounds, longest = _of_queries(among, needed)
    if not query.is_cuda:
        same_row = _rows(bounds, query.shape[1])[:, None] == _rows(among.bounds, key.shape[1])
        return _dense(query, key, value, same_row, dropout)
    query, key, value = (
        part.flatten(0, 1) for part in (query, key, value)
    )  # views; indexing would copy on the way back
    return _packed(
        query, key, value, bounds, among.bounds, longest, among.longest, dropout
    ).unsqueeze(0)


def has_short_kernels() -> bool:
    """Whether the kernels for short rows are for this machine."""
    return (
        SHORT_KERNELS
        and HAS_TRITON
        and torch.cuda.is_available()
        and torch.cuda.get_device_capability()[0] == HOPPER
    )


# what torch.compiler.assume_constant_result does, without importing the whole compiler for it
has_short_kernels._dynamo_marked_constant = True  # type: ignore[attr-defined]


def takes_wide(
    states: Float[Tensor, "batch seq heads size"], among: Packing, *, drops: bool
) -> bool:
    """Whether `wide_attention` is for states like these."""
    return (
        WIDE
        and states.is_cuda
        and has_short_kernels()
        and _kernels(states, among.longest, drops=drops) is not None
    )


def drops_packed(config: EncoderConfig, longest: int, dtype: torch.dtype) -> bool:
    """Whether attention over packed rows no longer than this can drop weights: our own kernels do,
    torch's do not."""
    heads = torch.empty(0, 1, config.hidden_size // config.num_attention_heads, dtype=dtype)
    return has_short_kernels() and _kernels(heads, longest, drops=True) is not None


def wide_attention(
    parts: list[Float[Tensor, "batch _ _ heads size"]],
    among: Packing,
    needed: Needed | None,
    *,
    dropout: float = 0.0,
) -> Float[Tensor, "batch queries heads size"]:
    """The same as `attention` of packed rows on a GPU, by our own kernels, of tensors with several
    maps side by side: query, key and value; or the queries of needed tokens, and keys and values.
    Each has one gradient."""
    bounds, longest = _of_queries(among, needed)
    flat = [part.flatten(0, 1) for part in parts]
    attend = _kernels(flat[0], max(longest, among.longest), drops=dropout > 0)
    assert attend is not None, "takes_wide() says what can be attended to"
    return attend(
        flat, bounds, among.bounds, longest, among.longest, **_drops(flat[0], dropout)
    ).unsqueeze(0)


def _of_queries(among: Packing, needed: Needed | None) -> tuple[Int[Tensor, " rows_and_one"], int]:
    """Their bounds, and the most that a row has."""
    if needed is None:
        return among.bounds, among.longest
    assert needed.bounds is not None, "the needed tokens of a packed batch have bounds"
    return needed.bounds, needed.longest


def _drops(heads: Tensor, dropout: float) -> dict[str, Any]:
    """Which part of the weights to drop, and a seed, by which they are the same forward and
    backward."""
    return (
        {"seed": torch.randint(1 << 62, (), device=heads.device), "dropout": dropout}
        if dropout
        else {}
    )


def _kernels(heads: Tensor, longest: int, *, drops: bool) -> Callable[..., Tensor] | None:
    """Our own attention for heads like these in rows no longer than this, if there is one."""
    from litebert.kernels.attention import short as short_attention

    if not drops and short_attention.supports(heads, longest):
        return short_attention.short_attention
    if LONG_KERNELS:
        from litebert.kernels.attention import long as long_attention

        if long_attention.supports(heads, longest):
            return long_attention.long_attention
    return None


def _packed(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, key_bounds: Tensor, longest: int, longest_key: int,
    dropout: float,
) -> Tensor:  # fmt: skip
    """On a GPU, by kernels of our own where they will do; torch's take rows of any length."""
    attend = (
        _kernels(query, max(longest, longest_key), drops=dropout > 0)
        if has_short_kernels()
        else None
    )
    if attend is not None:
        parts = [part.unsqueeze(1) for part in (query, key, value)]
        return attend(parts, bounds, key_bounds, longest, longest_key, **_drops(query, dropout))
    assert not dropout, "drops_packed() says where packed rows have attention dropout"
    from torch.nn.attention.varlen import varlen_attn

    attended = varlen_attn(query, key, value, bounds, key_bounds, longest, longest_key)
    assert isinstance(attended, Tensor)
    return attended


def _dense(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None, dropout: float
) -> Tensor:
    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=allowed, dropout_p=dropout
    ).transpose(1, 2)


def _rows(bounds: Int[Tensor, " rows_and_one"], tokens: int) -> Int[Tensor, " tokens"]:
    """The row of each token."""
    return torch.searchsorted(
        bounds[1:].contiguous(),
        torch.arange(tokens, dtype=bounds.dtype, device=bounds.device),
        right=True,
    )
