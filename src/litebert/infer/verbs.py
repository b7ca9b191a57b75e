"""What a model can do, and what each verb reads: heads and task in, verbs with their cards out;
arguments in, examples or token ids out. No torch.

A model fine-tuned here carries its task card. For one without (Hugging Face's), the heads tell.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from litebert.checks import shorten
from litebert.config import HeadKind, ModelConfig
from litebert.errors import ConfigError, DataError
from litebert.packing import assemble, num_special
from litebert.shapes import Float
from litebert.tasks.encode.encode import Row
from litebert.tasks.examples import (
    AnswerExample,
    ChoiceExample,
    Kind,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.tasks.predictions import no_number
from litebert.tasks.task import Task, TaskCard
from litebert.text.tokenizer import Tokenizer

Verb = Literal["fill", "embed", "classify", "pair", "regress", "choose", "answer", "tag"]
EngineChoice = Literal["auto", "torch", "onnx", "openvino"]
DType = Literal["auto", "float32", "bfloat16"]
"""Of the layers; auto is bfloat16 on a GPU that supports it, float32 elsewhere."""

MASK = "[MASK]"
_PRIVATE_USE = range(0xE000, 0xF900)  # characters that Unicode gives no meaning
_HEAD_VERBS: dict[HeadKind, tuple[Kind, ...]] = {
    "classify": ("classify", "pair"),
    "multilabel": ("classify", "pair"),
    "regress": ("regress",),
    "choose": ("choose",),
    "span": ("answer",),
    "joint_span": ("answer",),
    "tag": ("tag",),
}


class Guess(NamedTuple):
    """A candidate for a mask."""

    token: str
    """Without SentencePiece's mark of a word start."""
    probability: float


Guesses = list[list[Guess]]
"""Of one text: for each [MASK], in order, its best tokens, the likeliest first."""


def task_cards(config: ModelConfig, card: TaskCard | None) -> dict[Verb, TaskCard]:
    """A card for each task verb that the model has a head for."""
    if card is not None:
        card.check_fits(config)
        return {card.task.kind: card}
    cards: dict[Verb, TaskCard] = {}
    for head in config.heads:
        for kind in _HEAD_VERBS.get(head.kind, ()):
            task = Task(
                name=kind, kind=kind, scores=(), labels=head.labels, head=head.kind, has_null=False
            )
            cards[kind] = TaskCard(task=task, max_length=config.encoder.max_positions)
    return cards


def supported_verbs(config: ModelConfig, cards: dict[Verb, TaskCard]) -> tuple[Verb, ...]:
    """All that the model can do; any encoder can embed."""
    fills = config.generator is not None or any(head.kind == "masked" for head in config.heads)
    supported = {*cards, "embed", *(["fill"] if fills else [])}
    return tuple(verb for verb in get_args(Verb) if verb in supported)


def check_verb(
    verb: str, supported: tuple[Verb, ...], card: TaskCard | None, *, lacks_generator: bool = False
) -> None:
    """ConfigError for what the model cannot do; the message says what it can."""
    if verb in supported:
        return
    origin = "" if card is None else f" (it was fine-tuned for {card.task.name})"
    cure = f"fine-tune one: litebert finetune {verb} --model …"
    if verb == "fill":
        cure = (
            "its generator, which fills masks, is not exported: take the checkpoint with --engine "
            "torch"
            if lacks_generator
            else "pretraining adds the head that fills"
        )
    raise ConfigError(f"this model cannot {verb}{origin}; it can {' and '.join(supported)}; {cure}")


def check_text(name: str, value: Any) -> str:
    """The value itself; ConfigError unless it is a text, DataError for an empty one, as in
    files."""
    if not isinstance(value, str):
        kind = type(value).__name__
        raise ConfigError(f"expected a text for {name}; got {kind}: {shorten(value)}")
    if not value.strip():
        raise DataError(f"the text for {name} is empty; leave it out, or write what is to be read")
    return value


def check_guesses(guesses: Guesses) -> Guesses:
    """The value itself; CheckpointError where a probability is NaN."""
    if any(math.isnan(guess.probability) for mask in guesses for guess in mask):
        raise no_number()
    return guesses


def check_vectors(vectors: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The value itself; CheckpointError where a number is NaN."""
    if np.isnan(vectors).any():
        raise no_number()
    return vectors


def text_example(first: Any, second: Any = None) -> TextExample:
    return TextExample(
        key="",
        first=check_text("first", first),
        second=None if second is None else check_text("second", second),
    )


def choice_example(context: Any, question: Any, options: Any) -> ChoiceExample:
    texts = tuple(check_text("an option", option) for option in options)
    if len(texts) < 2:
        raise ConfigError(f"choose needs two or more options; got {len(texts)}")
    return ChoiceExample(
        key="",
        context=context if context == "" and question else check_text("context", context),
        question=question if question == "" and context else check_text("question", question),
        options=texts,
    )


def answer_example(question: Any, context: Any) -> AnswerExample:
    return AnswerExample(
        key="",
        question=check_text("question", question),
        context=check_text("context", context),
    )


def tag_example(words: Any) -> TagExample:
    """A list of words, or a text that is split at white space."""
    split = words.split() if isinstance(words, str) else list(words)
    if not split:
        raise DataError("there is no word to tag; leave the text out, or write some")
    return TagExample(key="", words=tuple(check_text("a word", word) for word in split))


def num_characters(example: TaskExample) -> int:
    """Characters of text that an example makes the model read."""
    return _SIZES[type(example)](example)


_SIZES: dict[type, Callable[[Any], int]] = {
    TextExample: lambda example: len(example.first) + len(example.second or ""),
    ChoiceExample: lambda example: (
        (len(example.context) + len(example.question)) * len(example.options)
    ),
    AnswerExample: lambda example: len(example.question) + len(example.context),
    TagExample: lambda example: sum(map(len, example.words)),
}


def encode_masked(tokenizer: Tokenizer, text: str, *, max_length: int | None) -> Row:
    """[CLS] text [SEP] with the mask's id at every [MASK].

    The text around a mask is tokenized as if a word stood there: after "[MASK]." the period
    continues a word, after "[MASK] ." it starts one. DataError without a [MASK], or with one beyond
    `max_length` tokens (None: the row is not cut).
    """
    first, *others = text.split(MASK)
    if not others:
        raise DataError(
            f"there is no {MASK} in the text {shorten(text)}; write it where a word is to be found"
        )
    ids = tokenizer.encode(first)
    # An unused character in place of the masked word: no token spans it and the text behind.
    stand_in = unused_character(tokenizer)
    for rest in others:
        ids += [tokenizer.mask_id, *tokenizer.encode_behind(stand_in, rest)]
    if max_length is not None:
        last = max(position for position, id in enumerate(ids) if id == tokenizer.mask_id)
        room = max_length - num_special(False)
        if last + 1 > room:
            raise DataError(
                f"a {MASK} is token {last + 2} of the text {shorten(text)}, the model reads "
                f"{max_length}; shorten what comes before it"
            )
        ids = ids[:room]
    row, _ = assemble(ids, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id)
    return np.array(row, np.int64)


@lru_cache(maxsize=4)
def unused_character(tokenizer: Tokenizer) -> str:
    """A character that no token of the vocabulary contains."""
    used = set().union(*tokenizer.tokens)
    return next(chr(code) for code in _PRIVATE_USE if chr(code) not in used)
