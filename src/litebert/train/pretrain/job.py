"""Pretraining as a job of the loop: the batch of each step, its losses, and its learning rate.

Batch size, sequence length, mask fraction and depth follow the recipe's stages. A longer sequence
cuts the text into other examples, so it begins at a new epoch. The position in the data is two
integers at any step.
"""

import contextlib
import math
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from litebert.data.batch import Batch
from litebert.data.reader import Reader
from litebert.data.stream import Position, Stream
from litebert.errors import LitebertError
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.objective import (
    DetectionLosses,
    Losses,
    Tail,
    detection_scores,
    pretrain_losses,
)
from litebert.optim.schedule import learning_rate_at, scaled_learning_rate
from litebert.packing import HostBatch, padding_multiple
from litebert.recipes import PretrainRecipe
from litebert.train.learner import examples_named
from litebert.train.runtime import Runtime


class Feed:
    """Batches by step, in order; workers prefetch them."""

    def __init__(
        self, stream: Stream, recipe: PretrainRecipe, runtime: Runtime, *, workers: int = 0
    ) -> None:
        self.stream, self.recipe, self.runtime, self.workers = stream, recipe, runtime, workers
        self.steps = recipe.total_steps
        self.reader: Reader | None = None
        self.stage: tuple[int, int, float] | None = None
        """Sequence length, batch size and mask fraction of the open reader."""
        self.began = Position()  # where the last batch handed out began
        # where the step before ended, of the last step handed out and of the one after it
        self._ends = {0: Position()}
        self._fetched: dict[int, tuple[Batch, Position, Position]] = {}

    def seek(self, step: int, position: Position) -> None:
        """Continue at `step`, the step before having ended at `position`."""
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
            with contextlib.suppress(LitebertError):  # raised again when the batch is needed
                self._fetched[step] = self._fetch(step)
        return self._fetched[step][0] if step in self._fetched else None

    def at(self, step: int) -> tuple[int, int]:
        """Sequence length and batch size of a step."""
        recipe = self.recipe
        return recipe.sequence_length.at(step, self.steps), recipe.batch_size.at(step, self.steps)

    def mask_fraction(self, step: int) -> float:
        return self.recipe.mask_fraction.at(step, self.steps)

    def close(self) -> None:
        self._fetched = {}
        self._close_reader()

    def _fetch(self, step: int) -> tuple[Batch, Position, Position]:
        """A batch, where it begins and where it ends."""
        stage = (*self.at(step), self.mask_fraction(step))
        if self.reader is None or stage != self.stage:
            self._open(step, stage)
        assert self.reader is not None
        began = self.reader.position
        return next(self.reader), began, self.reader.position

    def _close_reader(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def _open(self, step: int, stage: tuple[int, int, float]) -> None:
        self._close_reader()
        position, (length, batch_size, fraction) = self._ends[step], stage
        if step and self.at(step - 1)[0] != length:
            position = Position(position.epoch + 1, 0)
        if (self.stream.spec.max_length, self.stream.spec.mask_fraction) != (length, fraction):
            self.stream = self.stream.at(max_length=length, mask_fraction=fraction)
        ranks = {"rank": self.runtime.rank, "num_ranks": self.runtime.world_size}
        self.reader = self.stream.read(batch_size, position, **ranks, workers=self.workers)
        self.stage = stage


class PretrainJob:
    """Masked or replaced tokens, and order, by a recipe."""

    def __init__(
        self,
        recipe: PretrainRecipe,
        feed: Feed,
        runtime: Runtime,
        *,
        static_shapes: bool = False,
        tail: Tail | None = None,
    ) -> None:
        self.recipe, self.feed, self.runtime = recipe, feed, runtime
        self.static_shapes, self.tail = static_shapes, tail
        longest, encoder = max(recipe.sequence_length.values), recipe.encoder
        generator = recipe.generator(encoder)
        encoders = [encoder] if generator is None else [encoder, generator.encoder]
        self.pack = all(
            runtime.gate(each).packs(longest, dropout=each.attention_dropout) for each in encoders
        )
        """Whether rows are packed end to end in every stage."""
        self.replaces = generator is not None
        """Whether a generator replaces the masked tokens."""
        self.steps = recipe.total_steps
        self.seed = recipe.seed
        self.num_layers = encoder.num_layers
        self.multiple = padding_multiple(encoder.hidden_size)

    def batch(self, step: int) -> Batch:
        return self.feed.batch(step)

    def counts(self, batch: Batch) -> dict[str, float]:
        return {
            "masked": float(batch.num_masked),
            "examples": float(len(batch)),
            "real_tokens": float(batch.num_tokens),
        }

    def microbatch_rows(self, step: int) -> int:
        """As many rows as the recipe's tokens allow, and the same number in every microbatch where
        that is possible."""
        length, batch_size = self.feed.at(step)
        share = batch_size // self.runtime.world_size
        most = max(self.recipe.microbatch_tokens // length, 1)
        return math.ceil(share / math.ceil(share / most))

    def losses(self, model: Model, microbatch: Batch, step: int) -> Losses:
        batch = DeviceBatch.of(self.layout(microbatch), self.runtime.device)
        return self.compute(model, batch, self.depth(step))

    def compute(self, model: Model, batch: DeviceBatch, depth: int | None) -> Losses:
        return pretrain_losses(model, batch, depth=depth, tail=self.tail)

    def layout(self, microbatch: Batch) -> HostBatch:
        most = self.most_masked(microbatch)
        if self.pack:
            return microbatch.packed(
                most_masked=most,
                fraction=microbatch.mask_fraction,
                multiple=self.multiple,
                draws=self.replaces,
            )
        return microbatch.padded(
            most_masked=most if self.static_shapes else None, draws=self.replaces
        )

    def depth(self, step: int) -> int | None:
        return None if self.recipe.depth is None else self.recipe.depth.at(step, self.steps)

    def most_masked(self, batch: Batch) -> int:
        """Most tokens that are masked in one example of a batch, by its width and fraction."""
        width: int = batch.token_ids.shape[1]
        number = max(round(width * batch.mask_fraction), 1)
        return number if self.recipe.max_masked is None else min(number, self.recipe.max_masked)

    def mean(self, sums: Losses, counts: dict[str, float]) -> Tensor:
        return self.divided(sums, self.divisors(counts))

    def divisors(self, counts: dict[str, float]) -> list[float]:
        """What the sums of masked tokens, orders and detections are divided by."""
        names = ("masked", "examples") + (("real_tokens",) if self.replaces else ())
        return [max(counts[name], 1.0) for name in names]

    def divided(self, sums: Losses, divisors: list[float] | Tensor) -> Tensor:
        mean = sums.mean(num_masked=divisors[0], num_examples=divisors[1])
        if isinstance(sums, DetectionLosses):
            mean = mean + self.recipe.detection_weight * (sums.detection / divisors[2])
        return mean

    def largest(self, microbatch: Batch) -> Batch | None:
        """The same rows as if none had padding, where that is left out."""
        return replace(microbatch, mask=np.ones_like(microbatch.mask)) if self.pack else None

    def prefetch(self, step: int) -> Batch | None:
        """The first microbatch of the next step."""
        batch = self.feed.prefetch(step)
        return None if batch is None else batch.rows(0, self.microbatch_rows(step))

    def learning_rate(self, step: int) -> float:
        rate = learning_rate_at(self.recipe.optimizer, step, self.steps)
        stated = self.recipe.reference_batch_size
        return rate if stated is None else scaled_learning_rate(rate, self.feed.at(step)[1], stated)

    def describe(
        self, step: int, sums: dict[str, float], counts: dict[str, float]
    ) -> dict[str, Any]:
        length, batch_size = self.feed.at(step)
        masked, examples = max(counts["masked"], 1), max(counts["examples"], 1)
        shown: dict[str, Any] = {
            "loss": sums["masked"] / masked + sums["order"] / examples,
            "masked_loss": sums["masked"] / masked,
            "masked_accuracy": sums["masked_correct"] / masked,
        }
        if self.recipe.order != "none":
            shown |= {
                "order_loss": sums["order"] / examples,
                "order_accuracy": sums["order_correct"] / examples,
            }
        if self.replaces:
            shown |= detection_scores(sums, num_tokens=max(counts["real_tokens"], 1))
            shown["loss"] += self.recipe.detection_weight * shown["detection_loss"]
        depth = self.depth(step) or self.num_layers
        padding = 1 - counts["real_tokens"] / (length * examples)
        shape = {
            "sequence_length": length,
            "batch_size": batch_size,
            "mask_fraction": self.feed.mask_fraction(step),
            "depth": depth,
            "padding": round(padding, 4),
        }
        return shown | shape | {"tokens": length * batch_size}

    def work(self, metrics: dict[str, Any]) -> float:
        """Tokens times layers."""
        return float(metrics["sequence_length"] * metrics["batch_size"] * metrics["depth"])

    def work_left(self, step: int) -> float:
        sizes = (
            math.prod(self.feed.at(each)) * (self.depth(each) or self.num_layers)
            for each in range(step, self.steps)
        )
        return float(sum(sizes))

    def position(self, step: int) -> Position:
        return self.feed.position(step)

    def seek(self, step: int, position: Position) -> None:
        self.feed.seek(step, position)

    def name(self, batch: Batch) -> str:
        began, examples = self.feed.began, examples_named(batch.indices)
        return f"the batch at place {began.index} of epoch {began.epoch}, {examples}"
