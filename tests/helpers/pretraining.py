"""Pretraining in this process, for tests: start, end at a chosen moment, compare."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from litebert.data.batch import Batch
from litebert.model.model import Model
from litebert.objective import Losses
from litebert.recipes import FractionStages, PretrainRecipe, Stages
from litebert.testing import tiny_recipe
from litebert.train.log import Record, read_records
from litebert.train.pretrain.run import Pretraining
from litebert.train.runtime import Runtime

CPU = Runtime(rank=0, world_size=1, device=torch.device("cpu"), dtype=torch.float32)


def staged_recipe(**changes: Any) -> PretrainRecipe:
    """A run that crosses stages of batch size, sequence length, mask fraction and depth, over
    several epochs, with dropout."""
    stages = {
        "mask_fraction": FractionStages.parse("0:0.4,8:0.15"),
        "batch_size": Stages.parse("0:6,4:8"),
        "sequence_length": Stages.parse("0:16,6:24,9:16"),
        "depth": Stages.parse("0:1,7:2"),
    }
    dropout = {"ffn_dropout": 0.1, "attention_dropout": 0.1}
    return tiny_recipe(
        **({"steps": 12, "encoder": dropout, "microbatch_tokens": 64, **stages} | changes)
    )


class Watched(Pretraining):
    """A pretraining that calls `at` before each microbatch, with the number of those before it, in
    evaluation too."""

    def __init__(
        self, *args: Any, at: Callable[[int], None] = lambda number: None, **kwargs: Any
    ) -> None:
        super().__init__(*args, say=lambda message: None, **kwargs)
        self.calls = 0
        losses = self.job.losses

        def watched(model: Model, microbatch: Batch, step: int) -> Losses:
            self._count(at)
            return losses(model, microbatch, step)

        self.job.losses = watched  # type: ignore[method-assign]
        if self.evaluation:
            self.evaluation.batches = _each(self.evaluation.batches, lambda: self._count(at))  # type: ignore[method-assign]

    def _count(self, at: Callable[[int], None]) -> None:
        self.calls += 1
        at(self.calls - 1)


def _each(batches: Callable[..., list[Any]], tell: Callable[[], None]) -> Callable[..., Any]:
    def told(*args: Any) -> Any:
        class Telling(list[Any]):
            def __iter__(self) -> Any:
                for batch in super().__iter__():
                    tell()
                    yield batch

        return Telling(batches(*args))

    return told


def signalled(number: int, kind: signal.Signals = signal.SIGTERM) -> Callable[[int], None]:
    """Sends this process a signal before microbatch `number`."""
    return lambda now: os.kill(os.getpid(), kind) if now == number else None


def train(
    recipe: PretrainRecipe,
    shards: Path,
    out: Path,
    *,
    at: Callable[[int], None] = lambda number: None,
    **options: Any,
) -> Watched:
    """Run or resume; the Pretraining afterwards."""
    training = Watched(recipe, shards, CPU, at=at, **options)
    training.result = training.train(out, progress=False)  # type: ignore[attr-defined]
    return training


def essence(run: Path) -> list[Record]:
    """The metrics of a run without its clock."""
    return [
        {name: value for name, value in record.items() if name != "seconds"}
        for record in read_records(run / "metrics.jsonl")
    ]


def weights(run: Path, which: str = "final") -> dict[str, torch.Tensor]:
    return load_file(run / which / "model.safetensors")


def assert_same_run(one: Path, other: Path) -> None:
    """Weights, best weights and metrics are equal bit for bit."""
    for which in ("final", "best"):
        mine, theirs = weights(one, which), weights(other, which)
        assert mine.keys() == theirs.keys()
        assert [name for name in mine if not torch.equal(mine[name], theirs[name])] == []
    assert essence(one) == essence(other)


def events(run: Path) -> list[Record]:
    return [record for record in read_records(run / "metrics.jsonl") if record["kind"] == "event"]


def losses(run: Path) -> list[float]:
    return [
        record["loss"] for record in read_records(run / "metrics.jsonl") if record["kind"] == "step"
    ]
