"""What an example is, as frozen data: its length, its order objective, how tokens are masked.
ALBERT §3.1, §4.1."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Int

from litebert.checks import check_choice, check_number, shorten
from litebert.errors import ConfigError
from litebert.packing import num_special
from litebert.recipes.pretrain import Cutting, OneSegment, Order, check_shares

Split = Literal["train", "heldout", "all"]

_MAX_LENGTH = 65_536
"""Longest example that the arithmetic here supports."""


@dataclass(frozen=True, kw_only=True)
class ExampleSpec:
    """How text becomes examples. The defaults are ALBERT's, except for what reveals the order."""

    max_length: int = 512
    """Tokens in an example, at most, with [CLS] and twice [SEP]."""
    short_probability: float = 0.1
    """Probability of a shorter example: 2 to max_length - 3 tokens of text, uniformly."""
    order: Order = "sop"
    """sop: segments swapped in half of the examples; nsp: the second taken from another document in
    half; none: as is."""
    one_segment: OneSegment = "drop"
    """A last sentence left alone in its document: drop it, or, as the reference does, pair it with
    a random segment of another document and label 1. Order none keeps it as [CLS] a [SEP]."""
    cutting: Cutting = "even"
    """even: lengths are drawn first and both segments are cut alike, so that nothing tells the
    order; last: only the end of the last sentence is cut, which reveals the order (a control)."""
    mask_fraction: float = 0.15
    """Fraction of an example's tokens to predict, special tokens counted."""
    mask_share: float = 0.8
    """Fraction of these that become [MASK]."""
    random_share: float = 0.1
    """Fraction of these that become a random token; the rest stays."""
    max_masked: int | None = None
    """Most tokens to predict in an example; none for no bound (the reference's release: 20)."""
    max_ngram: int = 3
    """Longest run of whole words masked together; length n is drawn in proportion to 1/n."""
    random_specials: bool = False
    """Whether a random replacement may be a special token, as in the reference."""
    copies: int | None = None
    """none: every epoch cuts, swaps and masks anew (dynamic). A number: epoch e repeats what epoch
    e mod copies drew (static; the reference's dupe_factor)."""
    heldout_fraction: float = 0.01
    """Fraction of the documents held out for evaluation, the same ones whatever the seed."""

    def __post_init__(self) -> None:
        for name, choices in (("order", Order), ("one_segment", OneSegment), ("cutting", Cutting)):
            check_choice(self, name, get_args(choices))
        bounds: tuple[tuple[str, float, float], ...] = (
            ("max_length", 5, _MAX_LENGTH),
            ("short_probability", 0, 1),
            ("mask_fraction", 0.001, 0.9),
            ("mask_share", 0, 1),
            ("random_share", 0, 1),
            ("max_ngram", 1, 64),
            ("heldout_fraction", 0, 0.5),
        )
        for name, low, high in bounds:
            check_number(self, name, low, high)
        for name in ("max_masked", "copies"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ConfigError(f"{name} is at least 1, or none; got {shorten(number)}")
        check_shares(self.mask_share, self.random_share)

    @property
    def max_text(self) -> int:
        """Tokens of text in an example, at most: all but [CLS] and twice [SEP]."""
        return self.max_length - num_special(True)

    def num_to_mask(self, sizes: Int[np.ndarray, " rows"]) -> Int[np.ndarray, " rows"]:
        """Tokens to predict in rows: round(fraction × size), at least 1, at most max_masked."""
        counts = np.maximum(1, np.rint(sizes * self.mask_fraction).astype(np.int64))
        return counts if self.max_masked is None else np.minimum(counts, self.max_masked)

    def drawn_epoch(self, epoch: int) -> int:
        """The epoch whose draws `epoch` shows: itself, or the copy that it repeats."""
        return epoch if self.copies is None else epoch % self.copies
