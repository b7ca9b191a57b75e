"""Paragraphs with the era of their speech: what the demo's classifier learns to tell. Speeches in;
a task with examples out.
 Eras are spans of years with about equal amounts of text. Speeches, not paragraphs, are divided
into train, dev and test, since paragraphs of one speech tell each other's year. Test is what
pretraining held out.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from litebert.demo.corpus import Speech
from litebert.tasks.examples import TextExample
from litebert.tasks.task import Task, TaskData

NAME = "era"
ERAS = 5
LEAST_CHARACTERS = 200
"""A shorter paragraph ("Thank you.") says little of its time."""
DEV_EVERY = 10
"""Of the speeches that are not held out, each tenth chooses the best weights."""


def make_task(speeches: Sequence[Speech]) -> TaskData:
    """Cut speeches into paragraphs, and divide them. A label is the first and last year of an era,
    a slice the year itself."""
    starts = era_starts(speeches)
    years = np.array(sorted({speech.year for speech in speeches}))
    spans = [years[era_of(years, starts) == era] for era in range(len(starts))]
    labels = tuple(f"{span[0]}–{span[-1]}" for span in spans)
    splits: dict[str, list[TextExample]] = {"train": [], "dev": [], "test": []}
    seen = [
        speech for speech in sorted(speeches, key=lambda speech: speech.name) if not speech.heldout
    ]
    for number, speech in enumerate(seen):
        splits["dev" if number % DEV_EVERY == DEV_EVERY // 2 else "train"] += _paragraphs(
            speech, starts, labels
        )
    for speech in speeches:
        if speech.heldout:
            splits["test"] += _paragraphs(speech, starts, labels)
    task = Task(name=NAME, kind="classify", scores=("accuracy",), labels=labels, head="classify")
    return TaskData(task=task, splits=splits)


def era_starts(speeches: Sequence[Speech], count: int = ERAS) -> Int[np.ndarray, " eras"]:
    """The first year of each era, so that eras have about as much text each; fewer where years are
    few."""
    ordered = sorted(speeches, key=lambda speech: speech.year)
    read = np.cumsum([len(speech.text) for speech in ordered])
    firsts = np.searchsorted(read, read[-1] * np.arange(count) / count, side="right")
    return np.unique([ordered[number].year for number in firsts])


def era_of(years: Int[np.ndarray, " n"], starts: Int[np.ndarray, " eras"]) -> Int[np.ndarray, " n"]:
    """The number of the era that each year is in."""
    return np.searchsorted(starts, years, side="right") - 1


def _paragraphs(
    speech: Speech, starts: Int[np.ndarray, " eras"], labels: tuple[str, ...]
) -> list[TextExample]:
    label = labels[int(era_of(np.array([speech.year]), starts)[0])]
    texts = [text for text in speech.paragraphs if len(text) >= LEAST_CHARACTERS]
    return [
        TextExample(key=f"{speech.name} {number}", first=text, label=label, slice=str(speech.year))
        for number, text in enumerate(texts)
    ]
