"""What a model can be asked: its heads and its task in; verbs, and a card for each task verb, out.
 A model fine-tuned here carries its card; of one that comes without (Hugging Face's), the heads say
what it answers.
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

from litebert.config import HeadKind, ModelConfig
from litebert.errors import ConfigError
from litebert.tasks.card import TaskCard
from litebert.tasks.examples import (
    AnswerExample,
    ChoiceExample,
    Kind,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.tasks.task import Task

Verb = Literal["fill", "embed", "classify", "pair", "regress", "choose", "answer", "tag"]
Pooling = Literal["mean", "cls"]
"""What of the last states a text's vector is: the mean over all tokens, or the state of [CLS]."""
VERBS: tuple[Verb, ...] = get_args(Verb)
_ANSWERS: dict[HeadKind, tuple[Kind, ...]] = {
    "classify": ("classify", "pair"),
    "regress": ("regress",),
    "choose": ("choose",),
    "span": ("answer",),
    "joint_span": ("answer",),
    "tag": ("tag",),
}


def cards(config: ModelConfig, card: TaskCard | None) -> dict[Verb, TaskCard]:
    """The card for each task verb that the model knows."""
    if card is not None:
        card.check_fits(config)
        return {card.task.kind: card}
    found: dict[Verb, TaskCard] = {}
    for head in config.heads:
        for kind in _ANSWERS.get(head.kind, ()):
            task = Task(
                name=kind, kind=kind, scores=(), labels=head.labels, head=head.kind, has_null=False
            )
            found[kind] = TaskCard(task=task, max_length=config.encoder.max_positions)
    return found


def known_verbs(config: ModelConfig, known: dict[Verb, TaskCard]) -> tuple[Verb, ...]:
    """All that the model can do; to embed, any encoder will do."""
    fills = any(head.kind == "masked" for head in config.heads)
    return tuple(
        verb for verb in VERBS if verb in known or verb == "embed" or (verb == "fill" and fills)
    )


def check_verb(verb: str, known: tuple[Verb, ...], card: TaskCard | None) -> None:
    """Refuse what the model cannot do, and say what it can."""
    if verb in known:
        return
    made = "" if card is None else f" (it was fine-tuned for {card.task.name})"
    cure = (
        "pretraining makes a head that fills"
        if verb == "fill"
        else f"fine-tune one: litebert finetune {verb} --model …"
    )
    raise ConfigError(f"this model cannot {verb}{made}; it can {' and '.join(known)}; {cure}")


def text_example(first: Any, second: Any = None) -> TextExample:
    return TextExample(
        key="",
        first=checked_text("first", first),
        second=None if second is None else checked_text("second", second),
    )


def choice_example(context: Any, question: Any, options: Any) -> ChoiceExample:
    texts = tuple(checked_text("an option", option) for option in options)
    if len(texts) < 2:
        raise ConfigError(f"a question is asked with two or more options; got {len(texts)}")
    return ChoiceExample(
        key="",
        context=checked_text("context", context),
        question=checked_text("question", question),
        options=texts,
    )


def answer_example(question: Any, context: Any) -> AnswerExample:
    return AnswerExample(
        key="",
        question=checked_text("question", question),
        context=checked_text("context", context),
    )


def tag_example(words: Any) -> TagExample:
    """Words as given, or a text's words: what stands between white space."""
    split = words.split() if isinstance(words, str) else words
    return TagExample(key="", words=tuple(checked_text("a word", word) for word in split))


def characters(example: TaskExample) -> int:
    """How much text an example holds."""
    return SIZES[type(example)](example)


SIZES: dict[type, Callable[[Any], int]] = {
    TextExample: lambda example: len(example.first) + len(example.second or ""),
    ChoiceExample: lambda example: (
        (len(example.context) + len(example.question)) * len(example.options)
    ),
    AnswerExample: lambda example: len(example.question) + len(example.context),
    TagExample: lambda example: sum(map(len, example.words)),
}


def checked_text(name: str, value: Any) -> str:
    """The value, if it is a text."""
    if not isinstance(value, str):
        raise ConfigError(f"expected a text for {name}; got {type(value).__name__}: {value!r}")
    return value
