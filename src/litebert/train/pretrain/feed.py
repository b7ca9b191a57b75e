"""The batch of each step, whatever stage the recipe is in. A stream and a recipe in; this rank's
rows of each batch out.
 Batch size and sequence length follow the recipe's stages. A longer sequence cuts the text into
other examples, so it begins at a new epoch. Where a run stands in its data is two integers, at any
step.
"""

import contextlib

from litebert.data.batch import Batch
from litebert.data.reader import Reader
from litebert.data.stream import Position, Stream
from litebert.errors import LitebertError
from litebert.recipes import PretrainRecipe
from litebert.train.runtime import Runtime


class Feed:
    """Batches by step, asked for in turn; workers make them ahead."""

    def __init__(
        self, stream: Stream, recipe: PretrainRecipe, runtime: Runtime, *, workers: int = 0
    ) -> None:
        self.stream, self.recipe, self.runtime, self.workers = stream, recipe, runtime, workers
        self.steps = recipe.total_steps
        self.reader: Reader | None = None
        self.shape = (0, 0)
        self.began = Position()  # where the last batch handed out began
        self._ends = {
            0: Position()
        }  # where the step before ended, of the last step handed out and of the one after it
        self._fetched: dict[int, tuple[Batch, Position, Position]] = {}

    def seek(self, step: int, position: Position) -> None:
        """Go on at `step`, the step before having ended at `position`."""
        self.close()
        self._ends = {step: position}

    def position(self, step: int) -> Position:
        """Where the step before `step` ended: of the step last handed out, or of the one after
        it."""
        return self._ends[step]

    def batch(self, step: int) -> Batch:
        """This rank's rows of the batch of `step`."""
        self.last, self.began, end = (
            self._fetched.pop(step) if step in self._fetched else self._fetch(step)
        )
        self._ends = {step: self._ends[step], step + 1: end}
        return self.last

    def prefetch(self, step: int) -> Batch | None:
        """The batch of the step after the last one handed out, without handing it out; None where
        it is not to be had."""
        if step < self.steps and step not in self._fetched:
            with contextlib.suppress(
                LitebertError
            ):  # it is met again, and told, when the batch is asked for
                self._fetched[step] = self._fetch(step)
        return self._fetched[step][0] if step in self._fetched else None

    def at(self, step: int) -> tuple[int, int]:
        """Sequence length and batch size of a step."""
        return self.recipe.sequence_length.at(step, self.steps), self.recipe.batch_size.at(
            step, self.steps
        )

    def close(self) -> None:
        self._fetched = {}
        self._close_reader()

    def _fetch(self, step: int) -> tuple[Batch, Position, Position]:
        """A batch, where it begins and where it ends."""
        shape = self.at(step)
        if self.reader is None or shape != self.shape:
            self._open(step, shape)
        assert self.reader is not None
        began = self.reader.position
        return next(self.reader), began, self.reader.position

    def _close_reader(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def _open(self, step: int, shape: tuple[int, int]) -> None:
        self._close_reader()
        position = self._ends[step]
        if step and self.at(step - 1)[0] != shape[0]:
            position = Position(position.epoch + 1, 0)
        if self.stream.spec.max_length != shape[0]:
            self.stream = self.stream.at(shape[0])
        ranks = {"rank": self.runtime.rank, "num_ranks": self.runtime.world_size}
        self.reader = self.stream.read(shape[1], position, **ranks, workers=self.workers)
        self.shape = shape
