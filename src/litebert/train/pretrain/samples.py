"""Filled masks to show a person: a model and a held-out batch in; pieces, truths and guesses
out."""

from typing import Any

import torch

from litebert.data.batch import Batch
from litebert.model.batch import DeviceBatch
from litebert.model.model import Model
from litebert.objective import needed_states
from litebert.text.tokenizer import Tokenizer


@torch.no_grad()
def filled_masks(
    model: Model, batch: Batch, tokenizer: Tokenizer, *, count: int = 6, top: int = 5
) -> list[dict[str, Any]]:
    """The first `count` examples, each with its pieces, masked places, true pieces and the model's
    best guesses."""
    device = model.encoder.embedding.token.weight.device
    batch = batch.rows(0, count)
    training = model.training
    model.eval()
    tensors = DeviceBatch.of(batch.padded(), device)
    states = needed_states(model, tensors)
    best = (
        model.masked_logits(states[:, None], tensors.head_inputs["masked"])
        .float()
        .softmax(-1)
        .topk(top)
    )
    model.train(training)
    examples: list[dict[str, Any]] = [
        {
            "pieces": [tokenizer.tokens[i] for i in row[real]],
            "masked": [],
            "truth": [],
            "guesses": [],
        }
        for row, real in zip(batch.token_ids, batch.mask, strict=True)
    ]
    width = batch.token_ids.shape[1]
    for position, label, values, ids in zip(
        batch.masked_positions.tolist(),
        batch.masked_labels.tolist(),
        best.values.tolist(),
        best.indices.tolist(),
        strict=True,
    ):
        example = examples[position // width]
        example["masked"].append(position % width)
        example["truth"].append(tokenizer.tokens[label])
        example["guesses"].append(
            [[tokenizer.tokens[i], round(value, 4)] for i, value in zip(ids, values, strict=True)]
        )
    return examples
