"""A task made ready for fine-tuning: examples and a tokenizer in; encoded parts out, made once for
all seeds of a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from litebert.errors import ConfigError, DataError
from litebert.recipes import FinetuneRecipe
from litebert.tasks.encode.encode import encode
from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.examples import AnswerExample, TaskExample
from litebert.tasks.tables.split import cut
from litebert.tasks.task import TaskCard, TaskData
from litebert.text.tokenizer import Tokenizer

ASIDE = 0.1
"""Part of train that the threshold for "no answer" is searched on, where that is asked for."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Examples, and the same as the model reads them."""

    examples: Sequence[TaskExample]
    inputs: Inputs


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """What a run reads."""

    card: TaskCard
    train: Part
    dev: Part
    aside: Part | None = None
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
    train, aside = _examples(data, "train"), None
    if recipe.null_search == "train" and data.task.has_null:
        train, kept = cut(train, ASIDE, _shared, seed=0)
        if not kept or not train:
            raise DataError(
                f"--null-search train keeps a tenth of the {len(train) + len(kept):,} training "
                "questions aside, by title, and "
                "there are too few titles; search on dev instead"
            )
        aside = _encode(card, "train", kept, tokenizer)
    parts = {
        "train": _encode(card, "train", train, tokenizer),
        "dev": _encode(card, "dev", _examples(data, "dev"), tokenizer),
    }
    return Prepared(card=card, **parts, aside=aside)


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
) -> Part:
    part = Part(examples=examples, inputs=encode(card, examples, tokenizer))
    if part.inputs.targets is None or not len(part.inputs):
        raise DataError(
            f"{split} of {card.task.name} has {len(examples)} examples, and not all have an "
            "answer; label them all"
        )
    return part


def _shared(example: TaskExample) -> tuple[str, ...]:
    """What questions must not have in common on both sides: the title or, where there is none, the
    context."""
    question = cast(AnswerExample, example)
    return (question.slice or question.context,)
