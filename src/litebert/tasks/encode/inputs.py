"""A split as the model reads it: texts as token ids, each once, and rows that point into them;
batches out.
 A row is [CLS] a [SEP], or [CLS] a [SEP] b [SEP]. Nothing is copied or padded before a batch asks
for it: RACE's train split, 126 million tokens as rows, is 15 million here.
"""

import hashlib
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int, Num

from litebert.config import HeadKind
from litebert.tasks.encode.batch import TaskBatch
from litebert.tasks.encode.pool import Slices
from litebert.text.pieces import Ids


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
    """Column of each word's first piece (tag)."""
    offsets: Int[np.ndarray, "tokens 2"] | None = None
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
        is_pair = self.second[:, 0] >= 0
        return np.asarray(
            2
            + self.first[:, 1]
            - self.first[:, 0]
            + is_pair
            + self.second[:, 1]
            - self.second[:, 0]
        )

    @cached_property
    def row_bounds(self) -> Int[np.ndarray, " units_plus_one"]:
        """The first row of each unit, and the end of the last."""
        sizes = self.sizes if self.head == "choose" else None
        return np.append(0, np.cumsum(np.ones_like(self.examples) if sizes is None else sizes))

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
        rows = spread(self.row_bounds, units) if self.head == "choose" else units
        first, second, lengths = self.first[rows], self.second[rows], self.row_lengths[rows]
        width = int(lengths.max(initial=1))
        column = np.arange(width)
        # [CLS] stands at 0, the first text from 1, a [SEP] at `middle`, the second text after it, a
        # [SEP] at the end
        middle = (1 + first[:, 1] - first[:, 0])[:, None]
        in_second = column > middle
        at = np.where(in_second, second[:, :1] + column - middle - 1, first[:, :1] + column - 1)
        cls_id, sep_id, pad_id = self.special_ids
        ends = (lengths - 1)[:, None]
        special = (column == 0) | (column == middle) | (column >= ends)
        at[special] = 0
        token_ids = (
            self.pool[at].astype(np.int64) if self.pool.size else np.zeros(at.shape, np.int64)
        )
        token_ids[special] = sep_id
        token_ids[:, 0] = cls_id
        mask = column <= ends
        token_ids[~mask] = pad_id
        is_full = bool(mask.all())
        positions = parts = None
        if self.positions is not None and self.sizes is not None:
            parts = spread(np.append(0, np.cumsum(self.sizes)), units)
            positions = self.positions[parts] + np.repeat(
                np.arange(len(units)) * width, self.sizes[units]
            )
        allowed = (
            ((in_second & (column < ends)) | (column == 0)) if self.cores is not None else None
        )
        targets = None if self.targets is None else self.targets[units if parts is None else parts]
        return TaskBatch(
            head=self.head,
            token_ids=torch.from_numpy(token_ids),
            segment_ids=torch.from_numpy((in_second & mask).astype(np.int64)),
            mask=None if is_full else torch.from_numpy(mask),
            sizes=None if self.sizes is None else torch.from_numpy(self.sizes[units]),
            positions=None if positions is None else torch.from_numpy(positions),
            allowed=None if allowed is None else torch.from_numpy(allowed),
            targets=None if targets is None else torch.from_numpy(targets),
        )


def spread(
    bounds: Int[np.ndarray, " units_plus_one"], units: Int[np.ndarray, " batch"]
) -> Int[np.ndarray, " parts"]:
    """The numbers of all parts of these units, in the order of the units."""
    sizes = bounds[units + 1] - bounds[units]
    starts = np.cumsum(sizes) - sizes
    return np.asarray(np.arange(sizes.sum()) + np.repeat(bounds[units] - starts, sizes))
