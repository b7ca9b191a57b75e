"""Examples of tasks as text, one class for each shape of input (ALBERT §4.1).

classify, pair and regress read one or two texts, choose a list of options, answer a context that
holds the answer, tag a list of words. Files become these (benchmarks/, tables/); encode/ makes the
model's inputs of them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, cast

from litebert.errors import DataError

Kind = Literal["classify", "pair", "regress", "choose", "answer", "tag"]
_One = TypeVar("_One")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, kw_only=True, slots=True)
class TextExample:
    """One text or two, with a label or a number: classify, pair, regress."""

    key: str
    """Name of the example in its split: GLUE's index, or the number of the row."""
    first: str
    second: str | None = None
    label: str | float | tuple[str, ...] | None = None
    """A label's name; several in a multi-label task, or none; a number for regress; None where it
    is not known (a test split)."""
    slice: str = ""
    """What scores may be broken down by: a genre, a level, a title."""
    where: str = ""
    """File and line, for messages: train.tsv:17."""

    @property
    def is_labeled(self) -> bool:
        return self.label is not None

    def truth(self) -> str | float | tuple[str, ...]:
        """The label; a DataError where it is not known."""
        if self.label is None:
            raise _unlabeled(self)
        return self.label

    def number(self) -> float:
        """The number of regress."""
        label = self.truth()
        assert not isinstance(label, tuple), "several labels are no number"
        return float(label)

    def labels(self) -> tuple[str, ...]:
        """The labels of a multi-label task; one label is itself."""
        label = self.truth()
        return label if isinstance(label, tuple) else (str(label),)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChoiceExample:
    """A question about a context, with options of which one is right: RACE."""

    key: str
    context: str
    question: str
    options: tuple[str, ...]
    label: int | None = None
    """Number of the right option, from 0."""
    slice: str = ""
    where: str = ""

    @property
    def is_labeled(self) -> bool:
        return self.label is not None

    def truth(self) -> int:
        """The number of the right option; a DataError where it is not known."""
        if self.label is None:
            raise _unlabeled(self)
        return self.label


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A true answer: its text, and where it starts in the context, in characters."""

    text: str
    start: int

    @classmethod
    def find(cls, context: str, text: str, start: int | None) -> "Answer | None":
        """The answer as the context has it, nearest to `start`; None if the context lacks it.

        In real files starts are off by white space that was cleaned away, answers have blanks at
        their ends, and an answer has one blank where the context has two or a line feed.
        """
        words = text.strip()
        if not words:
            return None
        near = 0 if start is None else start + len(text) - len(text.lstrip())
        if context.startswith(words, near) and near >= 0:
            return cls(text=words, start=near)
        pattern = r"\s+".join(re.escape(word) for word in _SPACE.split(words))
        # a lookahead, so that overlapping matches are seen
        starts = [match.start() for match in re.finditer(f"(?={pattern})", context)]
        if not starts:
            return None
        nearest = min(starts, key=lambda position: (abs(position - near), position))
        match = re.compile(pattern).match(context, nearest)
        assert match is not None
        return cls(text=match.group(), start=nearest)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerExample:
    """A question whose answer is a span of the context, or which has none: SQuAD."""

    key: str
    question: str
    context: str
    answers: tuple[Answer, ...] | None = None
    """All accepted answers; an empty tuple where the question has none, None where that is not
    known."""
    slice: str = ""
    """The article's title."""
    where: str = ""

    @property
    def is_labeled(self) -> bool:
        return self.answers is not None

    def truth(self) -> tuple[Answer, ...]:
        """The accepted answers; a DataError where they are not known."""
        if self.answers is None:
            raise _unlabeled(self)
        return self.answers


@dataclass(frozen=True, kw_only=True, slots=True)
class TagExample:
    """Words, each with a tag."""

    key: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    slice: str = ""
    where: str = ""

    @property
    def is_labeled(self) -> bool:
        return self.tags is not None

    def truth(self) -> tuple[str, ...]:
        """The tags; a DataError where they are not known."""
        if self.tags is None:
            raise _unlabeled(self)
        return self.tags


TaskExample = TextExample | ChoiceExample | AnswerExample | TagExample


def only(items: Sequence[object], kind: type[_One]) -> list[_One]:
    """The same items, asserted to be all of one class."""
    other = next((item for item in items if not isinstance(item, kind)), None)
    assert other is None, f"expected {kind.__name__}, got {other!r}"
    return cast(list[_One], list(items))


def _unlabeled(example: TaskExample) -> DataError:
    return DataError(
        f"{example.where or f'example {example.key}'} has no label; scores need a split whose "
        "labels are known, such as dev"
    )
