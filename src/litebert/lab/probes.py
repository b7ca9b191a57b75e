"""What is measured on a trained encoder beside its held-out loss: a run and its shards in; numbers
as JSON out.

order: how well a linear model of the frozen first states tells sentence orders and next sentences
(ALBERT Table 5 for models that have no head for it). gap: masked loss on held-out minus on
training text. rows: the part of the vocabulary that the input of one step holds (ALBERT §3.1).
distances: how far each layer moves the states (Figure 1).
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from litebert.data.shards import Shards
from litebert.data.spec import Split
from litebert.data.stream import Stream
from litebert.errors import DataError
from litebert.files import to_json
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.objective import pretrain_losses
from litebert.recipes import PretrainRecipe
from litebert.recipes.pretrain import Order
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.scores.linear import LinearProbe, logistic
from litebert.terminal import write_line
from litebert.train.pretrain.run import example_spec

_ROWS, _LENGTH = 64, 128
_BATCH = 64
_TOKENS = 500_000
"""Of each split, for the gap, at most."""
_EXAMPLES = 4_000
"""Of train, for a linear probe of order, at most; half as many of held-out text."""


@dataclass(frozen=True)
class Subject:
    """A trained model, what it was trained on, and how."""

    model: Model
    data: Path
    recipe: PretrainRecipe
    device: torch.device

    @property
    def length(self) -> int:
        return self.recipe.sequence_length.values[-1]

    def stream(self, split: Split, order: Order, *, mask_fraction: float = 0.15) -> Stream:
        """Examples masked as in evaluation."""
        spec = replace(
            example_spec(self.recipe),
            max_length=self.length,
            order=order,
            copies=None,
            short_probability=0.0,
            mask_fraction=mask_fraction,
            mask_share=0.8,
            random_share=0.1,
            max_masked=None,
        )
        return Stream.open(self.data, spec, seed=0, split=split)


@torch.inference_mode()
def layer_distances(subject: Subject) -> dict[str, list[float]]:
    """By application, the mean over tokens of the first shard, read in rows of up to 128 tokens."""
    model = subject.model
    length = min(_LENGTH, model.config.encoder.max_positions)
    tokens = Shards.open(subject.data).arrays(0).tokens
    rows = min(_ROWS, len(tokens) // length)
    token_ids = torch.tensor(tokens[: rows * length].astype("int64"), device=subject.device)
    distances: dict[str, list[float]] = {"l2": [], "cosine": []}
    before = model.encoder.embedding(token_ids.view(rows, length))
    for _, after in model.encoder.walk(before):
        distances["l2"].append(float((after - before).norm(dim=-1).mean()))
        distances["cosine"].append(float(F.cosine_similarity(after, before, dim=-1).mean()))
        before = after
    return distances


def touched_rows(subject: Subject) -> float:
    """Part of the vocabulary that the tokens of one step's batch hold, as they stand in the text:
    the rows of the embedding that the input gives a gradient to."""
    stream = subject.stream("train", subject.recipe.order, mask_fraction=0.001)
    size = subject.recipe.batch_size.values[-1]
    batch = stream.batch(0, 0, size)
    ids = np.concatenate([batch.token_ids[batch.mask], batch.masked_labels])
    return len(np.unique(ids)) / len(stream.vocabulary.word_starts)


@torch.inference_mode()
def _masked_loss(subject: Subject, split: Split) -> float:
    """On a sample of a split, masked alike."""
    stream = subject.stream(split, "none")
    count = min(max(_TOKENS // subject.length, 1), stream.num_examples())
    total = masked = 0.0
    for start in range(0, count, _BATCH):
        batch = stream.batch(0, start, min(_BATCH, count - start))
        losses = pretrain_losses(
            subject.model.filler, DeviceBatch.of(batch.padded(), subject.device)
        )
        total += float(losses.numbers()["masked"])
        masked += batch.num_masked
    return total / masked


def _order_probes(subject: Subject) -> dict[str, float]:
    """Accuracy on held-out text of a linear model of frozen first states, trained on train."""
    scores: dict[str, float] = {}
    orders: tuple[Order, ...] = ("sop", "nsp")
    for order in orders:
        try:
            train, labels = _first_states(subject, "train", order, _EXAMPLES)
            heldout, truth = _first_states(subject, "heldout", order, _EXAMPLES // 2)
        except DataError:  # a corpus of one document has no other to take a segment from
            continue
        probe = LinearProbe.fit(train, logistic(labels, 2))
        scores[f"{order}_probe"] = float((probe.outputs(heldout).argmax(1) == truth).float().mean())
    return scores


@torch.no_grad()
def _first_states(
    subject: Subject, split: Split, order: Order, count: int
) -> tuple[Float[Tensor, "rows hidden"], Int[Tensor, " rows"]]:
    """The last states of [CLS], of unmasked text, and whether segments are swapped or strange."""
    stream = subject.stream(split, order, mask_fraction=0.001)
    count = min(count, stream.num_examples())
    states, labels = [], []
    for start in range(0, count, _BATCH):
        batch = stream.batch(0, start, min(_BATCH, count - start))
        token_ids = batch.token_ids.copy()
        token_ids.reshape(-1)[batch.masked_positions] = batch.masked_labels
        inputs = {"token_ids": token_ids, "segment_ids": batch.segment_ids, "mask": batch.mask}
        tensors = {
            name: torch.as_tensor(array, device=subject.device) for name, array in inputs.items()
        }
        tensors |= {name: tensors[name].long() for name in ("token_ids", "segment_ids")}
        states.append(subject.model.encoder(**tensors)[:, 0].float().cpu())
        labels.append(torch.as_tensor(np.asarray(batch.order_labels), dtype=torch.int64))
    return torch.cat(states), torch.cat(labels)


_MEASUREMENTS: dict[str, Callable[[Subject], dict[str, Any]]] = {
    "order": _order_probes,
    "gap": lambda subject: {
        "gap": _masked_loss(subject, "heldout") - _masked_loss(subject, "train")
    },
    "rows": lambda subject: {"touched": touched_rows(subject)},
    "distances": lambda subject: {"distances": layer_distances(subject)},
}


def main(args: Sequence[str] | None = None) -> None:
    """python -m litebert.lab.probes --run RUN --data SHARDS --measure gap order"""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--measure", nargs="+", choices=list(_MEASUREMENTS), required=True)
    options = parser.parse_args(args)
    device = choose_device(options.device)
    recipe = PretrainRecipe.load(options.run / "recipe.json")
    model = Checkpoint.load(options.run / "final").model.eval().to(device)
    subject = Subject(model, options.data, recipe, device)
    numbers: dict[str, Any] = {}
    for name in options.measure:
        numbers |= _MEASUREMENTS[name](subject)
    write_line(to_json(numbers))


def choose_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


if __name__ == "__main__":
    main()
