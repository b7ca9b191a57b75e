"""Examples in, Inputs out: `encode` for every kind of task, with the encoders of texts and options.

A text or pair is one row: [CLS] a [SEP], or [CLS] a [SEP] b [SEP] (classify, pair, regress); one
that is too long loses tokens from its end, of two texts always the longer one. A question with
options is a row for each option: [CLS] context [SEP] question and option [SEP] (RACE; ALBERT A.3).
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from litebert.checks import shorten
from litebert.errors import DataError
from litebert.packing import keep_longest_first, num_special
from litebert.shapes import Int
from litebert.tasks.encode.inputs import Inputs, pool_texts
from litebert.tasks.encode.windows import encode_answers, encode_tags
from litebert.tasks.examples import (
    AnswerExample,
    ChoiceExample,
    Kind,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.tasks.task import TaskCard, shown
from litebert.text.tokenizer import Tokenizer

_MAX_CHOICE = 128
"""Tokens of question and option that are read; half of the row where that is less."""
_BLANK = re.compile("_+")
Row = Int[np.ndarray, " _tokens"]


def encode(card: TaskCard, examples: Sequence[TaskExample], tokenizer: Tokenizer) -> Inputs:
    """The model's inputs of all examples, in their order. Texts are tokenized once, however many
    examples share them."""
    expected, encoder = _ENCODERS[card.task.kind]
    stray = next((example for example in examples if not isinstance(example, expected)), None)
    if stray is not None:
        raise DataError(
            f"{card.task.name} asks about a {expected.__name__}, {shorten(stray.key)} is a "
            f"{type(stray).__name__}"
        )
    return encoder(card, examples, tokenizer)


def encode_texts(
    tokenizer: Tokenizer, texts: Sequence[str], *, max_length: int, num_threads: int = 1
) -> list[Row]:
    """[CLS] text [SEP] for every text, cut at its end to `max_length` tokens."""
    ids, bounds = tokenizer.encode_flat(texts, num_threads=num_threads)
    ends = np.minimum(bounds[1:], bounds[:-1] + max_length - num_special(False))
    first, last = np.array([tokenizer.cls_id], ids.dtype), np.array([tokenizer.sep_id], ids.dtype)
    return [
        np.concatenate([first, ids[start:end], last])
        for start, end in zip(bounds.tolist(), ends.tolist(), strict=False)
    ]


def fill_in(question: str, option: str) -> str:
    """RACE's rule: fill_in("She was _ .", "glad") -> "She was glad ."; without a blank the option
    follows the question."""
    return _BLANK.sub(lambda _: option, question) if "_" in question else f"{question} {option}"


def max_choice(card: TaskCard) -> int:
    """Tokens of question and option that are read, beside a context."""
    return min(_MAX_CHOICE, (card.max_length - num_special(True)) // 2)


def _encode_texts(card: TaskCard, examples: Sequence[TextExample], tokenizer: Tokenizer) -> Inputs:
    """One row for each example, shortened token by token: of two texts the longer, at its end."""
    texts = [example.first for example in examples]
    seconds = [example.second for example in examples if example.second is not None]
    is_pair = np.array([example.second is not None for example in examples], bool)
    pool, slices = pool_texts([*texts, *seconds], tokenizer)
    first, second = slices[: len(texts)].copy(), np.full((len(texts), 2), -1)
    second[is_pair] = slices[len(texts) :]
    room = card.max_length - num_special(False) - is_pair
    sizes = keep_longest_first(first[:, 1] - first[:, 0], second[:, 1] - second[:, 0], room)
    first[:, 1], second[:, 1] = first[:, 0] + sizes[0], second[:, 0] + sizes[1]
    return Inputs(
        head=card.task.head,
        special_ids=(tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id),
        pool=pool,
        first=first,
        second=second,
        examples=np.arange(len(examples)),
        targets=_text_targets(card, examples),
    )


def _text_targets(card: TaskCard, examples: Sequence[TextExample]) -> np.ndarray | None:
    if not all(example.is_labeled for example in examples):
        return None
    if card.task.kind == "regress":
        return np.array([_number(example) for example in examples], np.float32)
    numbers = {label: number for number, label in enumerate(card.task.labels)}
    for example in examples:
        unknown = next((label for label in example.labels() if label not in numbers), None)
        if unknown is not None:
            raise DataError(
                f"{example.where or example.key}: label {shorten(unknown)} is not among those of "
                f"{card.task.name}: {shown(card.task.labels)}"
            )
    if card.task.head == "multilabel":
        targets = np.zeros((len(examples), len(numbers)), np.float32)
        for row, example in zip(targets, examples, strict=True):
            row[[numbers[label] for label in example.labels()]] = 1
        return targets
    return np.array([numbers[str(example.label)] for example in examples], np.int64)


def _number(example: TextExample) -> float:
    try:
        number = example.number()
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise DataError(
            f"{example.where or example.key}: label {shorten(example.label)} is not a number"
        )
    return number


def _encode_choices(
    card: TaskCard, examples: Sequence[ChoiceExample], tokenizer: Tokenizer
) -> Inputs:
    """A row for each option, with the last tokens of question and option and the first of the
    context."""
    sizes = np.array([len(example.options) for example in examples], np.int64)
    contexts = [example.context for example in examples]
    choices = [
        fill_in(example.question, option) for example in examples for option in example.options
    ]
    pool, slices = pool_texts([*contexts, *choices], tokenizer)
    first, second = np.repeat(slices[: len(contexts)], sizes, 0), slices[len(contexts) :].copy()
    room = card.max_length - num_special(True)
    second[:, 0] = np.maximum(second[:, 0], second[:, 1] - max_choice(card))
    first[:, 1] = np.minimum(first[:, 1], first[:, 0] + room - (second[:, 1] - second[:, 0]))
    return Inputs(
        head=card.task.head,
        special_ids=(tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id),
        pool=pool,
        first=first,
        second=second,
        examples=np.arange(len(examples)),
        sizes=sizes,
        targets=_choice_targets(examples),
    )


def _choice_targets(examples: Sequence[ChoiceExample]) -> Int[np.ndarray, " units"] | None:
    labels = [example.label for example in examples]
    for example in examples:
        where, count = example.where or example.key, len(example.options)
        if not count:
            raise DataError(f"{where}: there is no option to choose")
        if example.label is not None and not 0 <= example.label < count:
            raise DataError(
                f"{where}: option {example.label} is said to be right, there are {count}, from 0"
            )
    return None if None in labels else np.array(labels, np.int64)


_ENCODERS: dict[
    Kind, tuple[type[TaskExample], Callable[[TaskCard, Sequence[Any], Tokenizer], Inputs]]
] = {
    "classify": (TextExample, _encode_texts),
    "pair": (TextExample, _encode_texts),
    "regress": (TextExample, _encode_texts),
    "choose": (ChoiceExample, _encode_choices),
    "answer": (AnswerExample, encode_answers),
    "tag": (TagExample, encode_tags),
}
