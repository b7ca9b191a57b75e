"""The batch of each step, whatever stage the recipe is in. A stream and a recipe in; this rank's rows of each batch out.

Batch size and sequence length follow the recipe's stages. A longer sequence cuts the text into other examples, so it
begins at a new epoch. Where a run stands in its data is two integers, at any step.
"""

from litebert.data.batch import Batch
from litebert.data.reader import Reader
from litebert.data.stream import Position, Stream
from litebert.recipes import PretrainRecipe
from litebert.train.runtime import Runtime


class Feed:
    """Batches by step, asked for in turn; workers make them ahead."""

    def __init__(self, stream: Stream, recipe: PretrainRecipe, runtime: Runtime, *, workers: int = 0) -> None:
        self.stream, self.recipe, self.runtime, self.workers = stream, recipe, runtime, workers
        self.steps = recipe.total_steps
        self.reader: Reader | None = None
        self.shape = (0, 0)
        self.began = Position()  # where the last batch handed out began
        self._ends = {0: Position()}  # where the step before ended, of the last step handed out and of the one after it

    def seek(self, step: int, position: Position) -> None:
        """Go on at `step`, the step before having ended at `position`."""
        self.close()
        self._ends = {step: position}

    def position(self, step: int) -> Position:
        """Where the step before `step` ended: of the step last handed out, or of the one after it."""
        return self._ends[step]

    def batch(self, step: int) -> Batch:
        """This rank's rows of the batch of `step`."""
        shape = self.at(step)
        if self.reader is None or shape != self.shape:
            self._open(step, shape)
        assert self.reader is not None
        self.began, self.last = self.reader.position, next(self.reader)
        self._ends = {step: self._ends[step], step + 1: self.reader.position}
        return self.last

    def at(self, step: int) -> tuple[int, int]:
        """Sequence length and batch size of a step."""
        return self.recipe.sequence_length.at(step, self.steps), self.recipe.batch_size.at(step, self.steps)

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def _open(self, step: int, shape: tuple[int, int]) -> None:
        self.close()
        position = self._ends[step]
        if step and self.at(step - 1)[0] != shape[0]:
            position = Position(position.epoch + 1, 0)
        if self.stream.spec.max_length != shape[0]:
            self.stream = self.stream.at(shape[0])
        ranks = {"rank": self.runtime.rank, "num_ranks": self.runtime.world_size}
        self.reader = self.stream.read(shape[1], position, **ranks, workers=self.workers)
        self.shape = shape
