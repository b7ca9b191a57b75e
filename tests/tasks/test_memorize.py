"""From examples to losses to predictions: what a model has learned by heart it says again, in every
kind of task."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from litebert.model.batch import DeviceBatch
from litebert.tasks.encode.encode import encode
from litebert.tasks.examples import (
    AnswerExample,
    ChoiceExample,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.tasks.heads.heads import predict_inputs, task_losses
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    MultiLabelPrediction,
    NumberPrediction,
    Prediction,
    SpanPrediction,
    TagPrediction,
)
from litebert.text.tokenizer import Tokenizer
from tests.helpers.task_examples import CASES, made_card, made_examples, made_model


def said(prediction: Prediction) -> Any:
    match prediction:
        case LabelPrediction(label=label):
            return label
        case MultiLabelPrediction(labels=labels):
            return labels[0] if len(labels) == 1 else labels
        case NumberPrediction(value=value):
            return pytest.approx(value, abs=0.5)
        case ChoicePrediction(index=index):
            return index
        case TagPrediction(tags=tags):
            return tags
        case SpanPrediction():
            best = prediction.best
            return None if best is None else (best.text, best.start)


def true(example: TaskExample) -> Any:
    match example:
        case TextExample(label=label) | ChoiceExample(label=label):
            return label
        case TagExample(tags=tags):
            return tags
        case AnswerExample(answers=answers):
            return (answers[0].text, answers[0].start) if answers else None


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_what_was_learned_by_heart_is_said_again(
    tokenizer: Tokenizer, kind: Any, head: Any
) -> None:
    card = made_card(kind, head, max_length=48, null_threshold=0.0)
    examples = [
        told(example, number) for number, example in enumerate(made_examples(kind, 6, seed=1))
    ]
    inputs, model = encode(card, examples, tokenizer), made_model(card, tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    units = inputs.batch(np.arange(len(inputs)))
    batch = DeviceBatch.of(units.padded())
    for _ in range(150):
        optimizer.zero_grad()
        sums = task_losses(model, batch)
        (sums.loss / units.num_targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    actual = predict_inputs(model, card, inputs, examples)
    assert [said(prediction) for prediction in actual] == [true(example) for example in examples]


def told(example: TaskExample, number: int) -> TaskExample:
    """The example with a word of its own, so that no two are alike."""
    mark = ["sailor", "whale", "farmer", "goat", "pilot", "moon"][number]
    match example:
        case TextExample(first=first):
            return replace(example, first=f"{mark} {first}")
        case ChoiceExample(options=options):
            return replace(
                example,
                context=f"{mark} {example.context}",
                options=tuple(f"{o} {n}" for n, o in enumerate(options)),
            )
        case AnswerExample(question=question):
            return replace(example, question=f"{mark} {question}")
    return example
