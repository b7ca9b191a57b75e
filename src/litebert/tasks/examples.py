"""What tasks are made of, as text: one class for each shape of question (ALBERT §4.1).
 classify, pair and regress ask about one or two texts, choose about options, answer about a span of
a context, tag about every word. Files become these (glue, squad, race, table); encode makes the
model's inputs of them.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["classify", "pair", "regress", "choose", "answer", "tag"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TextExample:
    """One text or two, and what is to be said of them: classify, pair, regress."""

    key: str
    """Names the example in its split: GLUE's index, or the number of the row."""
    first: str
    second: str | None = None
    label: str | float | None = None
    """A label's name, a number for regress; None where it is not known (a test split)."""
    slice: str = ""
    """What scores may be broken down by: a genre, a level, a title."""
    where: str = ""
    """File and line, for messages: train.tsv:17."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A true answer: its text, and where it starts in the context, in characters."""

    text: str
    start: int


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


@dataclass(frozen=True, kw_only=True, slots=True)
class TagExample:
    """Words, each with a tag."""

    key: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None = None
    slice: str = ""
    where: str = ""


TaskExample = TextExample | ChoiceExample | AnswerExample | TagExample
