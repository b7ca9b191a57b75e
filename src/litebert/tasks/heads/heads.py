"""The table of heads, and what is done with it: losses of a batch, after the last layer or over all
depths that have exits; predictions for examples, and averages of predictions over models.

Predictions are computed in batches of at most `batch_tokens` padded tokens whose units have like
lengths; on a GPU in bfloat16 rows are packed and nothing is padded. Neither changes a prediction.
Evaluation, ensembles and the Predictor all call `predict`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from litebert.config import POOLED_HEADS
from litebert.errors import ConfigError, DataError
from litebert.kernels.gate import can_pack
from litebert.model.batch import DeviceBatch
from litebert.model.layers import States
from litebert.model.model import Model
from litebert.packing import HostBatch, budget_batches, length_bucket
from litebert.tasks.decode.decode import Outputs, Query, decode
from litebert.tasks.encode.encode import encode
from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.examples import TaskExample
from litebert.tasks.heads.head import Head, TaskSums, to_numpy, without_padding
from litebert.tasks.heads.labels import Choose, Classify, MultiLabel, Regress, Tag
from litebert.tasks.heads.spans import JointSpan, PlainSpan
from litebert.tasks.predictions import Prediction
from litebert.tasks.task import Task, TaskCard
from litebert.text.tokenizer import Tokenizer

Computed = TypeVar("Computed")
Result = TypeVar("Result")
HEADS: dict[str, Head] = {
    "classify": Classify(),
    "multilabel": MultiLabel(),
    "regress": Regress(),
    "choose": Choose(),
    "span": PlainSpan(),
    "joint_span": JointSpan(),
    "tag": Tag(),
}


def task_losses(model: Model, batch: DeviceBatch, class_weights: Tensor | None = None) -> TaskSums:
    """The losses of a batch, on its device; `class_weights` are those of the task's labels."""
    assert batch.head is not None
    targets, states = targets_of(batch), task_states(model, batch)
    return HEADS[batch.head].loss(model, batch, states, targets, class_weights)


def exit_losses(
    model: Model,
    batch: DeviceBatch,
    class_weights: Tensor | None = None,
    *,
    distillation: float,
    temperature: float,
) -> TaskSums:
    """The loss over all depths, which is PABEE's (Zhou et al. 2020): each depth weighs as much as
    it is deep, so that the last counts most. Every earlier depth also learns from the answer of the
    last, which learns from the targets alone.

    Σ k (loss_k + distillation · divergence_k) / Σ k over the depths k; the last has no divergence.
    `correct` is the last depth's.
    """
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


def targets_of(batch: DeviceBatch) -> Tensor:
    """What a batch is learned by; DataError where it has no labels."""
    if "targets" not in batch.head_inputs:
        raise DataError(
            "these examples have no labels, so there is nothing to learn from; give a labeled split"
        )
    return batch.head_inputs["targets"]


def task_states(model: Model, batch: DeviceBatch) -> States:
    """What the heads read: (rows, 1, H) of [CLS] where a head pools, which saves most of the last
    layer; (rows, seq, H) for spans; the states of all tokens for words."""
    states = batch.states(model.encoder)
    if batch.head in POOLED_HEADS:
        return states.flatten(0, 1)[:, None]
    columns = batch.head_inputs.get("columns")
    return states if columns is None else states[0][columns]


def predict(
    model: Model,
    card: TaskCard,
    examples: Sequence[TaskExample],
    tokenizer: Tokenizer,
    *,
    device: torch.device | str = "cpu",
    batch_tokens: int | None = None,
) -> list[Prediction]:
    """One prediction for each example; `batch_tokens` is the most padded tokens in a batch, by
    default what suits the device."""
    inputs = encode(card, examples, tokenizer)
    return predict_inputs(model, card, inputs, examples, device=device, batch_tokens=batch_tokens)


def predict_inputs(
    model: Model,
    card: TaskCard,
    inputs: Inputs,
    examples: Sequence[TaskExample],
    *,
    device: torch.device | str = "cpu",
    batch_tokens: int | None = None,
    pause: Callable[[], None] = lambda: None,
) -> list[Prediction]:
    """`predict` for examples that are encoded already; `pause` is called between batches and may
    raise."""
    card.check_fits(model.config)
    head = HEADS[card.task.head]
    computed = run_batches(
        model,
        inputs,
        task_states,
        lambda batch, states: head.outputs(model, batch, states),
        device=device,
        batch_tokens=batch_tokens,
        pause=pause,
    )
    return decode(Query(card=card, inputs=inputs, examples=examples, batches=computed))


def label_logits(
    model: Model,
    inputs: Inputs,
    *,
    device: torch.device | str = "cpu",
    batch_tokens: int | None = None,
) -> Float[np.ndarray, "units outputs"]:
    """The logits of encoded examples with one label each, after the last layer."""
    head = model.config.heads[0]
    rows = np.zeros((len(inputs), len(head.labels)), np.float32)
    computed = run_batches(
        model,
        inputs,
        task_states,
        lambda batch, states: HEADS[head.kind].outputs(model, batch, states),
        device=device,
        batch_tokens=batch_tokens,
    )
    for units, _, outputs in computed:
        rows[units] = outputs.logits
    return rows


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


def run_batches(
    model: Model,
    inputs: Inputs,
    compute: Callable[[Model, DeviceBatch], Computed],
    read: Callable[[DeviceBatch, Computed], Result],
    *,
    device: torch.device | str = "cpu",
    batch_tokens: int | None = None,
    pause: Callable[[], None] = lambda: None,
) -> Iterator[tuple[np.ndarray, HostBatch, Result]]:
    """For each batch of encoded examples the numbers of its units, the batch, and what `read`
    returns of what `compute` computed; only `read` waits for a GPU."""
    tokens = batch_tokens or default_batch_tokens(device)
    plan = budget_batches(inputs.lengths, tokens=tokens, sizes=inputs.num_rows)
    longest = length_bucket(int(inputs.lengths.max(initial=1)), model.config.encoder.max_positions)
    with _evaluating(model), torch.no_grad():
        is_packed = can_pack(model, longest)

        def prepare(units: np.ndarray) -> HostBatch:
            batch = inputs.batch(units)
            return batch.packed(longest=longest) if is_packed else batch.padded()

        ready = prepare(plan[0]) if plan else None
        for number, units in enumerate(plan):
            pause()
            assert ready is not None
            host, batch = ready, DeviceBatch.of(ready, device)
            states = compute(model, batch)
            # prefetched while a GPU is busy; whoever reads the states waits for it
            ready = prepare(plan[number + 1]) if number + 1 < len(plan) else None
            yield units, host, read(batch, states)


def average(task: Task, predictions: Sequence[Sequence[Prediction]]) -> list[Prediction]:
    """The predictions of an ensemble; `predictions` are those of each model for the same
    examples."""
    if not predictions or len({len(each) for each in predictions}) > 1:
        raise ConfigError(
            "an ensemble needs models that answered the same examples; got "
            f"{[len(each) for each in predictions]}"
        )
    if len(predictions) == 1:
        return list(predictions[0])
    head = HEADS[task.head]
    return [head.average(models) for models in zip(*predictions, strict=True)]


def default_batch_tokens(device: torch.device | str) -> int:
    """Padded tokens in a batch: a CPU is fastest while they stay in its cache."""
    return 2048 if torch.device(device).type == "cpu" else 16384


@contextmanager
def _evaluating(model: Model) -> Iterator[None]:
    """Evaluation mode, without dropout; restored afterwards."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
