"""Examples in, inputs out: one encoder for each kind of task, and the same Inputs from all of
them."""

from collections.abc import Callable, Sequence
from typing import Any

from litebert.errors import DataError
from litebert.tasks.card import TaskCard
from litebert.tasks.encode.answer import encode_answers
from litebert.tasks.encode.choice import encode_choices
from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.encode.tag import encode_tags
from litebert.tasks.encode.text import encode_texts
from litebert.tasks.examples import (
    AnswerExample,
    ChoiceExample,
    Kind,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.text.tokenizer import Tokenizer

Encoder = Callable[[TaskCard, Sequence[Any], Tokenizer], Inputs]

ENCODERS: dict[Kind, tuple[type[TaskExample], Encoder]] = {
    "classify": (TextExample, encode_texts),
    "pair": (TextExample, encode_texts),
    "regress": (TextExample, encode_texts),
    "choose": (ChoiceExample, encode_choices),
    "answer": (AnswerExample, encode_answers),
    "tag": (TagExample, encode_tags),
}


def encode(card: TaskCard, examples: Sequence[TaskExample], tokenizer: Tokenizer) -> Inputs:
    """The model's inputs of all examples, in their order. Texts are tokenized once, however many
    examples share them."""
    wanted, encoder = ENCODERS[card.task.kind]
    stray = next((example for example in examples if not isinstance(example, wanted)), None)
    if stray is not None:
        raise DataError(
            f"{card.task.name} asks about a {wanted.__name__}, {stray.key!r} is a "
            f"{type(stray).__name__}"
        )
    return encoder(card, examples, tokenizer)
