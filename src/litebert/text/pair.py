"""Token ids of one or two texts in, the model's input out: [CLS] a [SEP] or [CLS] a [SEP] b [SEP],
cut to a length.

Segment 0 is [CLS] a [SEP], segment 1 is b [SEP]. (ALBERT §3.1, as in BERT)
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Int

from litebert.errors import ConfigError, DataError

Offsets = Int[np.ndarray, "tokens 2"]
_NOWHERE: Offsets = np.zeros((1, 2), dtype=np.int32)

Truncate = Literal["error", "longest", "first", "second"]
"""Which text loses tokens from its end: none, the longer one at each token (ties cut the second),
always a, always b."""


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """One text as tokens."""

    ids: list[int]
    offsets: Offsets
    """For each token where it starts and ends in the raw text, in characters."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """One input of the model, without padding."""

    token_ids: list[int]
    segment_ids: list[int]
    """0 for the first text and its special tokens, 1 for the second."""
    offsets: Offsets | None = None
    """Where each token stands in its own raw text, in characters; (0, 0) for special tokens."""


def check_limits(max_length: int | None, truncate: str, *, pair: bool) -> None:
    """Refuse a length or rule that can never work."""
    if truncate not in get_args(Truncate):
        raise ConfigError(
            f"truncate is {truncate!r}, expected one of {', '.join(get_args(Truncate))}"
        )
    if truncate == "second" and not pair:
        raise ConfigError(
            'truncate is "second", but there is only one text; use "first" or "longest"'
        )
    room = 3 if pair else 2
    if max_length is not None and max_length <= room:
        raise ConfigError(
            f"max_length is {max_length}, but {room} special tokens alone need more; raise it"
        )


def lengths_after_truncation(
    length_a: int, length_b: int | None, *, max_length: int | None, truncate: Truncate
) -> tuple[int, int]:
    """How many tokens of each text stay: lengths_after_truncation(9, 4, max_length=11,
    truncate="longest") -> (4, 4)."""
    special, second = (2, 0) if length_b is None else (3, length_b)
    if max_length is None or length_a + second + special <= max_length:
        return length_a, second
    total, room = length_a + second + special, max_length - special
    if truncate == "longest":
        # Pop from the longer until it fits, as the reference; in closed form, so that a whole book
        # costs nothing.
        kept_a = max(min(length_a, room - second), min(length_a, (room + 1) // 2))
        return kept_a, min(second, room - kept_a)
    if truncate == "first" and second <= room:
        return room - second, second
    if truncate == "second" and length_a <= room:
        return length_a, room - length_a
    noun = "text has" if length_b is None else "pair has"
    if truncate == "error":
        remedy = 'shorten it, or pass truncate="longest"'
    else:
        remedy = f'cutting the {truncate} text alone does not suffice, pass truncate="longest"'
    raise DataError(
        f"{noun} {total} tokens with its special tokens, the model reads at most {max_length}; "
        f"{remedy}"
    )


def build(
    a: Tokens, b: Tokens | None, *, cls_id: int, sep_id: int, kept: tuple[int, int], offsets: bool
) -> Example:
    """Put the special tokens around `kept` tokens of each text."""
    kept_a, kept_b = kept
    token_ids = [cls_id, *a.ids[:kept_a], sep_id]
    segment_ids = [0] * len(token_ids)
    spans = [_NOWHERE, a.offsets[:kept_a], _NOWHERE]
    if b is not None:
        token_ids += [*b.ids[:kept_b], sep_id]
        segment_ids += [1] * (kept_b + 1)
        spans += [b.offsets[:kept_b], _NOWHERE]
    return Example(
        token_ids=token_ids,
        segment_ids=segment_ids,
        offsets=np.concatenate(spans) if offsets else None,
    )
