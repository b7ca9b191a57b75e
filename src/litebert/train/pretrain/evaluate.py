"""Held-out text in, how well a model predicts it out: masked tokens, perplexity, and both kinds of
order (ALBERT Table 5).
 The examples and their masks are the same for every run, seed and step, so that numbers can be
compared.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from litebert.data.batch import Batch
from litebert.data.stream import Stream
from litebert.errors import DataError
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.objective import Losses, pretrain_losses
from litebert.recipes.pretrain import Order
from litebert.train.runtime import Runtime

ROWS = 64


class Evaluation:
    """Examples of the held-out documents of a stream, made once for each length."""

    def __init__(self, stream: Stream, runtime: Runtime, *, tokens: int) -> None:
        self.stream, self.runtime, self.tokens = stream, runtime, tokens
        self._batches: dict[tuple[str, int], list[Batch | None]] = {}

    def check(self) -> None:
        """Say before the run, not at its first evaluation, where there is nothing to evaluate
        on."""
        try:
            self._heldout(self.stream.spec.order, self.stream.spec.max_length).num_examples()
        except DataError as error:
            fraction, count = self.stream.spec.heldout_fraction, self.stream.texts.num_documents
            raise DataError(
                f"nothing to evaluate on: of {count:,} documents {fraction:g} are held out, and "
                "that gives no example; "
                "raise --heldout-fraction, or set it to 0 for a run without evaluation"
            ) from error

    def batches(self, order: Order, length: int) -> list[Batch | None]:
        """This rank's share of the held-out examples; every rank has as many items, the last may be
        None."""
        if (order, length) not in self._batches:
            stream = self._heldout(order, length)
            count = min(max(self.tokens // length, 1), stream.num_examples())
            rounds = range(0, count, ROWS * self.runtime.world_size)
            starts = [start + ROWS * self.runtime.rank for start in rounds]
            self._batches[order, length] = [
                stream.batch(0, start, min(ROWS, count - start)) if start < count else None
                for start in starts
            ]
        return self._batches[order, length]

    def _heldout(self, order: Order, length: int) -> Stream:
        spec = replace(
            self.stream.spec, max_length=length, order=order, copies=None, short_probability=0.0
        )
        return Stream(self.stream.shards, self.stream.vocabulary, spec, seed=0, split="heldout")

    def __call__(
        self,
        model: Model,
        *,
        length: int,
        depth: int | None = None,
        pause: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Scores of `model`; `pause` is called before each batch, equally often on every rank, and
        may raise."""
        main: Order = self.stream.spec.order
        found = self._measure(model, main, length, depth, pause)
        scores = {
            "masked_loss": found["masked"] / found["num_masked"],
            "masked_accuracy": found["masked_correct"] / found["num_masked"],
            "perplexity": math.exp(min(found["masked"] / found["num_masked"], 50.0)),
            "heldout_tokens": int(found["num_tokens"]),
            "sequence_length": length,
        }
        if "order" in model.heads:
            scores["order_loss"] = found["order"] / found["num_examples"]
            orders: tuple[Order, ...] = ("sop", "nsp")
            for order in orders:
                try:
                    counted = (
                        found
                        if order == main
                        else self._measure(model, order, length, depth, pause)
                    )
                except DataError:  # a corpus of one document has no other to take a segment from
                    continue
                scores[f"{order}_accuracy"] = counted["order_correct"] / counted["num_examples"]
        return scores

    @torch.no_grad()
    def _measure(
        self, model: Model, order: Order, length: int, depth: int | None, pause: Callable[[], None]
    ) -> dict[str, float]:
        training = model.training
        sums = dict.fromkeys(
            Losses.__dataclass_fields__,
            torch.zeros((), dtype=torch.float64, device=self.runtime.device),
        )
        counts = {"num_masked": 0.0, "num_examples": 0.0, "num_tokens": 0.0}
        model.eval()
        try:
            for batch in self.batches(order, length):
                pause()
                if batch is None:
                    continue
                losses = pretrain_losses(
                    model, DeviceBatch.of(batch.padded(), self.runtime.device), depth=depth
                )
                sums = {name: sums[name] + number for name, number in losses.numbers().items()}
                counts["num_masked"] += batch.num_masked
                counts["num_examples"] += len(batch)
                counts["num_tokens"] += batch.num_tokens
        finally:
            model.train(training)
        return self.runtime.total({name: float(number) for name, number in sums.items()} | counts)
