"""One text or two in, one row out: [CLS] a [SEP], or [CLS] a [SEP] b [SEP]; classify, pair, regress
(ALBERT A.3).

What is too long loses tokens from its end, of two texts always the longer one.
"""

import math
from collections.abc import Sequence

import numpy as np

from litebert.errors import DataError
from litebert.tasks.card import TaskCard, shown
from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.encode.pool import Slices, pool_texts
from litebert.tasks.examples import TextExample
from litebert.text.tokenizer import Tokenizer


def encode_texts(card: TaskCard, examples: Sequence[TextExample], tokenizer: Tokenizer) -> Inputs:
    """One row for each example."""
    texts = [example.first for example in examples]
    pairs = np.array(
        [number for number, example in enumerate(examples) if example.second is not None],
        dtype=np.int64,
    )
    pool, slices = pool_texts(
        [*texts, *(example.second for example in examples if example.second is not None)], tokenizer
    )
    first, second = slices[: len(texts)].copy(), np.full((len(texts), 2), -1)
    second[pairs] = slices[len(texts) :]
    cut_longest(first, second, card.max_length)
    return Inputs(
        head=card.task.head,
        special_ids=(tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id),
        pool=pool,
        first=first,
        second=second,
        examples=np.arange(len(examples)),
        targets=_text_targets(card, examples),
    )


def cut_longest(first: Slices, second: Slices, max_length: int) -> None:
    """Shorten in place, token by token the longer of the two from its end:
    `lengths_after_truncation` for many pairs."""
    is_pair = second[:, 0] >= 0
    lengths, others = first[:, 1] - first[:, 0], second[:, 1] - second[:, 0]
    room = max_length - 2 - is_pair
    kept = np.where(
        is_pair,
        np.maximum(np.minimum(lengths, room - others), np.minimum(lengths, (room + 1) // 2)),
        room,
    )
    kept = np.minimum(kept, lengths)
    first[:, 1] = first[:, 0] + kept
    second[:, 1] = second[:, 0] + np.minimum(others, room - kept)


def _text_targets(card: TaskCard, examples: Sequence[TextExample]) -> np.ndarray | None:
    if any(example.label is None for example in examples):
        return None
    if card.task.kind == "regress":
        return np.array([_number(example) for example in examples], np.float32)
    numbers = {label: number for number, label in enumerate(card.task.labels)}
    unknown = next((example for example in examples if example.label not in numbers), None)
    if unknown is not None:
        raise DataError(
            f"{unknown.where or unknown.key}: label {unknown.label!r} is not among those of "
            f"{card.task.name}: "
            f"{shown(card.task.labels)}"
        )
    return np.array([numbers[str(example.label)] for example in examples], np.int64)


def _number(example: TextExample) -> float:
    assert example.label is not None
    try:
        number = float(example.label)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise DataError(f"{example.where or example.key}: label {example.label!r} is not a number")
    return number
