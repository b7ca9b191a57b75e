"""Examples of every kind about the tiny corpus, a card for each, and a model that answers at
random."""

import random
from dataclasses import replace
from typing import Any

import torch

from litebert.config import PRESETS, HeadConfig, HeadKind, ModelConfig
from litebert.model.model import Model
from litebert.tasks.examples import (
    Answer,
    AnswerExample,
    ChoiceExample,
    Kind,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.tasks.task import HEADS, Task, TaskCard
from litebert.testing import tiny_documents
from litebert.text.tokenizer import Tokenizer

LABELS: dict[Kind, tuple[str, ...]] = {
    "classify": ("no", "yes"),
    "pair": ("no", "maybe", "yes"),
    "tag": ("O", "B", "I"),
}
CASES: list[tuple[Kind, HeadKind]] = [
    *HEADS.items(),
    ("pair", "multilabel"),
    ("answer", "joint_span"),
]
"""Every kind with its head, and the other heads that some kinds may have."""


def made_card(kind: Kind, head: HeadKind | None = None, **changes: Any) -> TaskCard:
    """Windows of 32 tokens, so that contexts of the tiny corpus need several."""
    head = head or HEADS[kind]
    task = Task(
        name=kind,
        kind=kind,
        scores=("accuracy",),
        labels=LABELS.get(kind, ()),
        head=head,
        has_null=kind == "answer",
    )
    return TaskCard(**{"task": task, "max_length": 32, "max_answer": 6, **changes})


def made_model(
    card: TaskCard, tokenizer: Tokenizer, *, seed: int = 0, attention_dropout: float = 0.0
) -> Model:
    """Weights so large that answers differ from each other."""
    torch.manual_seed(seed)
    encoder = replace(
        PRESETS["tiny"],
        vocab_size=tokenizer.vocab_size,
        init_std=0.2,
        attention_dropout=attention_dropout,
    )
    head = HeadConfig(kind=card.task.head, labels=card.task.labels, dropout=0.1)
    return Model(ModelConfig(encoder=encoder, heads=(head,))).eval()


def made_examples(kind: Kind, count: int = 12, *, seed: int = 0) -> list[TaskExample]:
    """Of many lengths; about a third of the questions has no answer."""
    draw = random.Random(seed)
    documents = list(tiny_documents(count, seed=seed))
    return [
        MAKERS[kind](draw, str(number), sentences) for number, sentences in enumerate(documents)
    ]


def _text(draw: random.Random, key: str, sentences: list[str]) -> TextExample:
    return TextExample(
        key=key,
        first=" ".join(sentences[: draw.randint(1, 3)]),
        label=draw.choice(LABELS["classify"]),
    )


def _pair(draw: random.Random, key: str, sentences: list[str]) -> TextExample:
    first, second = (
        " ".join(sentences[: draw.randint(1, 3)]),
        " ".join(sentences[: -draw.randint(1, 3)]),
    )
    return TextExample(key=key, first=first, second=second, label=draw.choice(LABELS["pair"]))


def _number(draw: random.Random, key: str, sentences: list[str]) -> TextExample:
    return TextExample(key=key, first=sentences[0], second=sentences[-1], label=draw.uniform(0, 5))


def _choice(draw: random.Random, key: str, sentences: list[str]) -> ChoiceExample:
    options = tuple(
        " ".join(draw.sample(sentences[0].split(), draw.randint(1, 3)))
        for _ in range(draw.randint(2, 4))
    )
    question = draw.choice(["who sails ?", "the _ sails the cold wave ."])
    label = draw.randrange(len(options))
    return ChoiceExample(
        key=key, context=" ".join(sentences), question=question, options=options, label=label
    )


def _answer(draw: random.Random, key: str, sentences: list[str]) -> AnswerExample:
    context = " ".join(sentences)
    words = draw.choice(sentences).split()
    text = " ".join(words[draw.randint(0, 2) : draw.randint(3, 5)])
    answers = (Answer(text=text, start=context.index(text)),) if draw.random() < 2 / 3 else ()
    return AnswerExample(key=key, question="who is it ?", context=context, answers=answers)


def _tags(draw: random.Random, key: str, sentences: list[str]) -> TagExample:
    words = tuple(" ".join(sentences).split())
    return TagExample(key=key, words=words, tags=tuple(draw.choice(LABELS["tag"]) for _ in words))


MAKERS: dict[Kind, Any] = {
    "classify": _text,
    "pair": _pair,
    "regress": _number,
    "choose": _choice,
    "answer": _answer,
    "tag": _tags,
}
