"""What fine-tuning starts from: a pretrained checkpoint and a task's examples in; a model with a
new head, and encoded examples, out.

Examples are encoded once for all seeds. The encoder may come from pretraining or from another task:
RTE, STS-B and MRPC start from an MNLI model in the paper.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch

from litebert.checks import shorten
from litebert.config import (
    EXIT_HEADS,
    POOLED_HEADS,
    HeadConfig,
    ModelConfig,
    first_settings,
)
from litebert.errors import CheckpointError, ConfigError, DataError
from litebert.model.model import Model
from litebert.recipes import FinetuneRecipe
from litebert.recipes.class_weights import ClassWeights
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.encode.encode import encode
from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.examples import (
    AnswerExample,
    ChoiceExample,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.tasks.tables.split import cut
from litebert.tasks.task import Task, TaskCard, TaskData, shown
from litebert.text.tokenizer import Tokenizer

_UNKNOWN_SHARE, UNKNOWN_SAMPLE, _UNKNOWN_CHARACTERS = 0.02, 500, 2_000
"""Of tokens that a user hears of; of how many examples, and of how much of each text."""
_MOST_CALIBRATED = 10_000
"""Examples that are kept aside for calibrating early exit and probabilities, at most."""
_ASIDE = 0.1
"""Fraction of train on which `null_search="train"` searches the threshold for "no answer", and that
calibration keeps aside."""


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
    aside: EncodedSplit | None = None
    """Of train, and not trained on: what thresholds of early exit and the temperature are chosen
    on; none without exits and calibration."""
    exit_texts: Inputs | None = None
    """Texts of the user's that thresholds of early exit are chosen on instead, without labels."""
    class_weights: np.ndarray | None = None
    """Weight of each label in the loss; of several labels, of its positives; None for none."""


def unknown_tokens(examples: Sequence[TaskExample], tokenizer: Tokenizer) -> list[str]:
    """A note where many tokens of a sample of the examples are unknown to the model."""
    sample = examples[:: max(1, len(examples) // UNKNOWN_SAMPLE)]
    return unknown_in_texts([text for example in sample for text in _texts(example)], tokenizer)


def unknown_in_texts(texts: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """The same of a sample of texts."""
    texts = [text[:_UNKNOWN_CHARACTERS] for text in texts]
    num_tokens, unknown = 0, Counter[str]()
    for text, tokens in zip(texts, tokenizer.encode_with_offsets(texts), strict=True):
        num_tokens += len(tokens.ids)
        for index, (start, end) in zip(tokens.ids, tokens.offsets.tolist(), strict=True):
            if index == tokenizer.unk_id:
                unknown[text[start:end]] += 1
    share = unknown.total() / max(num_tokens, 1)
    if share <= _UNKNOWN_SHARE:
        return []
    commonest = unknown.most_common(1)[0][0]
    return [
        f"{share:.1%} of the tokens in a sample of the data are unknown to the model, most often "
        f"{shorten(commonest)}: it cannot tell them apart. Choose a model of the data's language, "
        "or pretrain one with a tokenizer trained on such text"
    ]


def _texts(example: TaskExample) -> Sequence[str]:
    match example:
        case TextExample():
            return [example.first] if example.second is None else [example.first, example.second]
        case ChoiceExample():
            return [example.context, example.question, *example.options]
        case AnswerExample():
            return [example.question, example.context]
        case TagExample():
            return [" ".join(example.words)]


def prepare(
    recipe: FinetuneRecipe,
    data: TaskData,
    tokenizer: Tokenizer,
    *,
    exit_texts: Sequence[TaskExample] | None = None,
) -> Prepared:
    """Encode train and dev, and texts to calibrate early exit on, if there are any; DataError where
    there is nothing to learn from or to score on."""
    if recipe.task != data.task.name:
        raise ConfigError(
            f"the recipe is for {recipe.task}, the data are {data.task.name}; take the recipe of "
            "the task"
        )
    scores = data.task.scores
    if recipe.class_weights and data.task.head == "classify" and "macro_f1" in scores:
        # accuracy, which the frequent labels rule, is not what weights are for
        scores = ("macro_f1", *(name for name in scores if name != "macro_f1"))
    card = TaskCard(
        task=replace(data.task, scores=scores),
        max_length=recipe.max_length,
        stride=recipe.stride,
        max_question=recipe.max_question,
        max_answer=recipe.max_answer,
        beam=recipe.beam,
        columns=data.columns,
        stratified=data.stratified,
        cut=data.cut,
    )
    train, threshold_split = _examples(data, "train"), None
    if recipe.null_search == "train" and data.task.has_null:
        train, searched = cut(train, _ASIDE, _shared, seed=0)
        if not searched or not train:
            raise DataError(
                f"--null-search train keeps a tenth of the {len(train) + len(searched):,} training "
                "questions aside, by title, and "
                "there are too few titles; search on dev instead"
            )
        threshold_split = _encode(card, "train", searched, tokenizer)
    if recipe.calibrate and card.task.head != "classify":
        raise ConfigError(
            f"--calibrate is for tasks with one label for each example; {card.task.name} has none"
        )
    has_exits, aside = recipe.exits != "none" and card.task.head in EXIT_HEADS, None
    if exit_texts is not None and not has_exits:
        raise ConfigError(
            "--exit-texts are for the thresholds of early exit, and the run has no exits; add "
            "--exits each, or leave them out"
        )
    needs_texts = has_exits and exit_texts is None
    if needs_texts or recipe.calibrate:
        share = share_aside(len(train), has_exits=needs_texts)
        train, apart = cut(train, share, lambda example: tuple(_texts(example)), seed=0)
        aside = _encode(card, "train", apart, tokenizer) if apart else None
    if recipe.calibrate and (aside is None or not train):
        raise DataError(
            "--calibrate keeps a tenth of train aside, and there are too few examples for that; "
            "leave it out"
        )
    encoded = _encode(card, "train", train, tokenizer)
    return Prepared(
        card=card,
        train=encoded,
        dev=_encode(card, "dev", _examples(data, "dev"), tokenizer),
        threshold_split=threshold_split,
        aside=aside,
        exit_texts=None if exit_texts is None else encode(card, exit_texts, tokenizer),
        class_weights=label_weights(recipe.class_weights, card.task, encoded.inputs),
    )


def share_aside(count: int, *, has_exits: bool) -> float:
    """The share of `count` examples that is kept aside: a tenth, at most 10,000 examples. Early
    exit is calibrated on 10,000 wherever that is no more than a fifth: a rate of 0.5 % is then
    known well enough for a few changed answers to pass."""
    most = _MOST_CALIBRATED / count
    return most if has_exits and most <= 2 * _ASIDE else min(_ASIDE, most)


def label_weights(spec: ClassWeights, task: Task, inputs: Inputs) -> np.ndarray | None:
    """The weight of each label. Where an example has one label, its mean over train is 1, so that
    the learning rate keeps its meaning; balanced is then n / (k n_label), as in scikit-learn. Of
    several labels it is that of the positives, and balanced makes them as heavy as the
    negatives."""
    if not spec:
        return None
    if task.head not in ("classify", "multilabel", "tag"):
        raise ConfigError(f"class weights are for tasks with labels; {task.name} has none")
    named = dict(spec.by_label)
    for label in named:
        if label not in task.labels:
            raise ConfigError(
                f"there is no label {shorten(label)} for a class weight; {task.name} has: "
                f"{shown(task.labels)}"
            )
    weights = np.array([named.get(label, 1.0) for label in task.labels])
    targets = inputs.targets
    assert targets is not None
    if task.head == "multilabel":
        share = targets.mean(0, dtype=np.float64)
        known = (share > 0) & (share < 1)
        ratio = np.divide(1 - share, share, out=np.ones_like(share), where=known)
        return ratio if spec.rule == "balanced" else weights
    counts = np.bincount(targets, minlength=len(task.labels)).astype(np.float64)
    if spec.rule == "balanced":
        weights = np.divide(1, counts, out=np.zeros_like(counts), where=counts > 0)
    return np.asarray(weights * counts.sum() / (weights * counts).sum())


def head_config(source: Checkpoint, card: TaskCard, recipe: FinetuneRecipe) -> ModelConfig:
    """The source's encoder with the recipe's dropout, and the task's head."""
    encoder = replace(
        source.model.config.encoder.with_dropout(recipe.encoder_dropout),
        pooler=source.model.config.encoder.pooler or card.task.head in POOLED_HEADS,
    )
    head = HeadConfig(
        kind=card.task.head,
        labels=card.task.labels,
        dropout=recipe.head_dropout,
        exits=recipe.exits,
    )
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
    settings = first_settings(model.config.encoder.to_dict())
    digest = hashlib.sha256(repr(sorted(settings.items())).encode())
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
