"""Examples in, inputs out: [CLS] a [SEP] b [SEP] with what each kind of task cuts where it is too long (ALBERT A.3).

classify, pair, regress: the longer text loses tokens from its end. choose: a row for each option, context and then question
with option; of these the last tokens stay, of the context the first. answer and tag read all of it in windows.
"""

import math
import re
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from litebert.errors import DataError
from litebert.tasks.card import TaskCard, shown
from litebert.tasks.encode_answer import encode_answers
from litebert.tasks.encode_tag import encode_tags
from litebert.tasks.examples import AnswerExample, ChoiceExample, TagExample, TaskExample, TextExample
from litebert.tasks.inputs import Inputs
from litebert.tasks.pool import Slices, pool_texts
from litebert.text.tokenizer import Tokenizer

MAX_CHOICE = 128
"""Tokens of question and option that are read, the last ones (choose)."""


def encode(card: TaskCard, examples: Sequence[TaskExample], tokenizer: Tokenizer) -> Inputs:
    """The model's inputs of all examples, in their order."""
    kind = card.task.kind
    wanted = {"choose": ChoiceExample, "answer": AnswerExample, "tag": TagExample}.get(kind, TextExample)
    stray = next((example for example in examples if not isinstance(example, wanted)), None)
    if stray is not None:
        raise DataError(f"{card.task.name} asks about a {wanted.__name__}, {stray.key!r} is a {type(stray).__name__}")
    if kind == "choose":
        return encode_choices(card, examples, tokenizer)  # type: ignore[arg-type]
    if kind == "answer":
        return encode_answers(card, examples, tokenizer)  # type: ignore[arg-type]
    if kind == "tag":
        return encode_tags(card, examples, tokenizer)  # type: ignore[arg-type]
    return encode_texts(card, examples, tokenizer)  # type: ignore[arg-type]


def encode_texts(card: TaskCard, examples: Sequence[TextExample], tokenizer: Tokenizer) -> Inputs:
    """One row for each example."""
    texts = [example.first for example in examples]
    pairs = np.array([number for number, example in enumerate(examples) if example.second is not None], dtype=np.int64)
    pool, slices = pool_texts([*texts, *(example.second for example in examples if example.second is not None)], tokenizer)
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
    """Shorten in place, token by token the longer of the two from its end: `lengths_after_truncation` for many pairs."""
    is_pair = second[:, 0] >= 0
    lengths, others = first[:, 1] - first[:, 0], second[:, 1] - second[:, 0]
    room = max_length - 2 - is_pair
    kept = np.where(is_pair, np.maximum(np.minimum(lengths, room - others), np.minimum(lengths, (room + 1) // 2)), room)
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
            f"{unknown.where or unknown.key}: label {unknown.label!r} is not among those of {card.task.name}: "
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


def encode_choices(card: TaskCard, examples: Sequence[ChoiceExample], tokenizer: Tokenizer) -> Inputs:
    """A row for each option: [CLS] context [SEP] question and option [SEP]."""
    sizes = np.array([len(example.options) for example in examples], np.int64)
    contexts = [example.context for example in examples]
    choices = [fill_in(example.question, option) for example in examples for option in example.options]
    pool, slices = pool_texts([*contexts, *choices], tokenizer)
    first, second = np.repeat(slices[: len(contexts)], sizes, 0), slices[len(contexts) :].copy()
    room = card.max_length - 3
    second[:, 0] = np.maximum(second[:, 0], second[:, 1] - min(MAX_CHOICE, room // 2))
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


def fill_in(question: str, option: str) -> str:
    """RACE's rule: fill_in("She was _ .", "glad") -> "She was glad ."; without a blank the option follows the question."""
    return _BLANK.sub(lambda _: option, question) if "_" in question else f"{question} {option}"


_BLANK = re.compile("_+")


def _choice_targets(examples: Sequence[ChoiceExample]) -> Int[np.ndarray, " units"] | None:
    labels = [example.label for example in examples]
    for example in examples:
        where, count = example.where or example.key, len(example.options)
        if not count:
            raise DataError(f"{where}: there is no option to choose")
        if example.label is not None and not 0 <= example.label < count:
            raise DataError(f"{where}: option {example.label} is said to be right, there are {count}, from 0")
    return None if None in labels else np.array(labels, np.int64)
