"""Fine-tuning as a job of the loop: batches of a task's inputs, the task's loss, the recipe's
learning rate (ALBERT §4.1, A.3).

Steps are counted over the whole run: where fine-tuning starts over after a failure, the count
continues, with a lower learning rate.
"""

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litebert.data.stream import Position
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.optim.schedule import learning_rate_at
from litebert.packing import HostBatch
from litebert.recipes import FinetuneRecipe, OptimizerSpec
from litebert.recipes.pretrain import Compile
from litebert.tasks.encode.inputs import Inputs, TaskBatch, epoch_batches
from litebert.tasks.heads.head import TaskSums
from litebert.tasks.heads.heads import exit_losses, task_losses
from litebert.train.learner import examples_named
from litebert.train.runtime import Runtime

COMPILE_TOKENS = 40_000_000
"""Real tokens of a run from which `auto` compiles: compiling takes half a minute, and saves as
much there."""
LOWER, LONGER = 3, 2
"""For each restart the learning rate is divided by the one, the warm-up multiplied by the other."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Draw:
    """The batch of a step."""

    position: Position
    units: np.ndarray
    """This rank's units."""
    batch: TaskBatch


class FinetuneJob:
    """A task's examples, by a recipe; with `pack`, rows end to end (tasks/encode/inputs.py)."""

    def __init__(
        self,
        recipe: FinetuneRecipe,
        inputs: Inputs,
        runtime: Runtime,
        *,
        pack: bool = False,
        class_weights: np.ndarray | None = None,
    ) -> None:
        self.class_weights = (
            None
            if class_weights is None
            else torch.tensor(class_weights, dtype=torch.float32, device=runtime.device)
        )
        self.recipe, self.inputs, self.runtime, self.pack = recipe, inputs, runtime, pack
        self.longest = int(inputs.lengths.max(initial=1))
        self.seed = recipe.seed
        self.per_epoch = -(-len(inputs) // recipe.batch_size)
        self.length = recipe.total_steps(len(inputs))
        """Steps from a beginning to its end."""
        self.begin(0, 0)
        self._batches = lru_cache(1)(
            partial(epoch_batches, inputs.lengths, recipe.batch_size, seed=recipe.seed)
        )
        self._prefetched: _Draw | None = None

    def begin(self, attempt: int, step: int) -> None:
        """From `step` on it is attempt number `attempt`."""
        self.attempt, self.began = attempt, step
        self.steps = step + self.length
        self.spec = _gentler(self.recipe.optimizer, attempt, self.length)

    @property
    def compile_wish(self) -> Compile:
        """auto compiles a long run over packed rows: fewer tokens do not pay for it, and padded
        batches are of many shapes. CUDA graphs, which take a second, are recorded either way."""
        pays = self.pack and self.tokens >= COMPILE_TOKENS
        return "off" if self.recipe.compile == "auto" and not pays else self.recipe.compile

    @property
    def tokens(self) -> int:
        """Real tokens from a beginning to its end, about."""
        units = self.length * self.recipe.batch_size
        return int(units * self.inputs.row_lengths.sum() / max(len(self.inputs), 1))

    def position(self, step: int) -> Position:
        """Epoch and batch of `step`. Epochs continue counting where a run starts over, so that
        the order of examples is another."""
        epoch, index = divmod(step - self.began, self.per_epoch)
        return Position(self.attempt * -(-self.length // self.per_epoch) + epoch, index)

    def seek(self, step: int, position: Position) -> None:
        """Nothing to do: a batch is a function of its step."""
        assert self.position(step) == position

    def units(self, step: int) -> np.ndarray:
        """The numbers of the units of a step, over all ranks."""
        position = self.position(step)
        return self._batches(epoch=position.epoch)[position.index]

    def batch(self, step: int) -> TaskBatch:
        drawn, self._prefetched = self._prefetched, None
        if drawn is None or drawn.position != self.position(step):
            drawn = self.draw(step)
        self.drawn = drawn
        return drawn.batch

    def draw(self, step: int) -> _Draw:
        """This rank's part of the batch of a step."""
        units = self.units(step)
        mine = units[self.runtime.rank :: self.runtime.world_size]
        is_spare = not len(mine)  # fewer units than ranks: this one reads along
        mine = units[:1] if is_spare else mine
        batch = replace(self.inputs.batch(mine), is_spare=is_spare)
        return _Draw(position=self.position(step), units=mine, batch=batch)

    def largest(self, microbatch: TaskBatch) -> None:
        """Batches are small."""

    def prefetch(self, step: int) -> TaskBatch | None:
        """The batch of the next step, where there is one and it is read in one pass."""
        if step >= self.steps:
            return None
        drawn = self._prefetched = self.draw(step)
        return drawn.batch if self.at_once(drawn) >= len(drawn.units) else None

    def counts(self, batch: TaskBatch) -> dict[str, float]:
        weight = 0.0 if batch.is_spare else 1.0
        numbers = {
            "targets": batch.num_targets,
            "units": len(batch),
            "tokens": batch.token_ids.size,
            "real_tokens": batch.num_tokens,
        }
        return {name: weight * number for name, number in numbers.items()}

    def microbatch_rows(self, step: int) -> int:
        return self.at_once(self.drawn)

    def at_once(self, drawn: _Draw) -> int:
        tokens = drawn.batch.token_ids.size
        return even_share(len(drawn.units), tokens, most_tokens=self.recipe.microbatch_tokens)

    def losses(self, model: Model, microbatch: TaskBatch, step: int) -> TaskSums:
        if self.pack:
            return self.compute(model, DeviceBatch.of(self.layout(microbatch), self.runtime.device))
        sums = self.compute(model, DeviceBatch.of(microbatch.padded(), self.runtime.device))
        if microbatch.is_spare:
            return replace(sums, loss=sums.loss * 0, correct=sums.correct * 0)
        return sums

    def compute(self, model: Model, batch: DeviceBatch, depth: int | None = None) -> TaskSums:
        if self.recipe.exits == "none":
            return task_losses(model, batch, self.class_weights)
        return exit_losses(
            model,
            batch,
            self.class_weights,
            distillation=self.recipe.exit_distillation,
            temperature=self.recipe.exit_temperature,
        )

    def layout(self, microbatch: TaskBatch) -> HostBatch:
        """Its rows end to end, in few shapes."""
        most = self.recipe.microbatch_tokens
        return microbatch.packed(longest=self.longest, bucketed=True, most_tokens=most)

    def depth(self, step: int) -> int | None:
        """All layers, always."""
        return None

    def mean(self, sums: TaskSums, counts: dict[str, float]) -> Tensor:
        return self.divided(sums, self.divisors(counts))

    def divisors(self, counts: dict[str, float]) -> list[float]:
        return [max(counts["targets"], 1.0)]

    def divided(self, sums: TaskSums, divisors: list[float] | Tensor) -> Tensor:
        return sums.loss / divisors[0]

    def learning_rate(self, step: int) -> float:
        return learning_rate_at(self.spec, step - self.began, self.length)

    def describe(
        self, step: int, sums: dict[str, float], counts: dict[str, float]
    ) -> dict[str, Any]:
        targets, tokens = max(counts["targets"], 1), max(counts["tokens"], 1)
        shown: dict[str, Any] = {"loss": sums["loss"] / targets}
        if self.inputs.head != "regress":
            shown["accuracy"] = sums["correct"] / targets
        position = self.position(step)
        shape = {
            "epoch": position.epoch,
            "batch_size": int(counts["units"]),
            "sequence_length": self.drawn.batch.token_ids.shape[1],
        }
        padding = 1 - counts["real_tokens"] / tokens
        return shown | shape | {"padding": round(padding, 4), "tokens": int(counts["tokens"])}

    def work(self, metrics: dict[str, Any]) -> float:
        """Real tokens, of a batch as long as this one."""
        return self.drawn.batch.num_tokens * float(self.runtime.world_size)

    def work_left(self, step: int) -> float:
        return self.tokens * (self.steps - step) / self.length

    def name(self, batch: TaskBatch) -> str:
        return "training " + examples_named(self.inputs.examples[self.drawn.units])


def even_share(units: int, tokens: int, *, most_tokens: int) -> int:
    """Units in a microbatch: as many as the tokens allow, and about as many in every one."""
    most = max(most_tokens * units // tokens, 1)
    return -(-units // -(-units // most))


def _gentler(spec: OptimizerSpec, attempt: int, steps: int) -> OptimizerSpec:
    """The optimizer of a restart: a third of the learning rate and twice the warm-up each time, the
    warm-up at most half the run."""
    if attempt == 0:
        return spec
    warmup = min(max(spec.warmup_steps(steps), 1) * LONGER**attempt, steps // 2)
    return replace(
        spec,
        learning_rate=spec.learning_rate / LOWER**attempt,
        warmup=max(warmup, spec.warmup_steps(steps)),
    )
