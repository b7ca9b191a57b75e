"""Held-out text in, how well a model predicts it out: masked tokens, perplexity, and both kinds of order (ALBERT Table 5).

The examples and their masks are the same for every run, seed and step, so that numbers can be compared.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from litebert.data.batch import Batch
from litebert.data.spec import Order
from litebert.data.stream import Stream
from litebert.errors import DataError
from litebert.model.model import Model
from litebert.objective import Losses, pretrain_losses
from litebert.train.runtime import Runtime

ROWS = 64


class Evaluation:
    """Examples of the held-out documents of a stream, made once for each length."""

    def __init__(self, stream: Stream, runtime: Runtime, *, tokens: int) -> None:
        self.stream, self.runtime, self.tokens = stream, runtime, tokens
        self._batches: dict[tuple[str, int], list[Batch]] = {}

    def batches(self, order: Order, length: int) -> list[Batch]:
        """This rank's share of the held-out examples."""
        if (order, length) not in self._batches:
            spec = replace(self.stream.spec, max_length=length, order=order, copies=None, short_probability=0.0)
            stream = Stream(self.stream.shards, self.stream.vocabulary, spec, seed=0, split="heldout")
            count = min(max(self.tokens // length, 1), stream.num_examples())
            starts = range(ROWS * self.runtime.rank, count, ROWS * self.runtime.world_size)
            self._batches[order, length] = [stream.batch(0, start, min(ROWS, count - start)) for start in starts]
        return self._batches[order, length]

    def __call__(
        self, model: Model, *, length: int, depth: int | None = None, pause: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Scores of `model`; `pause` is called between batches and may raise."""
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
                    counted = found if order == main else self._measure(model, order, length, depth, pause)
                except DataError:  # a corpus of one document has no other to take a segment from
                    continue
                scores[f"{order}_accuracy"] = counted["order_correct"] / counted["num_examples"]
        return scores

    @torch.no_grad()
    def _measure(
        self, model: Model, order: Order, length: int, depth: int | None, pause: Callable[[], None]
    ) -> dict[str, float]:
        training, total = model.training, None
        counts = {"num_masked": 0.0, "num_examples": 0.0, "num_tokens": 0.0}
        model.eval()
        try:
            for batch in self.batches(order, length):
                pause()
                losses = pretrain_losses(model, batch.tensors(self.runtime.device), depth=depth)
                total = losses if total is None else total + losses
                counts["num_masked"] += batch.num_masked
                counts["num_examples"] += len(batch)
                counts["num_tokens"] += batch.num_tokens
        finally:
            model.train(training)
        names = Losses.__dataclass_fields__
        sums = {name: 0.0 if total is None else float(getattr(total, name)) for name in names}
        return self.runtime.total(sums | counts)
