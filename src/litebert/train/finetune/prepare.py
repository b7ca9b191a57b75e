"""What fine-tuning starts from: a pretrained checkpoint and a task's examples in; a model with a
new head, and encoded examples, out.

Examples are encoded once for all seeds. The encoder may come from pretraining or from another task:
RTE, STS-B and MRPC start from an MNLI model in the paper.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch

from litebert.config import POOLED_HEADS, HeadConfig, ModelConfig
from litebert.errors import CheckpointError, ConfigError, DataError
from litebert.model.model import Model
from litebert.recipes import FinetuneRecipe
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.encode.encode import encode
from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.examples import AnswerExample, TaskExample
from litebert.tasks.tables.split import cut
from litebert.tasks.task import TaskCard, TaskData
from litebert.text.tokenizer import Tokenizer

ASIDE = 0.1
"""Fraction of train on which `null_search="train"` searches the threshold for "no answer"."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedSplit:
    """Examples, and the same as the model reads them."""

    examples: Sequence[TaskExample]
    inputs: Inputs


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """What a run reads."""

    card: TaskCard
    train: EncodedSplit
    dev: EncodedSplit
    threshold_split: EncodedSplit | None = None
    """Of train, and not trained on: what the threshold for "no answer" is searched on; none where
    dev is."""


def prepare(recipe: FinetuneRecipe, data: TaskData, tokenizer: Tokenizer) -> Prepared:
    """Encode train and dev; DataError where there is nothing to learn from or to score on."""
    if recipe.task != data.task.name:
        raise ConfigError(
            f"the recipe is for {recipe.task}, the data are {data.task.name}; take the recipe of "
            "the task"
        )
    card = TaskCard(
        task=data.task,
        max_length=recipe.max_length,
        stride=recipe.stride,
        max_question=recipe.max_question,
        max_answer=recipe.max_answer,
        beam=recipe.beam,
    )
    train, threshold_split = _examples(data, "train"), None
    if recipe.null_search == "train" and data.task.has_null:
        train, searched = cut(train, ASIDE, _shared, seed=0)
        if not searched or not train:
            raise DataError(
                f"--null-search train keeps a tenth of the {len(train) + len(searched):,} training "
                "questions aside, by title, and "
                "there are too few titles; search on dev instead"
            )
        threshold_split = _encode(card, "train", searched, tokenizer)
    splits = {
        "train": _encode(card, "train", train, tokenizer),
        "dev": _encode(card, "dev", _examples(data, "dev"), tokenizer),
    }
    return Prepared(card=card, **splits, threshold_split=threshold_split)


def head_config(source: Checkpoint, card: TaskCard, recipe: FinetuneRecipe) -> ModelConfig:
    """The source's encoder with the recipe's dropout, and the task's head."""
    dropout = recipe.encoder_dropout
    encoder = replace(
        source.model.config.encoder,
        embedding_dropout=dropout,
        attention_dropout=dropout,
        attention_output_dropout=dropout,
        ffn_dropout=dropout,
        pooler=source.model.config.encoder.pooler or card.task.head in POOLED_HEADS,
    )
    head = HeadConfig(kind=card.task.head, labels=card.task.labels, dropout=recipe.head_dropout)
    return ModelConfig(encoder=encoder, heads=(head,))


def starting_model(
    source: Checkpoint, config: ModelConfig, recipe: FinetuneRecipe, *, attempt: int
) -> Model:
    """The source's encoder and a new head, drawn anew for each seed and attempt; the same on every
    rank."""
    digest = hashlib.sha256(repr(("head", recipe.seed, attempt)).encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    model = Model(config, checkpoint_every=recipe.checkpoint_every)
    if not recipe.random_weights:
        keys = model.encoder.load_state_dict(source.model.encoder.state_dict(), strict=False)
        assert not keys.unexpected_keys
        assert all(name.startswith("pooler.") for name in keys.missing_keys), (
            "a pooler alone may be new"
        )
    return model


def tokenizer_of(source: Checkpoint, folder: object) -> Tokenizer:
    """The tokenizer a model was trained with; an error where its folder has none."""
    if source.tokenizer is None:
        raise CheckpointError(
            f"the model in {folder} has no tokenizer, so it cannot read text; put its spiece.model "
            "there"
        )
    return source.tokenizer


def fingerprint(model: Model) -> str:
    """A sha256 of the encoder's shape and weights: what a run started from."""
    digest = hashlib.sha256(repr(sorted(model.config.encoder.to_dict().items())).encode())
    for name, tensor in sorted(model.encoder.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _examples(data: TaskData, split: str) -> Sequence[TaskExample]:
    examples = data.splits.get(split, ())
    if not examples:
        there = ", ".join(name for name, some in data.splits.items() if some) or "nothing"
        hint = (
            "; --split-dev 0.2 trains on a part of dev"
            if split == "train" and data.splits.get("dev")
            else ""
        )
        raise DataError(
            f"{data.task.name} is fine-tuned on train and scored on dev; its files have no "
            f"{split}, only: {there}{hint}"
        )
    return examples


def _encode(
    card: TaskCard, split: str, examples: Sequence[TaskExample], tokenizer: Tokenizer
) -> EncodedSplit:
    encoded = EncodedSplit(examples=examples, inputs=encode(card, examples, tokenizer))
    if encoded.inputs.targets is None or not len(encoded.inputs):
        raise DataError(
            f"{split} of {card.task.name} has {len(examples)} examples, and not all have an "
            "answer; label them all"
        )
    return encoded


def _shared(example: TaskExample) -> tuple[str, ...]:
    """What questions must not have in common on both sides: the title or, where there is none, the
    context."""
    question = cast(AnswerExample, example)
    return (question.slice or question.context,)
