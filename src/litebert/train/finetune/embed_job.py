"""Learning vectors of texts as a job of the loop: units of related texts, a loss over the whole
batch, gradients by microbatches.

In-batch negatives need all vectors of a batch before the first gradient. So the vectors are
computed without gradients first, the loss gives the gradient of each vector, and each microbatch is
read again and takes its own (GradCache: Gao et al. 2021). A batch that fits is read once.
"""

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from litebert.config import Pooling
from litebert.data.stream import Position
from litebert.errors import ConfigError
from litebert.kernels.gate import can_pack
from litebert.model.batch import DeviceBatch
from litebert.model.heads import POOLINGS
from litebert.model.model import Model
from litebert.objective.contrastive import (
    contrastive_loss,
    cosine_loss,
    distillation_loss,
    matryoshka_loss,
)
from litebert.objective.sums import Sums
from litebert.optim.schedule import learning_rate_at
from litebert.packing import (
    HostBatch,
    length_bucket,
    ranges,
    row_bounds,
    row_positions,
    unpack_indices,
)
from litebert.recipes.embed import EmbedRecipe
from litebert.tasks.encode.encode import Row, encode_texts
from litebert.tasks.encode.inputs import epoch_batches
from litebert.tasks.tables.units import Units
from litebert.text.tokenizer import Tokenizer
from litebert.train.finetune.job import even_share
from litebert.train.learner import examples_named
from litebert.train.runtime import Runtime


@dataclass(frozen=True, kw_only=True, eq=False)
class EmbedBatch:
    """Some units of a step, by their numbers."""

    units: Int[np.ndarray, " units"]
    start: int = 0
    """Where they begin in the batch of the step."""

    def __len__(self) -> int:
        return len(self.units)

    def rows(self, start: int, stop: int) -> "EmbedBatch":
        return replace(self, units=self.units[start:stop], start=self.start + start)


@dataclass(frozen=True, kw_only=True)
class EmbedSums(Sums):
    """The loss of a microbatch: what is minimized, and its share of the number to show."""

    loss: Tensor
    shown: Tensor

    def numbers(self) -> dict[str, Tensor]:
        return {"loss": self.shown}


class EmbedJob:
    """Units of texts, by a recipe."""

    def __init__(
        self, recipe: EmbedRecipe, units: Units, tokenizer: Tokenizer, runtime: Runtime
    ) -> None:
        if units.is_alone and not recipe.encoder_dropout:
            raise ConfigError(
                "texts alone are read twice with different dropout, and encoder_dropout is 0; give "
                "--encoder-dropout 0.1"
            )
        self.recipe, self.data, self.runtime = recipe, units, runtime
        self.pad_id = tokenizer.pad_id
        self.text_rows = encode_texts(tokenizer, units.texts, max_length=recipe.max_length)
        sizes = np.array([len(row) for row in self.text_rows], np.int64)
        self.mentions = np.diff(units.bounds)
        """Texts of each unit."""
        self.longest = np.maximum.reduceat(sizes[units.numbers], units.bounds[:-1])
        """Tokens of the longest text of each unit."""
        self.real_tokens = np.add.reduceat(sizes[units.numbers], units.bounds[:-1])
        self.seed = recipe.seed
        self.per_epoch = -(-len(units) // recipe.batch_size)
        self.steps = recipe.total_steps(len(units))
        self._batches = lru_cache(1)(
            partial(epoch_batches, self.longest, recipe.batch_size, seed=recipe.seed)
        )
        self._gradients: Tensor | None = None
        """Of the vectors of the step's batch; None where it is read in one pass."""
        self._loss: Tensor | None = None

    def position(self, step: int) -> Position:
        return Position(*divmod(step, self.per_epoch))

    def seek(self, step: int, position: Position) -> None:
        """Nothing to do: a batch is a function of its step."""
        assert self.position(step) == position

    def batch(self, step: int) -> EmbedBatch:
        position = self.position(step)
        self.drawn = EmbedBatch(units=self._batches(epoch=position.epoch)[position.index])
        return self.drawn

    def counts(self, batch: EmbedBatch) -> dict[str, float]:
        width = self.longest[batch.units].max()
        return {
            "units": len(batch),
            "tokens": float(width * self.mentions[batch.units].sum()),
            "real_tokens": float(self.real_tokens[batch.units].sum()),
        }

    def microbatch_rows(self, step: int) -> int:
        tokens = int(self.counts(self.drawn)["tokens"])
        return even_share(len(self.drawn), tokens, most_tokens=self.recipe.microbatch_tokens)

    def losses(self, model: Model, microbatch: EmbedBatch, step: int) -> EmbedSums:
        """The loss of the batch where this is all of it; else the part of its gradient that goes
        through these units, and the loss itself with the first of them."""
        if microbatch.start == 0:
            self._cache(model, len(microbatch), step)
        vectors = self._vectors(model, microbatch, step)
        if self._gradients is None:
            loss = self.loss(vectors, self.drawn.units)
            return EmbedSums(loss=loss, shown=loss)
        assert self._loss is not None
        before = int(self.mentions[self.drawn.units[: microbatch.start]].sum())
        gradients = self._gradients[before : before + len(vectors)]
        shown = self._loss if microbatch.start == 0 else torch.zeros_like(self._loss)
        return EmbedSums(loss=(vectors * gradients).sum(), shown=shown)

    def loss(
        self, vectors: Float[Tensor, "texts size"], units: Int[np.ndarray, " units"]
    ) -> Float[Tensor, ""]:
        """Of the vectors of all texts of a batch's units, in order."""
        recipe, data = self.recipe, self.data

        def one(prefix: Tensor) -> Tensor:
            if data.vectors is not None:
                return distillation_loss(prefix, self._on_device(data.vectors[units]))
            if data.scores is not None:
                return cosine_loss(prefix, self._on_device(data.scores[units]))
            return contrastive_loss(
                prefix,
                self._on_device(self._mentioned(units)),
                self._on_device(row_bounds(self.mentions[units])[:-1]),
                temperature=recipe.temperature,
                symmetric=recipe.symmetric,
            )

        return matryoshka_loss(one, vectors, recipe.matryoshka)

    def mean(self, sums: EmbedSums, counts: dict[str, float]) -> Tensor:
        """The loss is a mean over the batch already."""
        return sums.loss

    def learning_rate(self, step: int) -> float:
        return learning_rate_at(self.recipe.optimizer, step, self.steps)

    def describe(
        self, step: int, sums: dict[str, float], counts: dict[str, float]
    ) -> dict[str, Any]:
        return {
            "loss": sums["loss"],
            "epoch": self.position(step).epoch,
            "batch_size": int(counts["units"]),
            "sequence_length": int(self.longest[self.drawn.units].max()),
            "padding": round(1 - counts["real_tokens"] / max(counts["tokens"], 1), 4),
            "tokens": int(counts["tokens"]),
        }

    def work(self, metrics: dict[str, Any]) -> float:
        return float(self.real_tokens[self.drawn.units].sum())

    def work_left(self, step: int) -> float:
        mean = self.real_tokens.sum() / len(self.data)
        return float((self.steps - step) * self.recipe.batch_size * mean)

    def name(self, batch: EmbedBatch) -> str:
        return "training " + examples_named(batch.units)

    def _cache(self, model: Model, rows: int, step: int) -> None:
        """The loss of the step's batch and its gradient by each vector."""
        self._gradients = self._loss = None
        if rows == len(self.drawn):
            return
        with torch.no_grad():
            parts = [
                self._vectors(model, self.drawn.rows(start, start + rows), step)
                for start in range(0, len(self.drawn), rows)
            ]
        vectors = torch.cat(parts).requires_grad_()
        loss = self.loss(vectors, self.drawn.units)
        (self._gradients,) = torch.autograd.grad(loss, vectors)
        self._loss = loss.detach()

    def _vectors(
        self, model: Model, microbatch: EmbedBatch, step: int
    ) -> Float[Tensor, "texts size"]:
        """In float32 at least. Dropout is a function of the step and of the first unit, so that
        both passes draw the same."""
        self.runtime.seed(self.seed, step, microbatch.start)
        rows = [self.text_rows[number] for number in self._mentioned(microbatch.units).tolist()]
        vectors = pooled(
            model, rows, self.recipe.pooling, pad_id=self.pad_id, device=self.runtime.device
        )
        return vectors if vectors.dtype == torch.float64 else vectors.float()

    def _mentioned(self, units: Int[np.ndarray, " units"]) -> Int[np.ndarray, " texts"]:
        """The numbers of the texts of units, in order."""
        starts = self.data.bounds[units]
        numbers: Int[np.ndarray, " texts"] = self.data.numbers[ranges(starts, self.mentions[units])]
        return numbers

    def _on_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.runtime.device)


def pooled(
    model: Model, rows: list[Row], pooling: Pooling, *, pad_id: int, device: torch.device
) -> Float[Tensor, "texts hidden"]:
    """The vector of every row of tokens. Rows are packed where the model's kernels read such."""
    lengths = np.array([len(row) for row in rows], np.int64)
    width = int(lengths.max())
    mask: np.ndarray = np.arange(width) < lengths[:, None]
    is_packed = can_pack(model, width)
    if is_packed:
        bounds = row_bounds(lengths)
        arrays = {
            "token_ids": np.concatenate(rows).astype(np.int64)[None],
            "positions": row_positions(bounds)[None],
            "bounds": bounds.astype(np.int32),
            "columns": unpack_indices(bounds, width),
        }
    else:
        token_ids = np.full(mask.shape, pad_id, np.int64)
        token_ids[mask] = np.concatenate(rows)
        arrays = {"token_ids": token_ids} | ({} if mask.all() else {"mask": mask})
    longest = length_bucket(width, model.config.encoder.max_positions) if is_packed else width
    batch = DeviceBatch.of(HostBatch(arrays=arrays, longest=longest, most_needed=0), device)
    states = batch.states(model.encoder)
    if is_packed:
        states = states[0][batch.head_inputs["columns"]]
    real = None if mask.all() else torch.from_numpy(mask).to(device)
    return POOLINGS[pooling](states, real)
