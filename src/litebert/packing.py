"""Rows of tokens: assembly, truncation, packing, and the few shapes that batches come in.

In: lengths and ids of texts. Out: `[CLS] a [SEP] b [SEP]`, where each row lies when rows stand end
to end, and which tokens the heads read. Shared by text, data, tasks, model and infer. numpy only.

    rows        [CLS] a [SEP] b [SEP]        [CLS] c [SEP]
    packed      ids of all rows, one after another, padding only at the very end
    bounds      0, 5, 8, …                   row r has the tokens bounds[r] … bounds[r + 1] - 1
    positions   0 1 2 3 4  0 1 2  …          restart in every row
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from litebert.checks import shorten
from litebert.config import HeadKind
from litebert.errors import ConfigError, DataError
from litebert.shapes import Bool, Int, UInt8

Lengths = Int[np.ndarray, " rows"]
Bounds = Int[np.ndarray, " rows_plus_one"]
Truncate = Literal["error", "longest", "first", "second"]
"""Which text loses tokens from its end: none, the longer one at each token (ties cut the second),
always a, always b."""

IGNORED = -100
"""The label that cross-entropy ignores."""
PACKED_MULTIPLE = 1024
"""A packed pretraining batch is padded to a multiple of this many tokens."""
_LEAST_TOKENS, _LEAST_ROWS = 128, 8
_ALIGNMENT = 16  # bytes; GPU kernels load aligned arrays faster


# ---- one row: [CLS] a [SEP] or [CLS] a [SEP] b [SEP] (ALBERT §3.1, as in BERT)


class SpecialIds(NamedTuple):
    """Token ids that frame a row."""

    cls: int
    sep: int
    pad: int


def num_special(is_pair: bool) -> int:
    """[CLS], and a [SEP] after each text."""
    return 3 if is_pair else 2


def assemble(
    a: list[int], b: list[int] | None = None, *, cls_id: int, sep_id: int
) -> tuple[list[int], list[int]]:
    """Token ids and segment ids of one row: segment 0 is [CLS] a [SEP], segment 1 is b [SEP]."""
    first, second = [cls_id, *a, sep_id], [] if b is None else [*b, sep_id]
    return first + second, [0] * len(first) + [1] * len(second)


class FramedRows(NamedTuple):
    """Padded rows with their special tokens, before the texts are filled in."""

    token_ids: Int[np.ndarray, "rows seq"]
    is_second: Bool[np.ndarray, "rows seq"]
    """True for b [SEP]."""
    mask: Bool[np.ndarray, "rows seq"]
    """True for a real token."""
    middle: Lengths
    """Column of the [SEP] after a."""
    last: Lengths
    """Column of the last [SEP]."""

    def is_text(self) -> Bool[np.ndarray, "rows seq"]:
        """True where a token of a or b goes."""
        rows, is_text = np.arange(len(self.mask)), self.mask.copy()
        for column in (0, self.middle, self.last):
            is_text[rows, column] = False
        return is_text


def frame_rows(
    a_sizes: Lengths,
    b_sizes: Lengths,
    is_pair: Bool[np.ndarray, " rows"],
    special: SpecialIds,
    *,
    width: int | None = None,
    dtype: type[np.signedinteger[Any]] = np.int64,
) -> FramedRows:
    """Rows for texts of these sizes: a begins at column 1, b at column a_size + 2."""
    lengths = row_lengths(a_sizes, b_sizes, is_pair)
    middle, last = a_sizes + 1, lengths - 1
    width = int(lengths.max(initial=1)) if width is None else width
    rows, column = np.arange(len(lengths)), np.arange(width)
    token_ids = np.full((len(lengths), width), special.pad, dtype)
    token_ids[:, 0] = special.cls
    token_ids[rows, middle] = token_ids[rows, last] = special.sep
    mask = column < lengths[:, None]
    return FramedRows(token_ids, mask & (column > middle[:, None]), mask, middle, last)


def row_lengths(a_sizes: Lengths, b_sizes: Lengths, is_pair: Bool[np.ndarray, " rows"]) -> Lengths:
    """Tokens of each row, special tokens included."""
    lengths: Lengths = a_sizes + b_sizes + num_special(False) + is_pair
    return lengths


# ---- truncation


def keep_longest_first(
    a_sizes: Lengths, b_sizes: Lengths, room: int | Lengths
) -> tuple[Lengths, Lengths]:
    """Tokens that stay of each pair when the longer text loses its last token until both fit."""
    # In closed form, so that a book costs no more than a sentence.
    a_kept = np.maximum(np.minimum(a_sizes, room - b_sizes), np.minimum(a_sizes, (room + 1) // 2))
    return a_kept, np.minimum(b_sizes, room - a_kept)


def truncated_lengths(
    a_sizes: Lengths, b_sizes: Lengths | None, *, max_length: int | None, truncate: Truncate | str
) -> tuple[Lengths, Lengths]:
    """Tokens that stay of each text or pair; DataError for one that cannot be made to fit. Sizes 9
    and 4 in 11 tokens: "longest" -> 4, 4; "first" -> 4, 4; "second" does not fit."""
    special = num_special(b_sizes is not None)
    sizes = (a_sizes, np.zeros_like(a_sizes) if b_sizes is None else b_sizes)
    if truncate not in get_args(Truncate):
        raise ConfigError(
            f"truncate is {shorten(truncate)}, expected one of {', '.join(get_args(Truncate))}"
        )
    if truncate == "second" and b_sizes is None:
        raise ConfigError(
            'truncate is "second", but there is only one text; use "first" or "longest"'
        )
    if max_length is None:
        return sizes
    if max_length <= special:
        raise ConfigError(
            f"max_length is {max_length}, but {special} special tokens alone need more; raise it"
        )
    room = max_length - special
    a_kept, b_kept = sizes
    if truncate == "longest":
        a_kept, b_kept = keep_longest_first(*sizes, room)
    elif truncate == "first":
        a_kept = np.minimum(a_kept, np.maximum(room - b_kept, 0))
    elif truncate == "second":
        b_kept = np.minimum(b_kept, np.maximum(room - a_kept, 0))
    too_long = np.flatnonzero(a_kept + b_kept > room)
    if too_long.size:
        tokens = int((sizes[0] + sizes[1])[too_long[0]]) + special
        remedy = 'shorten it, or pass truncate="longest"'
        if truncate != "error":
            remedy = f'cutting the {truncate} text alone does not suffice, pass truncate="longest"'
        raise DataError(
            f"{'text' if b_sizes is None else 'pair'} has {tokens} tokens with its special tokens, "
            f"the model reads at most {max_length}; {remedy}"
        )
    return a_kept, b_kept


# ---- rows end to end


def row_bounds(lengths: Lengths) -> Bounds:
    """Where each row begins and the last one ends: row_bounds([2, 3]) -> [0, 2, 5]."""
    return np.append(0, np.cumsum(lengths, dtype=np.int64))


def row_positions(bounds: Bounds) -> Int[np.ndarray, " tokens"]:
    """The place of each token in its own row: row_positions([0, 2, 5]) -> [0, 1, 0, 1, 2]."""
    positions: Int[np.ndarray, " tokens"] = np.arange(bounds[-1]) - np.repeat(
        bounds[:-1], np.diff(bounds)
    )
    return positions


def ranges(
    starts: Int[np.ndarray, " n"], lengths: Int[np.ndarray, " n"]
) -> Int[np.ndarray, " total"]:
    """Ranges, one after another: ranges([5, 0], [2, 1]) -> [5, 6, 0]."""
    numbers: Int[np.ndarray, " total"] = np.repeat(starts, lengths) + row_positions(
        row_bounds(lengths)
    )
    return numbers


def unpack_indices(bounds: Bounds, width: int) -> Int[np.ndarray, "rows seq"]:
    """The token in each column of rows laid side by side; behind a row's end, its last token."""
    columns = np.minimum(np.arange(width), np.diff(bounds)[:, None] - 1)
    indices: Int[np.ndarray, "rows seq"] = bounds[:-1, None] + columns
    return indices


def padding_rows(missing: int, *, longest: int, most: int) -> Lengths:
    """Lengths of rows that add `missing` tokens, none longer than the others: always as many rows,
    enough for `most` tokens."""
    return np.diff(np.minimum(np.arange(-(-most // longest) + 1) * longest, missing))


def needed_positions(
    starts: Int[np.ndarray, " rows"],
    row: Int[np.ndarray, " chosen"],
    column: Int[np.ndarray, " chosen"],
    *,
    most: int | None = None,
) -> tuple[Int[np.ndarray, "rows needed"], Int[np.ndarray, " chosen"]]:
    """Of each row, its first token and the chosen ones, then its first again until every row has
    `most` + 1; and where the chosen ones stand among these. `row` ascends."""
    counts = np.bincount(row, minlength=len(starts))
    width = 1 + int(counts.max(initial=0) if most is None else most)
    assert counts.max(initial=0) < width, "more masked positions than the recipe allows"
    chosen = row * width + 1 + row_positions(row_bounds(counts))
    needed = np.repeat(starts[:, None], width, 1)
    needed.reshape(-1)[chosen] = starts[row] + column
    return needed, chosen


# ---- few shapes


def padding_multiple(hidden_size: int) -> int:
    """What packed tokens are padded to a multiple of. Up to albert-base's width few shapes save
    more than padding costs; in wider states it costs more, 3 % of a step of albert-xxlarge."""
    finer: int = 2 ** int(math.log2(PACKED_MULTIPLE * 768 / hidden_size))
    return min(max(finer, 256), PACKED_MULTIPLE)


def round_up(number: int, multiple: int) -> int:
    """round_up(9, 8) -> 16."""
    return -(-number // multiple) * multiple


def bucket_step(tokens: int) -> int:
    """1/8 to 1/16 of the tokens, a power of two, at least 128: bucket_step(5000) -> 512."""
    return max(_LEAST_TOKENS, 1 << (max(tokens, 1) - 1).bit_length() >> 4)


def bucket(tokens: int) -> int:
    """A number of tokens rounded up to one of few: bucket(900) -> 1024, bucket(5000) -> 5120. At
    most an eighth is padding, or 127 tokens."""
    return max(round_up(tokens, bucket_step(tokens)), bucket_step(tokens))


def row_bucket(rows: int) -> int:
    """The next power of two, at least 8."""
    return max(1 << (rows - 1).bit_length(), _LEAST_ROWS)


def length_bucket(longest: int, limit: int) -> int:
    """The next power of two for the longest row, at most what the model reads."""
    return max(longest, min(row_bucket(longest), limit))


def pad_to(array: np.ndarray, size: int, value: int) -> np.ndarray:
    """`array` with `value` after it, `size` entries in all."""
    padding = np.full((size - len(array), *array.shape[1:]), value, array.dtype)
    return np.concatenate([array, padding])


def budget_batches(
    lengths: Lengths, *, tokens: int, sizes: Lengths | None = None
) -> list[Int[np.ndarray, " batch"]]:
    """Every unit once, the longest first, at most `tokens` padded tokens in a batch, or one unit;
    `sizes` are the rows of each unit, one where None."""
    order = np.argsort(lengths, kind="stable")
    rows = np.ones_like(order) if sizes is None else sizes[order]
    cuts, num_rows = [0], 0
    units = zip(lengths[order].tolist(), rows.tolist(), strict=True)
    for number, (length, size) in enumerate(units):
        if num_rows and (num_rows + size) * length > tokens:
            cuts.append(number)
            num_rows = 0
        num_rows += size
    batches = np.split(order, cuts[1:])
    return [batch for batch in reversed(batches) if batch.size]


# ---- what travels to a device


@dataclass(frozen=True, kw_only=True, eq=False)
class HostBatch:
    """Arrays that a model and its heads read, by name, each with the dtype that it has on the
    device. `model.batch.DeviceBatch` says what each name means."""

    arrays: Mapping[str, np.ndarray]
    longest: int
    """No row has more tokens."""
    most_needed: int = 0
    """No row has more needed tokens."""
    head: HeadKind | None = None
    """The head that reads the batch; None in pretraining, which has two."""

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """What a CUDA graph is recorded for."""
        return (*(array.shape for array in self.arrays.values()), (self.longest,))

    @property
    def is_static(self) -> bool:
        """Whether a CUDA graph can read it: a padded batch comes with a mask or without."""
        return "mask" not in self.arrays

    @cached_property
    def slices(self) -> dict[str, slice]:
        """The bytes of each array in `flat`."""
        slices, start = {}, 0
        for name, array in self.arrays.items():
            slices[name] = slice(start, start + array.nbytes)
            start += round_up(array.nbytes, _ALIGNMENT)
        return slices

    def flat(self) -> UInt8[np.ndarray, " bytes"]:
        """All arrays in one buffer, which is one copy to a device."""
        buffer = np.zeros(sum(round_up(a.nbytes, _ALIGNMENT) for a in self.arrays.values()), "u1")
        for rows, array in zip(self.slices.values(), self.arrays.values(), strict=True):
            buffer[rows] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return buffer
