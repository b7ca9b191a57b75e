"""A fine-tuned model and examples in, predictions out, in the order of the examples.
 Units of like length share a batch of at most `batch_tokens` padded tokens, so that little is
padding; on a GPU in bfloat16 rows lie end to end, and none is. What a unit is beside changes
nothing. Dev evaluation, `litebert evaluate`, ensembles and the Predictor all ask here.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from litebert.model.model import Model
from litebert.tasks.card import TaskCard
from litebert.tasks.encode.batch import budget_batches
from litebert.tasks.encode.encode import encode
from litebert.tasks.encode.inputs import Inputs, spread
from litebert.tasks.encode.layout import can_pack, packed, reach
from litebert.tasks.examples import Kind, TaskExample
from litebert.tasks.heads.losses import Units, label_logits, task_states
from litebert.tasks.heads.span_answers import Batches, span_answers
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    NumberPrediction,
    Prediction,
    TagPrediction,
)
from litebert.text.tokenizer import Tokenizer

BATCH_TOKENS = {"cpu": 2048}
"""Padded tokens in a batch: a CPU is fastest while they stay in its cache; other devices take
MOST_TOKENS."""
MOST_TOKENS = 16384


def predict(
    model: Model,
    card: TaskCard,
    examples: Sequence[TaskExample],
    tokenizer: Tokenizer,
    *,
    device: torch.device | str = "cpu",
    batch_tokens: int | None = None,
    pause: Callable[[], None] = lambda: None,
) -> list[Prediction]:
    """One prediction for each example; `pause` is called between batches and may raise.

    `batch_tokens` is the most padded tokens in a batch, None what suits the device; it changes
    nothing else.
    """
    inputs = encode(card, examples, tokenizer)
    return predict_inputs(
        model, card, inputs, examples, device=device, batch_tokens=batch_tokens, pause=pause
    )


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
    """`predict` for examples that are encoded already."""
    card.check_fits(model.config)
    tokens = batch_tokens or BATCH_TOKENS.get(torch.device(device).type, MOST_TOKENS)
    plan = budget_batches(inputs.lengths, tokens=tokens, sizes=inputs.num_rows)

    longest = reach(int(inputs.lengths.max(initial=1)), model.config.encoder.max_positions)
    with _evaluating(model):
        is_packed = can_pack(model, device, longest)

    def lay(units: np.ndarray) -> Callable[[], Units]:
        """Make a batch ready on the host; the call moves it to the device."""
        batch = inputs.batch(units)
        if not is_packed:
            return lambda: batch.to(device)
        layout = packed(batch, longest=longest)
        return lambda: layout.tensors(device)

    def states() -> Iterator[tuple[np.ndarray, Units, Tensor]]:
        ready = lay(plan[0]) if plan else None
        for number, units in enumerate(plan):
            pause()
            assert ready is not None
            batch = ready()
            found = task_states(model, batch)
            # while a GPU is busy; whoever reads the states waits for it
            ready = lay(plan[number + 1]) if number + 1 < len(plan) else None
            yield units, batch, found

    with _evaluating(model), torch.no_grad():
        return READERS[card.task.kind](model, card, inputs, examples, states())


@contextmanager
def _evaluating(model: Model) -> Iterator[None]:
    """No dropout; as it was before when this ends."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _labels(
    model: Model, card: TaskCard, inputs: Inputs, examples: Sequence[TaskExample], batches: Batches
) -> list[Prediction]:
    labels = card.task.labels
    found = np.zeros((len(inputs), len(labels)), np.float32)
    for units, batch, states in batches:
        found[units] = _probabilities(label_logits(model, batch, states))
    best = found.argmax(1).tolist()
    return [
        LabelPrediction(label=labels[number], probabilities=dict(zip(labels, row, strict=True)))
        for number, row in zip(best, found.tolist(), strict=True)
    ]


def _numbers(
    model: Model, card: TaskCard, inputs: Inputs, examples: Sequence[TaskExample], batches: Batches
) -> list[Prediction]:
    found = np.zeros(len(inputs), np.float32)
    for units, _, states in batches:
        found[units] = model.logits("regress", states).float()[:, 0].cpu().numpy()
    return [NumberPrediction(value=value) for value in found.tolist()]


def _choices(
    model: Model, card: TaskCard, inputs: Inputs, examples: Sequence[TaskExample], batches: Batches
) -> list[Prediction]:
    found = np.zeros((len(inputs), int(inputs.num_rows.max(initial=1))), np.float32)
    for units, batch, states in batches:
        rows = _probabilities(label_logits(model, batch, states))
        found[units, : rows.shape[1]] = rows
    rows_and_sizes = zip(found.tolist(), inputs.num_rows.tolist(), strict=True)
    kept = [tuple(row[:size]) for row, size in rows_and_sizes]
    return [ChoicePrediction(index=int(np.argmax(row)), probabilities=row) for row in kept]


def _tags(
    model: Model, card: TaskCard, inputs: Inputs, examples: Sequence[TaskExample], batches: Batches
) -> list[Prediction]:
    assert inputs.sizes is not None
    bounds = np.append(0, np.cumsum(inputs.sizes))
    best, chance = np.zeros(bounds[-1], np.int64), np.zeros(bounds[-1], np.float32)
    for units, batch, states in batches:
        rows = _probabilities(label_logits(model, batch, states))
        at = spread(bounds, units)
        best[at], chance[at] = rows.argmax(1), rows.max(1)
    tags = [card.task.labels[number] for number in best.tolist()]
    chances = chance.tolist()
    # windows stand in the order of their examples, and each word in one of them
    ends = np.append(
        bounds[np.searchsorted(inputs.examples, np.arange(len(examples)))], bounds[-1]
    ).tolist()
    return [
        TagPrediction(tags=tuple(tags[start:stop]), probabilities=tuple(chances[start:stop]))
        for start, stop in pairwise(ends)
    ]


def _probabilities(logits: Tensor) -> Float[np.ndarray, "units outputs"]:
    probabilities: np.ndarray = logits.softmax(-1).cpu().numpy()
    return probabilities


READERS: dict[
    Kind, Callable[[Model, TaskCard, Inputs, Sequence[TaskExample], Batches], list[Prediction]]
] = {
    "classify": _labels,
    "pair": _labels,
    "regress": _numbers,
    "choose": _choices,
    "answer": span_answers,
    "tag": _tags,
}
