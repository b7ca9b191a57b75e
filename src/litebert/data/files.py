"""Which files make a corpus, and how each is read.
 In: names as typed at a prompt: files, folders, globs. Out: CorpusFile, each with its kind and its
compression, every file once, in an order that depends on the names alone: arguments as given, files
inside a folder or a glob sorted.
"""

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from litebert.errors import DataError

KINDS = {
    ".txt": "text",
    ".text": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
COMPRESSIONS = {".gz": "gzip", ".xz": "xz", ".bz2": "bzip2", ".zst": "zstd"}
EXPECTED = f"{', '.join(KINDS)}, each plain or with {', '.join(COMPRESSIONS)}"


@dataclass(frozen=True, kw_only=True)
class CorpusFile:
    """One file of a corpus."""

    path: str
    """As the user named it, or found below what the user named."""
    kind: str
    """text, jsonl or parquet."""
    compression: str
    """none, gzip, xz, bzip2 or zstd."""


def find_files(names: Iterable[str | os.PathLike[str]]) -> list[CorpusFile]:
    """The corpus that `names` stand for; DataError for a name that stands for nothing."""
    found: dict[str, CorpusFile] = {}
    for given in names:
        name = os.fspath(given)
        if os.path.isdir(name):
            files = [file for path in _below(name) if (file := _recognise(path))]
            _expect(files, f"the folder {name} holds no corpus file; expected {EXPECTED}")
        elif os.path.exists(name):
            files = [file for file in [_recognise(name)] if file]
            _expect(
                files,
                f"{name}: the name does not say what the file holds; expected one of {EXPECTED}",
            )
        else:
            paths = sorted(path for path in glob.glob(name, recursive=True) if os.path.isfile(path))
            files = [file for path in paths if (file := _recognise(path))]
            _expect(files, f"{name}: no such file, folder or glob of corpus files ({EXPECTED})")
        for file in files:
            found.setdefault(os.path.abspath(file.path), file)
    _expect(list(found), f"no corpus was named; expected files, folders or globs of {EXPECTED}")
    return list(found.values())


def ignored_files(names: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Files inside the folders of `names` that are no corpus files by their name: to be told, not
    to be lost."""
    folders = [os.fspath(name) for name in names if os.path.isdir(name)]
    return [path for folder in folders for path in _below(folder) if _recognise(path) is None]


def _below(folder: str) -> list[str]:
    """Visible files below `folder`, sorted by their parts, so that a folder's files stay
    together."""
    paths = (path for path in Path(folder).rglob("*") if path.is_file())
    inside = [
        path
        for path in paths
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    return [path.as_posix() for path in sorted(inside, key=lambda path: path.parts)]


def _recognise(path: str) -> CorpusFile | None:
    name = os.path.basename(path).lower()
    stem, last = os.path.splitext(name)
    compression = COMPRESSIONS.get(last, "none")
    kind = KINDS.get(last if compression == "none" else os.path.splitext(stem)[1])
    return CorpusFile(path=path, kind=kind, compression=compression) if kind else None


def _expect(found: object, message: str) -> None:
    if not found:
        raise DataError(message)
