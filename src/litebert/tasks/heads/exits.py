"""Exits: heads that answer after fewer layers. Their loss over all depths, and the logits of all
depths for examples.

The loss is PABEE's (Zhou et al. 2020): each depth weighs as much as it is deep, so that the last
counts most. Every earlier depth also learns from the answer of the last, which learns from the
targets alone.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.packing import HostBatch
from litebert.tasks.decode.decode import Outputs, Query, decode
from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.examples import TaskExample
from litebert.tasks.heads.head import TaskSums, to_numpy, without_padding
from litebert.tasks.heads.heads import HEADS, run_batches, targets_of
from litebert.tasks.predictions import Prediction
from litebert.tasks.task import TaskCard


def exit_losses(
    model: Model,
    batch: DeviceBatch,
    class_weights: Tensor | None = None,
    *,
    distillation: float,
    temperature: float,
) -> TaskSums:
    """Σ k (loss_k + distillation · divergence_k) / Σ k over the depths k; the last has no
    divergence. `correct` is the last depth's."""
    assert batch.head is not None
    targets = targets_of(batch)
    head, logits = HEADS[batch.head], exit_logits(model, batch)
    teacher, last = logits[-1].detach(), len(logits)
    full = head.sums(batch, logits[-1], targets, class_weights)
    total = last * full.loss
    for depth, each in enumerate(logits[:-1], start=1):
        loss = head.sums(batch, each, targets, class_weights).loss
        apart = without_padding(batch, head.divergence(each, teacher, temperature)).sum()
        total = total + depth * (loss + distillation * apart)
    return TaskSums(loss=total / (last * (last + 1) // 2), correct=full.correct)


def exit_logits(model: Model, batch: DeviceBatch) -> list[Float[Tensor, "rows outputs"]]:
    """The logits of every depth, in float32."""
    assert batch.head is not None
    states = batch.exit_states(model.encoder)
    return [
        model.exit_logits(batch.head, depth, each.flatten(0, 1)[:, None]).float()
        for depth, each in enumerate(states, start=1)
    ]


def depth_logits(
    model: Model,
    inputs: Inputs,
    *,
    device: torch.device | str = "cpu",
    batch_tokens: int | None = None,
) -> Float[np.ndarray, "depths units outputs"]:
    """The logits of every depth for encoded examples."""
    head = model.config.heads[0]
    shape = (len(model.encoder.plan), len(inputs), len(head.labels) or 1)
    rows = np.zeros(shape, np.float32)
    computed = run_batches(
        model,
        inputs,
        exit_logits,
        lambda batch, logits: to_numpy(torch.stack(logits)),
        device=device,
        batch_tokens=batch_tokens,
    )
    for units, _, logits in computed:
        rows[:, units] = logits
    return rows


def decoded(
    card: TaskCard,
    inputs: Inputs,
    examples: Sequence[TaskExample],
    logits: Float[np.ndarray, "units outputs"],
) -> list[Prediction]:
    """The predictions that logits stand for."""
    batch = HostBatch(arrays={}, longest=0, most_needed=1, head=card.task.head)
    batches = [(np.arange(len(inputs)), batch, Outputs(logits=logits))]
    return decode(Query(card=card, inputs=inputs, examples=examples, batches=batches))
