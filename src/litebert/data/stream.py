"""A resumable stream of batches. In: shards, a spec, a seed. Out: any batch of any epoch, and an
iterator over them.

    stream = Stream.open("data/mine", ExampleSpec(max_length=512), seed=1)
    batch = stream.batch(epoch=0, start=0, size=64)          # pure: the same always and everywhere
    for batch in stream.read(64, position=Position(0, 6400), workers=4):
        ...                                                  # reader.position is where to resume
    longer = stream.at(max_length=512)                       # begin it at a new epoch
    fewer = stream.at(mask_fraction=0.15)                    # the same examples, other masks

Epochs follow each other without a seam: a batch that begins near the end of one ends in the next. A
batch is a function of (seed, epoch, index) alone; ranks take slices of it, so that one rank and two
see the same examples in the same order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, get_args

from litebert.checks import shorten
from litebert.data.batch import Batch, make_batch
from litebert.data.masking import Vocabulary
from litebert.data.plan import Plan, plan_epoch
from litebert.data.shards import TOKENIZER_FOLDER, Shard, Shards
from litebert.data.spec import ExampleSpec, Split
from litebert.data.texts import Texts
from litebert.errors import ConfigError, DataError

if TYPE_CHECKING:
    from litebert.data.reader import Reader

_PLANS = 2
"""Plans in memory: of the epoch being read and of the next."""


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
        folder: Path | None = None,
    ) -> None:
        if split not in get_args(Split):
            raise ConfigError(f"split is one of {', '.join(get_args(Split))}; got {shorten(split)}")
        self.shards, self.vocabulary, self.spec = shards, vocabulary, spec
        self.seed, self.split, self.folder = seed, split, folder
        self.texts = Texts(shards, spec.max_text)
        self._plans: dict[int, Plan] = {}
        self._planning, self._prepared = Lock(), -1

    @classmethod
    def open(
        cls, folder: str | Path, spec: ExampleSpec, *, seed: int = 0, split: Split = "train"
    ) -> "Stream":
        """Read the folder that `litebert data build` wrote, with the tokenizer in it."""
        shards = Shards.open(folder)
        arrays = [shards.arrays(number) for number in range(len(shards))]
        vocabulary = Vocabulary.of(shards.tokenizer(), random_specials=spec.random_specials)
        return cls(arrays, vocabulary, spec, seed=seed, split=split, folder=Path(folder).resolve())

    def at(self, max_length: int | None = None, *, mask_fraction: float | None = None) -> "Stream":
        """The same text at another length or mask fraction. At another length its epochs have
        other examples, so begin it at an epoch's start."""
        spec = replace(
            self.spec,
            max_length=max_length or self.spec.max_length,
            mask_fraction=mask_fraction or self.spec.mask_fraction,
        )
        stream = Stream(
            self.shards,
            self.vocabulary,
            spec,
            seed=self.seed,
            split=self.split,
            folder=self.folder,
        )
        if spec.max_length == self.spec.max_length:
            stream._plans = dict(self._plans)
        return stream

    @property
    def tokenizer_folder(self) -> Path:
        """Where the shards' own tokenizer is."""
        assert self.folder is not None, "a stream over arrays has no folder"
        return self.folder / TOKENIZER_FOLDER

    def plan(self, epoch: int) -> Plan:
        """Which examples the epoch has; computed once, the latest two are kept."""
        plan = self._plans.get(epoch)
        if plan is None:
            with self._planning:
                plan = self._plans.get(epoch) or self._make_plan(epoch)
        return plan

    def prepare(self, epoch: int) -> None:
        """Plan an epoch in the background, before a reader gets there."""
        if epoch not in self._plans and epoch != self._prepared:
            self._prepared = epoch
            Thread(target=self.plan, args=(epoch,), daemon=True).start()

    def _make_plan(self, epoch: int) -> Plan:
        plan = plan_epoch(self.texts, self.spec, seed=self.seed, epoch=epoch, split=self.split)
        self._check(plan)
        while len(self._plans) >= _PLANS:
            del self._plans[min(self._plans, key=lambda other: (other >= epoch, other))]
        self._plans[epoch] = plan
        return plan

    def num_examples(self, epoch: int = 0) -> int:
        return len(self.plan(epoch))

    def locate(self, position: Position) -> Position:
        """The same position with the index inside its epoch: past the end it is in a later one."""
        epoch, index = position.epoch, position.index
        while index >= (count := self.num_examples(epoch)):
            epoch, index = epoch + 1, index - count
        return Position(epoch, index)

    def batch(self, epoch: int, start: int, size: int) -> Batch:
        """`size` examples from `start` of the epoch's order on, continued into the next epochs."""
        chosen = []
        while size > 0:
            here = self.locate(Position(epoch, start))
            epoch, start = here.epoch, here.index
            plan = self.plan(epoch)
            count = min(size, len(plan) - start)
            chosen.append((plan, plan.order.span(start, start + count)))
            start, size = start + count, size - count
        return make_batch(self.texts, self.vocabulary, self.spec, chosen, seed=self.seed)

    def read(
        self,
        batch_size: int,
        position: Position = Position(),  # noqa: B008 (immutable)
        *,
        rank: int = 0,
        num_ranks: int = 1,
        workers: int = 0,
    ) -> "Reader":
        """Endless batches from `position` on: this rank's rows of each global `batch_size`."""
        from litebert.data.reader import Reader

        return Reader(self, batch_size, position, rank=rank, num_ranks=num_ranks, workers=workers)

    def _check(self, plan: Plan) -> None:
        where = "" if self.folder is None else f" in {self.folder}"
        if not len(plan):
            raise DataError(
                f"no examples{where}: the split {shorten(self.split)} has "
                f"{self.texts.num_documents} documents to choose from, "
                "and none chosen has two sentences; give more text, or order none"
            )
        if self.spec.order == "nsp" or (
            self.spec.order == "sop" and self.spec.one_segment == "random"
        ):
            first, last = self.texts.documents_of(plan.starts[[0, -1]])
            if first == last:
                raise DataError(
                    f"a segment of another document is wanted{where}, and there is only one "
                    "document; use sop"
                )
