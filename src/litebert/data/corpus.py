"""The corpus as documents, for whoever wants to read it in one process: the public reader.
 In: files, folders, globs (see files.py). Out: an iterator of Documents in bounded memory.
`litebert data build` reads the same pieces in the same way, only in several processes.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from litebert.data.bad_rows import BadRow, BadRowPolicy, BadRows
from litebert.data.documents import Document, read_piece
from litebert.data.files import CorpusFile, find_files, ignored_files
from litebert.data.pieces import MAX_ROW_BYTES, PIECE_BYTES, Piece, read_pieces
from litebert.errors import ConfigError

__all__ = [
    "BadRow",
    "CorpusFile",
    "CorpusOptions",
    "Document",
    "Piece",
    "find_files",
    "ignored_files",
    "read_documents",
]


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """How a corpus is to be understood."""

    documents: Literal["blank-lines", "files"] = "blank-lines"
    """What ends a document of a text file: a blank line, or only the end of the file."""
    field: str = "text"
    """Field of a .jsonl row, column of a .parquet file, that holds the text."""
    bad_rows: BadRowPolicy = "error"
    """What to do with a row that holds no usable text: stop, leave it out, or leave it out and keep
    a copy."""
    piece_bytes: int = PIECE_BYTES
    """Bytes read at a time; a longer line of a text file is cut."""
    max_row_bytes: int = MAX_ROW_BYTES
    """Bytes a .jsonl row may have; a longer one is a bad row."""

    def __post_init__(self) -> None:
        if self.documents not in ("blank-lines", "files"):
            raise ConfigError(f"documents is {self.documents!r}, expected blank-lines or files")
        if self.bad_rows not in ("error", "skip", "quarantine"):
            raise ConfigError(f"bad_rows is {self.bad_rows!r}, expected error, skip or quarantine")
        if not 16 <= self.piece_bytes <= self.max_row_bytes <= 2**31:
            raise ConfigError(
                f"piece_bytes is {self.piece_bytes} and max_row_bytes {self.max_row_bytes}, "
                "expected 16 <= piece_bytes <= max_row_bytes <= 2 GiB"
            )

    def pieces(self, file: CorpusFile) -> Iterator[Piece]:
        """The pieces of one file."""
        return read_pieces(
            file, field=self.field, piece_bytes=self.piece_bytes, max_row_bytes=self.max_row_bytes
        )

    def read(self, piece: Piece) -> tuple[list[Document], list[BadRow]]:
        """The documents and bad rows of one piece."""
        return read_piece(piece, field=self.field, one_document=self.documents == "files")


def read_documents(
    paths: Iterable[str | os.PathLike[str]],
    options: CorpusOptions | None = None,
    *,
    on_bad: Callable[[BadRow], None] | None = None,
) -> Iterator[Document]:
    """All documents of a corpus. A bad row raises DataError, or with options.bad_rows="skip" is
    told to `on_bad`."""
    options = options or CorpusOptions()
    stop = BadRows("error", alternatives="skip") if options.bad_rows == "error" else None
    begun = False  # a document of which no paragraph has come yet
    for file in find_files(paths):
        for piece in options.pieces(file):
            documents, bad = options.read(piece)
            for row in bad:
                if stop:
                    stop.add(row.location, row.reason)
                if on_bad:
                    on_bad(row)
            for document in documents:
                if document.paragraphs:
                    yield replace(document, joined=False) if begun else document
                begun = not document.paragraphs
