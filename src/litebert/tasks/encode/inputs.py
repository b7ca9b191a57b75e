"""A split as the model reads it: texts as token ids, each once, and rows that point into them;
batches out.

A row is [CLS] a [SEP], or [CLS] a [SEP] b [SEP]. Nothing is copied or padded before a batch asks
for it: RACE's train split, 126 million tokens as rows, is 15 million here.

A unit is what is drawn and never divided: a text or pair, a question with all its options, a
window. A TaskBatch is some units side by side, and makes the arrays that travel to a device. Only
the encoder reads packed rows. Heads read [CLS] of each row, each word's first token, or (span) rows
side by side again, which costs one copy of the states. With `bucketed`, tokens, rows and words are
rounded up to few numbers, so that compiled code and CUDA graphs see few shapes; padding rows have
one token each and no target.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from litebert.config import POOLED_HEADS, HeadKind
from litebert.packing import (
    IGNORED,
    HostBatch,
    SpecialIds,
    bucket,
    bucket_step,
    frame_rows,
    pad_to,
    padding_rows,
    ranges,
    round_up,
    row_bounds,
    row_bucket,
    row_lengths,
    row_positions,
    unpack_indices,
)
from litebert.shapes import Bool, Int, Num
from litebert.text.tokenizer import Tokenizer
from litebert.text.vocabulary import Ids

Slices = Int[np.ndarray, "rows 2"]
"""From and up to which token of the pool."""
_CHUNK = 8192  # texts at a time: SentencePiece gives an array for each
_POOL = 32
"""Batches whose units are sorted by length together: enough to leave little padding, few enough to
stay mixed."""
_COLUMNS = 64  # unpacked rows are padded to a multiple of this


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """Units to draw from."""

    head: HeadKind
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

    def batch(self, units: Int[np.ndarray, " batch"]) -> "TaskBatch":
        """The units side by side."""
        rows = within(self.row_bounds, units) if self.head == "choose" else units
        sizes = self._sizes(rows)
        framed = frame_rows(*sizes, SpecialIds(*self.special_ids))
        starts = np.stack([self.first[rows, 0], self.second[rows, 0]], 1).reshape(-1)
        text = ranges(starts, np.stack(sizes[:2], 1).reshape(-1))
        framed.token_ids[framed.is_text()] = self.pool[text]
        options = words = targets = allowed = None
        parts = units
        if self.head == "choose" and self.sizes is not None:
            counts = self.sizes[units]
            option = np.arange(int(counts.max(initial=1)))
            numbers = row_bounds(counts)[:-1, None] + option
            options = np.where(option < counts[:, None], numbers, -1)
        if self.positions is not None and self.sizes is not None:
            parts = within(row_bounds(self.sizes), units)
            row = np.repeat(np.arange(len(units)), self.sizes[units])
            words = row * framed.mask.shape[1] + self.positions[parts]
        if self.targets is not None:
            targets = self.targets[parts]
        if self.cores is not None:  # the second text and [CLS]
            allowed = framed.is_text() & framed.is_second
            allowed[:, 0] = True
        return TaskBatch(
            inputs=self,
            units=units,
            token_ids=framed.token_ids,
            segment_ids=framed.is_second.astype(np.int64),
            mask=None if framed.mask.all() else framed.mask,
            options=options,
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


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskBatch:
    """Units padded to the longest row."""

    inputs: Inputs
    """What it was drawn from."""
    units: Int[np.ndarray, " units"]
    token_ids: Int[np.ndarray, "rows seq"]
    segment_ids: Int[np.ndarray, "rows seq"]
    mask: Bool[np.ndarray, "rows seq"] | None
    """True for a real token; None where no row is padded, so that attention needs no mask."""
    options: Int[np.ndarray, "units most"] | None = None
    """The row of each option of a unit; -1 where it has fewer (choose). Elsewhere a unit is a
    row."""
    words: Int[np.ndarray, " words"] | None = None
    """Row × seq + column of each word's first token (tag)."""
    allowed: Bool[np.ndarray, "rows seq"] | None = None
    """Where an answer may start or end: in the context, and at [CLS], which stands for no answer
    (span, joint_span)."""
    targets: Num[np.ndarray, "..."] | None = None
    """What is to be predicted, None where it is unknown. classify: number of the label; multilabel:
    0 or 1 for each label, float32; regress: the number, float32; choose: number of the option;
    span: columns of the first and last token, both 0 for no answer; tag: number of each word's
    label."""
    is_spare: bool = False
    """Whether a rank without units of its own reads these along; they count for nothing."""

    def __len__(self) -> int:
        """Number of units."""
        return len(self.units)

    @property
    def num_targets(self) -> int:
        """What the loss is a sum over: units, or words (tag)."""
        return len(self) if self.words is None else len(self.words)

    @property
    def num_tokens(self) -> int:
        """Real tokens, without padding."""
        return int(self.token_ids.size if self.mask is None else self.mask.sum())

    def rows(self, start: int, stop: int) -> "TaskBatch":
        """Units start … stop - 1 as a batch of their own, padded to their own longest row: a
        microbatch; this batch itself where it is all."""
        if start == 0 and stop >= len(self):
            return self
        return replace(self.inputs.batch(self.units[start:stop]), is_spare=self.is_spare)

    def padded(self) -> HostBatch:
        """Rows side by side."""
        rows, seq = self.token_ids.shape
        arrays = {"token_ids": self.token_ids, "segment_ids": self.segment_ids}
        if self.mask is not None:
            arrays["mask"] = self.mask
        if self.inputs.head in POOLED_HEADS:
            arrays["needed"] = (np.arange(rows) * seq)[:, None]
        for name in ("options", "words", "allowed", "targets"):
            if getattr(self, name) is not None:
                arrays[name] = getattr(self, name)
        return HostBatch(arrays=arrays, longest=seq, most_needed=1, head=self.inputs.head)

    def packed(self, *, longest: int, bucketed: bool = False, most_tokens: int = 0) -> HostBatch:
        """Rows end to end. `longest` and `most_tokens` hold for all batches of a run, so that
        shapes do not follow the batch; `bucketed` rounds them up. Spare units have no targets."""
        seq = self.token_ids.shape[1]
        mask = np.ones(self.token_ids.shape, bool) if self.mask is None else self.mask
        lengths = mask.sum(1)
        assert lengths.max(initial=0) <= longest, f"a row has more than {longest} tokens"
        units, rows = len(self), len(lengths)
        if bucketed:
            units, rows = row_bucket(units), row_bucket(rows)
            lengths = pad_to(lengths, rows, 1)  # attention over no token would be NaN
            tokens = bucket(int(lengths.sum()))
            most = bucket_step(max(most_tokens, tokens))
            padding = padding_rows(tokens - int(lengths.sum()), longest=longest, most=most)
            lengths = np.append(lengths, padding)
        bounds = row_bounds(lengths)
        arrays = {
            "positions": row_positions(bounds)[None],
            "bounds": bounds.astype(np.int32),
            "token_ids": pad_to(self.token_ids[mask], int(bounds[-1]), 0)[None],
            "segment_ids": pad_to(self.segment_ids[mask], int(bounds[-1]), 0)[None],
        }
        if self.inputs.head in POOLED_HEADS:
            arrays["needed"] = bounds[None, :rows]
            arrays["needed_bounds"] = np.minimum(np.arange(len(bounds)), rows).astype(np.int32)
        if self.options is not None:
            arrays["options"] = pad_to(self.options, units, -1)
        elif self.words is not None:
            row, column = np.divmod(self.words, seq)
            units = bucket(len(row)) if bucketed else len(row)
            arrays["words"] = pad_to(bounds[row] + column, units, 0)
        elif self.allowed is not None:
            width = min(round_up(seq, _COLUMNS), longest) if bucketed else seq
            arrays["columns"] = unpack_indices(bounds[: rows + 1], width)
            arrays["allowed"] = np.zeros((rows, width), bool)
            arrays["allowed"][: len(mask), :seq] = self.allowed
        if self.targets is not None:
            empty = 0 if self.targets.dtype == np.float32 else IGNORED
            targets = np.full_like(self.targets, empty) if self.is_spare else self.targets
            arrays["targets"] = pad_to(targets, units, empty)
            if bucketed:
                num_real = 0 if self.is_spare else len(targets)
                arrays["is_real"] = (np.arange(units) < num_real).astype(np.int64)
        return HostBatch(arrays=arrays, longest=longest, most_needed=1, head=self.inputs.head)


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


def epoch_batches(
    lengths: Int[np.ndarray, " units"], batch_size: int, *, seed: int, epoch: int
) -> list[Int[np.ndarray, " _batch"]]:
    """Every unit once: shuffled, sorted by length inside pools, cut into batches, and the batches
    shuffled."""
    draw = np.random.default_rng((seed, epoch))
    order = draw.permutation(len(lengths))
    pools = [order[at : at + _POOL * batch_size] for at in range(0, len(order), _POOL * batch_size)]
    ranked = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
    batches = [ranked[at : at + batch_size] for at in range(0, len(ranked), batch_size)]
    return [batches[number] for number in draw.permutation(len(batches))]
