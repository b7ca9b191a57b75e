"""A split as the model reads it: texts as token ids, each once, and rows that point into them;
batches out.

A row is [CLS] a [SEP], or [CLS] a [SEP] b [SEP]. Nothing is copied or padded before a batch asks
for it: RACE's train split, 126 million tokens as rows, is 15 million here.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from litebert.config import HeadKind
from litebert.packing import SpecialIds, frame_rows, ranges, row_bounds, row_lengths
from litebert.shapes import Int, Num
from litebert.tasks.encode.batch import TaskBatch
from litebert.text.tokenizer import Tokenizer
from litebert.text.vocabulary import Ids

Slices = Int[np.ndarray, "rows 2"]
"""From and up to which token of the pool."""
_CHUNK = 8192  # texts at a time: SentencePiece gives an array for each


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """Units to draw from."""

    head: HeadKind
    """What reads them."""
    special_ids: tuple[int, int, int]
    """Of [CLS], [SEP] and padding."""
    pool: Ids
    """Token ids of all texts."""
    first: Slices
    """Where in the pool the first text of each row lies."""
    second: Slices
    """The second; (-1, -1) where there is none."""
    examples: Int[np.ndarray, " units"]
    """Number of the example that each unit belongs to; not falling."""
    sizes: Int[np.ndarray, " units"] | None = None
    """Rows of each unit (choose), or words (tag); None: a unit is a row."""
    positions: Int[np.ndarray, " words"] | None = None
    """Column of each word's first token (tag)."""
    offsets: Int[np.ndarray, "pool 2"] | None = None
    """Where each token of the pool that belongs to a context stands in it, in characters (span)."""
    cores: Int[np.ndarray, "units 2"] | None = None
    """Columns of the tokens that this window answers for, from and up to (span)."""
    targets: Num[np.ndarray, "..."] | None = None
    """See TaskBatch; None where they are not known."""

    def __len__(self) -> int:
        """Number of units."""
        return len(self.examples)

    @cached_property
    def row_lengths(self) -> Int[np.ndarray, " rows"]:
        """Tokens of each row, special tokens among them."""
        return row_lengths(*self._sizes())

    @cached_property
    def row_bounds(self) -> Int[np.ndarray, " units_plus_one"]:
        """The first row of each unit, and the end of the last."""
        sizes = self.sizes if self.head == "choose" else None
        return row_bounds(np.ones_like(self.examples) if sizes is None else sizes)

    @cached_property
    def lengths(self) -> Int[np.ndarray, " units"]:
        """Tokens of each unit's longest row."""
        return (
            np.maximum.reduceat(self.row_lengths, self.row_bounds[:-1])
            if len(self)
            else self.row_lengths
        )

    @property
    def num_rows(self) -> Int[np.ndarray, " units"]:
        """Rows of each unit."""
        return np.diff(self.row_bounds)

    @cached_property
    def fingerprint(self) -> str:
        """A sha256 of everything here: the same where the same units would be read."""
        digest = hashlib.sha256(repr((self.head, self.special_ids)).encode())
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                digest.update(f"{field.name} {value.dtype} {value.shape}".encode())
                digest.update(np.ascontiguousarray(value).data)
        return digest.hexdigest()

    def batch(self, units: Int[np.ndarray, " batch"]) -> TaskBatch:
        """The units side by side."""
        rows = within(self.row_bounds, units) if self.head == "choose" else units
        sizes = self._sizes(rows)
        framed = frame_rows(*sizes, SpecialIds(*self.special_ids))
        starts = np.stack([self.first[rows, 0], self.second[rows, 0]], 1).reshape(-1)
        text = ranges(starts, np.stack(sizes[:2], 1).reshape(-1))
        framed.token_ids[framed.is_text()] = self.pool[text]
        words = targets = None
        parts = units
        if self.positions is not None and self.sizes is not None:
            parts = within(row_bounds(self.sizes), units)
            row = np.repeat(np.arange(len(units)), self.sizes[units])
            words = row * framed.mask.shape[1] + self.positions[parts]
        if self.targets is not None:
            targets = self.targets[parts]
        allowed = None
        if self.cores is not None:  # the second text and [CLS]
            allowed = framed.is_text() & framed.is_second
            allowed[:, 0] = True
        return TaskBatch(
            head=self.head,
            token_ids=framed.token_ids,
            segment_ids=framed.is_second.astype(np.int64),
            mask=None if framed.mask.all() else framed.mask,
            sizes=None if self.sizes is None else self.sizes[units],
            words=words,
            allowed=allowed,
            targets=targets,
        )

    def _sizes(
        self, rows: Int[np.ndarray, " rows"] | slice = slice(None)
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokens of both texts of each row, and whether there is a second."""
        first, second = self.first[rows], self.second[rows]
        return first[:, 1] - first[:, 0], second[:, 1] - second[:, 0], second[:, 0] >= 0


def within(
    bounds: Int[np.ndarray, " units_plus_one"], units: Int[np.ndarray, " batch"]
) -> Int[np.ndarray, " parts"]:
    """The numbers of all rows or words of these units, in the order of the units."""
    return ranges(bounds[units], bounds[units + 1] - bounds[units])


def pool_texts(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[Ids, Slices]:
    """The ids of all different texts, one after another, and where each of `texts` lies: a RACE
    article that has 20 options is tokenized once."""
    different, numbers = distinct(texts)
    chunks = [
        tokenizer.encode_flat(different[at : at + _CHUNK])
        for at in range(0, len(different), _CHUNK)
    ]
    lengths = [np.diff(bounds) for _, bounds in chunks]
    ids = np.concatenate([np.zeros(0, np.int32), *(ids for ids, _ in chunks)], dtype=np.int32)
    return ids, slices_of(np.concatenate([np.zeros(0, np.int64), *lengths]))[numbers]


def distinct(texts: Sequence[str]) -> tuple[list[str], Int[np.ndarray, " texts"]]:
    """The different texts in the order they first come, and the number of each text among them."""
    numbers: dict[str, int] = {}
    number_of = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)
    return list(numbers), number_of


def slices_of(lengths: Int[np.ndarray, " parts"]) -> Slices:
    """Where parts of these lengths lie, one after another."""
    bounds = row_bounds(lengths)
    return np.stack([bounds[:-1], bounds[1:]], 1)
