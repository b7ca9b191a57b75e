"""A question with options in, a row for each option out: [CLS] context [SEP] question and option
[SEP] (RACE; ALBERT A.3).
 Of question and option the last tokens are read, of the context the first. A context is tokenized
once for all its rows.
"""

import re
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from litebert.errors import DataError
from litebert.tasks.card import TaskCard
from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.encode.pool import pool_texts
from litebert.tasks.examples import ChoiceExample
from litebert.text.tokenizer import Tokenizer

MAX_CHOICE = 128
"""Tokens of question and option that are read; half of the room where the model reads less than
twice as many."""
_BLANK = re.compile("_+")


def encode_choices(
    card: TaskCard, examples: Sequence[ChoiceExample], tokenizer: Tokenizer
) -> Inputs:
    """A row for each option: [CLS] context [SEP] question and option [SEP]."""
    sizes = np.array([len(example.options) for example in examples], np.int64)
    contexts = [example.context for example in examples]
    choices = [
        fill_in(example.question, option) for example in examples for option in example.options
    ]
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
    """RACE's rule: fill_in("She was _ .", "glad") -> "She was glad ."; without a blank the option
    follows the question."""
    return _BLANK.sub(lambda _: option, question) if "_" in question else f"{question} {option}"


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
