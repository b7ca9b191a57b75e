"""Paragraphs with the era of their speech: what the demo's classifier learns to tell. Speeches in; texts and labels out.

Eras are spans of years with about equal amounts of text. Speeches, not paragraphs, are divided into train, dev and test,
since paragraphs of one speech tell each other's year. Test is what pretraining held out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from litebert.demo.corpus import Speech
from litebert.text.tokenizer import Tokenizer
from litebert.train.labelled import Labelled

ERAS = 5
LEAST_CHARACTERS = 200
"""A shorter paragraph ("Thank you.") says little of its time."""
DEV_EVERY = 10
"""Of the speeches that are not held out, each tenth chooses the best weights."""


@dataclass(frozen=True, kw_only=True)
class Paragraph:
    """One text to classify."""

    text: str
    year: int
    era: int


@dataclass(frozen=True, kw_only=True)
class EraTask:
    """The three parts of the task."""

    labels: tuple[str, ...]
    """Of each era, its first and last year."""
    train: list[Paragraph]
    dev: list[Paragraph]
    test: list[Paragraph]


def make_task(speeches: Sequence[Speech]) -> EraTask:
    """Cut speeches into paragraphs, and divide them."""
    starts = era_starts(speeches)
    years = np.array(sorted({speech.year for speech in speeches}))
    spans = [years[era_of(years, starts) == era] for era in range(len(starts))]
    parts: dict[str, list[Paragraph]] = {"train": [], "dev": [], "test": []}
    seen = [speech for speech in sorted(speeches, key=lambda speech: speech.name) if not speech.heldout]
    for number, speech in enumerate(seen):
        parts["dev" if number % DEV_EVERY == DEV_EVERY // 2 else "train"] += _paragraphs(speech, starts)
    for speech in speeches:
        if speech.heldout:
            parts["test"] += _paragraphs(speech, starts)
    return EraTask(labels=tuple(f"{span[0]}–{span[-1]}" for span in spans), **parts)


def era_starts(speeches: Sequence[Speech], count: int = ERAS) -> Int[np.ndarray, " eras"]:
    """The first year of each era, so that eras have about as much text each; fewer where years are few."""
    ordered = sorted(speeches, key=lambda speech: speech.year)
    read = np.cumsum([len(speech.text) for speech in ordered])
    firsts = np.searchsorted(read, read[-1] * np.arange(count) / count, side="right")
    return np.unique([ordered[number].year for number in firsts])


def era_of(years: Int[np.ndarray, " n"], starts: Int[np.ndarray, " eras"]) -> Int[np.ndarray, " n"]:
    """The number of the era that each year is in."""
    return np.searchsorted(starts, years, side="right") - 1


def encode(paragraphs: Sequence[Paragraph], tokenizer: Tokenizer, max_length: int) -> Labelled:
    """As token ids: the beginning of each paragraph, as much as the model reads."""
    examples = tokenizer.pairs([each.text for each in paragraphs], max_length=max_length, truncate="longest")
    return Labelled(token_ids=[example.token_ids for example in examples], labels=np.array([each.era for each in paragraphs]))


def _paragraphs(speech: Speech, starts: Int[np.ndarray, " eras"]) -> list[Paragraph]:
    era = int(era_of(np.array([speech.year]), starts)[0])
    texts = [text for text in speech.paragraphs if len(text) >= LEAST_CHARACTERS]
    return [Paragraph(text=text, year=speech.year, era=era) for text in texts]
