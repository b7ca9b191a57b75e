"""A resumable stream of batches. In: shards, a spec, a seed. Out: any batch of any epoch, and an iterator over them.

    stream = Stream.open("data/mine", ExampleSpec(max_length=512), seed=1)
    batch = stream.batch(epoch=0, start=0, size=64)              # pure: the same always and everywhere
    for batch in stream.read(64, position=Position(0, 6400), workers=4):
        ...                                                      # and reader.position is where to go on
    longer = stream.at(max_length=512)                           # short first, then long: begin it at a new epoch
    for batch in Stream.open("data/mine", spec, split="heldout").once(64):
        ...                                                      # each held-out example once, the last batch smaller

The epochs follow each other without a seam: a batch that begins near the end of one ends in the next. A batch is made
from (seed, epoch, index) alone; ranks take slices of it, so one rank and two see the same examples in the same order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from litebert.data.batch import Batch, padded_width
from litebert.data.masking import Rows, Vocabulary, hide
from litebert.data.pairs import Pairs, make_pairs
from litebert.data.plan import Plan, plan_epoch
from litebert.data.random import Purpose, keys, seeded
from litebert.data.shards import TOKENIZER_FOLDER, Shard, Shards
from litebert.data.spec import ExampleSpec, Split
from litebert.data.texts import Texts
from litebert.errors import DataError

if TYPE_CHECKING:
    from litebert.data.reader import Reader

PLANS = 2
"""Plans kept: of the epoch being read and of the one it runs into."""


@dataclass(frozen=True, order=True)
class Position:
    """Where a stream stands: the next example is number `index` in the order of `epoch`."""

    epoch: int = 0
    index: int = 0

    def after(self, count: int) -> "Position":
        """`count` examples on; `Stream.locate` then finds the epoch that this is in."""
        return Position(self.epoch, self.index + count)


class Stream:
    """Masked, ordered examples from shards."""

    def __init__(
        self,
        shards: Sequence[Shard],
        vocabulary: Vocabulary,
        spec: ExampleSpec,
        *,
        seed: int = 0,
        split: Split = "train",
        pad_multiple: int | None = None,
        folder: Path | None = None,
    ) -> None:
        """pad_multiple: none pads to max_length; a number, to the longest row rounded up to a multiple of it."""
        self.shards, self.vocabulary, self.spec = shards, vocabulary, spec
        self.seed, self.split, self.pad_multiple, self.folder = seed, split, pad_multiple, folder
        self.texts = Texts(shards, spec.max_text)
        self._plans: dict[int, Plan] = {}

    @classmethod
    def open(
        cls,
        folder: str | Path,
        spec: ExampleSpec,
        *,
        seed: int = 0,
        split: Split = "train",
        pad_multiple: int | None = None,
    ) -> "Stream":
        """Read the folder that `litebert data build` wrote, with the tokenizer in it."""
        shards = Shards.open(folder)
        arrays = [shards.arrays(number) for number in range(len(shards))]
        vocabulary = Vocabulary.load(shards.tokenizer_folder, random_specials=spec.random_specials)
        return cls(arrays, vocabulary, spec, seed=seed, split=split, pad_multiple=pad_multiple, folder=Path(folder).resolve())

    def at(self, max_length: int) -> "Stream":
        """The same text at another length. Its epochs have other examples, so begin it at an epoch's start."""
        return Stream(
            self.shards,
            self.vocabulary,
            replace(self.spec, max_length=max_length),
            seed=self.seed,
            split=self.split,
            pad_multiple=self.pad_multiple,
            folder=self.folder,
        )

    @property
    def tokenizer_folder(self) -> Path:
        """Where the shards' own tokenizer is."""
        assert self.folder is not None, "a stream over arrays has no folder"
        return self.folder / TOKENIZER_FOLDER

    def plan(self, epoch: int) -> Plan:
        """Which examples the epoch has; computed once, the latest two are kept."""
        if epoch not in self._plans:
            plan = plan_epoch(self.texts, self.spec, seed=self.seed, epoch=epoch, split=self.split)
            self._check(plan)
            while len(self._plans) >= PLANS:
                del self._plans[min(self._plans, key=lambda known: (known >= epoch, known))]
            self._plans[epoch] = plan
        return self._plans[epoch]

    def num_examples(self, epoch: int = 0) -> int:
        return len(self.plan(epoch))

    def locate(self, position: Position) -> Position:
        """The same place with the index inside its epoch: past the end it is in a later one."""
        epoch, index = position.epoch, position.index
        while index >= (count := self.num_examples(epoch)):
            epoch, index = epoch + 1, index - count
        return Position(epoch, index)

    def batch(self, epoch: int, start: int, size: int) -> Batch:
        """`size` examples from place `start` of the epoch's order on, going on into the next epochs."""
        parts = []
        while size > 0:
            here = self.locate(Position(epoch, start))
            epoch, start = here.epoch, here.index
            count = min(size, self.num_examples(epoch) - start)
            parts.append((epoch, self.plan(epoch).order.span(start, start + count)))
            start, size = start + count, size - count
        return self._build(parts)

    def examples(self, epoch: int, numbers: Sequence[int]) -> Batch:
        """Examples by their number in the epoch's plan: what `Batch.indices` holds."""
        return self._build([(epoch, np.asarray(numbers, np.int64))])

    def once(self, batch_size: int, *, epoch: int = 0) -> Iterator[Batch]:
        """Every example of one epoch once; the last batch may be smaller."""
        count = self.num_examples(epoch)
        for start in range(0, count, batch_size):
            yield self.batch(epoch, start, min(batch_size, count - start))

    def read(
        self,
        batch_size: int,
        position: Position = Position(),  # noqa: B008 (immutable)
        *,
        rank: int = 0,
        num_ranks: int = 1,
        workers: int = 0,
    ) -> "Reader":
        """Batches without end from `position` on; this rank's slice of each global batch of `batch_size` rows."""
        from litebert.data.reader import Reader

        return Reader(self, batch_size, position, rank=rank, num_ranks=num_ranks, workers=workers)

    def _build(self, parts: list[tuple[int, Int[np.ndarray, " n"]]]) -> Batch:
        """Examples of several epochs, made together."""
        made = [self._pairs_and_keys(epoch, numbers) for epoch, numbers in parts]
        pairs = Pairs(*(np.concatenate(columns) for columns in zip(*(one[0] for one in made), strict=True)))
        choose_keys, replace_keys = (np.concatenate([one[place] for one in made]) for place in (1, 2))
        rows, segment_ids, mask = self._assemble(pairs)
        hidden = hide(self.spec, self.vocabulary, rows, choose_keys, replace_keys)
        return Batch(
            token_ids=hidden.token_ids,
            segment_ids=segment_ids,
            mask=mask,
            masked_positions=hidden.masked_positions,
            masked_labels=hidden.masked_labels,
            order_labels=pairs.labels,
            indices=np.concatenate([numbers for _, numbers in parts]),
        )

    def _pairs_and_keys(self, epoch: int, numbers: Int[np.ndarray, " n"]) -> tuple[Pairs, np.ndarray, np.ndarray]:
        plan, drawn = self.plan(epoch), self.spec.drawn_epoch(epoch)
        starts = plan.starts[numbers]
        choose = keys(seeded(self.seed, Purpose.CHOOSE, drawn), starts)
        replace_ = keys(seeded(self.seed, Purpose.REPLACE, drawn), starts)
        return make_pairs(self.texts, self.spec, plan, numbers, seed=self.seed), choose, replace_

    def _assemble(self, pairs: Pairs) -> tuple[Rows, np.ndarray, np.ndarray]:
        """[CLS] a [SEP] b [SEP] and padding, not yet masked."""
        shape = Rows(np.zeros((0, 0), np.int32), pairs.a_size, pairs.b_size)
        sizes, middle = shape.sizes, pairs.a_size + 1
        width = padded_width(int(sizes.max()), max_length=self.spec.max_length, pad_multiple=self.pad_multiple)
        line = np.arange(len(sizes))
        token_ids = np.full((len(sizes), width), self.vocabulary.pad_id, np.int32)
        self.texts.copy(pairs.a_start, pairs.a_size, token_ids, np.ones_like(middle))
        self.texts.copy(pairs.b_start, pairs.b_size, token_ids, middle + 1)
        token_ids[:, 0] = self.vocabulary.cls_id
        token_ids[line, middle] = token_ids[line, sizes - 1] = self.vocabulary.sep_id
        column = np.arange(width)
        mask = column < sizes[:, None]
        segment_ids = (mask & (column > middle[:, None])).astype(np.uint8)
        return shape._replace(token_ids=token_ids), segment_ids, mask

    def _check(self, plan: Plan) -> None:
        where = "" if self.folder is None else f" in {self.folder}"
        if not len(plan):
            raise DataError(
                f"no examples{where}: the split {self.split!r} has {self.texts.num_documents} documents to choose from, "
                "and none chosen has two sentences; give more text, or order none"
            )
        if self.spec.order == "nsp" or self.spec.one_segment == "random":
            first, last = self.texts.documents_of(plan.starts[[0, -1]])
            if first == last:
                raise DataError(f"a segment of another document is wanted{where}, and there is only one document; use sop")
