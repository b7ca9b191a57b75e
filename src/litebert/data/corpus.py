"""A corpus as documents.

In: files, folders, globs. Out: Documents, paragraph by paragraph, in bounded memory, and BadRows,
each with file and line. What a chunk holds depends on nothing else, so that any process may read
it: `litebert data build` reads the same chunks in several processes. Nothing is dropped without a
BadRow, except white space and the byte-order mark at the beginning of a file.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from litebert.checks import list_names, shorten
from litebert.data.bad_rows import BadRow, BadRowPolicy, BadRows
from litebert.data.chunks import MAX_ROW_BYTES, Chunk, CorpusFile, find_files, line_chunks
from litebert.data.parquet import parquet_chunks
from litebert.errors import ConfigError

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A text, or a stretch of one that is too long for one chunk."""

    paragraphs: list[str]
    """Without white space at their ends; none of them is empty."""
    path: str
    line: int
    """Number of its first line, or of its row, from 1."""
    joined: bool = False
    """True if it continues the document before, of which one chunk holds only a stretch."""


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """How a corpus is read."""

    documents: Literal["blank-lines", "files"] = "blank-lines"
    """What ends a document of a text file: a blank line, or only the end of the file."""
    field: str = "text"
    """Field of a .jsonl row, column of a .parquet file, that holds the text."""
    bad_rows: BadRowPolicy = "error"
    """A row without usable text: stop, leave it out, or leave it out and keep a copy."""
    chunk_bytes: int = 2**20
    """Bytes read at a time; a longer line of a text file is cut."""
    max_row_bytes: int = MAX_ROW_BYTES
    """Bytes a .jsonl row may have; a longer one is a bad row."""

    def __post_init__(self) -> None:
        if self.documents not in ("blank-lines", "files"):
            raise ConfigError(
                f"documents is {shorten(self.documents)}, expected blank-lines or files"
            )
        if self.bad_rows not in ("error", "skip", "quarantine"):
            raise ConfigError(
                f"bad_rows is {shorten(self.bad_rows)}, expected error, skip or quarantine"
            )
        if not 16 <= self.chunk_bytes <= self.max_row_bytes <= 2**31:
            raise ConfigError(
                f"chunk_bytes is {self.chunk_bytes} and max_row_bytes {self.max_row_bytes}, "
                "expected 16 <= chunk_bytes <= max_row_bytes <= 2 GiB"
            )

    def chunks(self, file: CorpusFile) -> Iterator[Chunk]:
        """The chunks of one file."""
        if file.kind == "parquet":
            return parquet_chunks(file, field=self.field, chunk_bytes=self.chunk_bytes)
        return line_chunks(file, chunk_bytes=self.chunk_bytes, max_row_bytes=self.max_row_bytes)

    def read(self, chunk: Chunk) -> tuple[list[Document], list[BadRow]]:
        """The documents and bad rows of one chunk. The last document may have no paragraph yet:
        what is joined to it then begins a document."""
        bad: list[BadRow] = []
        if chunk.kind == "text":
            documents = list(_text_documents(chunk, self.documents == "files", bad))
        else:
            documents = list(_row_documents(chunk, self.field, bad))
        if chunk.damage:
            data = chunk.data
            rows = data.count(b"\n") if isinstance(data, bytes) else len(data)
            bad.append(BadRow(path=chunk.path, line=chunk.line + rows, reason=chunk.damage))
        return documents, bad


def read_documents(
    paths: Iterable[str | os.PathLike[str]],
    options: CorpusOptions | None = None,
    *,
    on_bad: Callable[[BadRow], None] | None = None,
) -> Iterator[Document]:
    """All documents. A bad row raises DataError, or with bad_rows="skip" goes to `on_bad`."""
    options = options or CorpusOptions()
    stop = BadRows("error", alternatives="skip") if options.bad_rows == "error" else None
    begun = False  # a document of which no paragraph has come yet
    for file in find_files(paths):
        for chunk in options.chunks(file):
            documents, bad = options.read(chunk)
            for row in bad:
                if stop:
                    stop.add(row.location, row.reason)
                if on_bad:
                    on_bad(row)
            for document in documents:
                if document.paragraphs:
                    yield replace(document, joined=False) if begun else document
                begun = not document.paragraphs


def _text_documents(chunk: Chunk, one_document: bool, bad: list[BadRow]) -> Iterator[Document]:
    """`one_document`: the file is one."""
    joined = chunk.number > 0 if one_document else chunk.joined
    paragraphs: list[str] = []
    first = chunk.line
    for line, text in enumerate(_lines(chunk, bad), chunk.line):
        if text:
            if not paragraphs:
                first = line
            paragraphs.append(text)
        elif text is not None and not one_document:  # a blank line; a bad one ends no document
            if paragraphs:
                yield Document(paragraphs=paragraphs, path=chunk.path, line=first, joined=joined)
                paragraphs = []
            joined = False
    if paragraphs or not joined:
        # also without a paragraph: the next chunk's first lines belong to this new document
        yield Document(paragraphs=paragraphs, path=chunk.path, line=first, joined=joined)


def _lines(chunk: Chunk, bad: list[BadRow]) -> list[str | None]:
    """Stripped lines; None for a bad one. Only a line feed ends a line: other marks do not in
    jsonl, nor in `wc -l`."""
    assert isinstance(chunk.data, bytes)
    data = chunk.data.removeprefix(_BOM) if chunk.number == 0 else chunk.data
    data = data.removesuffix(b"\n")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text:
        return [line.strip() for line in text.split("\n")]
    rows = enumerate(data.split(b"\n"), chunk.line)
    return [_decode(row, chunk, line, bad) for line, row in rows]


def _decode(row: bytes, chunk: Chunk, line: int, bad: list[BadRow]) -> str | None:
    reason = ""
    try:
        text = row.decode()
        if "\0" in text:
            reason = (
                f"there is a NUL character at column {text.index(chr(0)) + 1}, which no text has"
            )
    except UnicodeDecodeError as error:
        near = row[error.start : error.start + 1].hex()
        reason = (
            f"byte 0x{near} at byte {error.start + 1} of the line is not UTF-8 ({error.reason}); "
            "convert a file that is in another encoding"
        )
    if reason:
        bad.append(BadRow(path=chunk.path, line=line, reason=reason, data=row))
        return None
    return text.strip()


def _row_documents(chunk: Chunk, field: str, bad: list[BadRow]) -> Iterator[Document]:
    if isinstance(chunk.data, bytes):
        rows = _lines(chunk, bad)
    else:
        cells = enumerate(chunk.data, chunk.line)
        rows = [_column_text(cell, chunk, line, field, bad) for line, cell in cells]
    for line, row in enumerate(rows, chunk.line):
        if not row:
            continue
        text = row
        if chunk.kind == "jsonl":
            text, reason = _json_text(row, field)
            if reason:
                bad.append(BadRow(path=chunk.path, line=line, reason=reason, data=row.encode()))
        paragraphs = [stripped for paragraph in text.split("\n") if (stripped := paragraph.strip())]
        if paragraphs:
            yield Document(paragraphs=paragraphs, path=chunk.path, line=line)


def _column_text(
    row: bytes | None, chunk: Chunk, line: int, field: str, bad: list[BadRow]
) -> str | None:
    if row is None:
        bad.append(
            BadRow(path=chunk.path, line=line, reason=f"the column {shorten(field)} is null here")
        )
        return None
    return _decode(row, chunk, line, bad)


def _json_text(row: str, field: str) -> tuple[str, str]:
    """The text of a row of JSON, or what is wrong with it."""
    name = shorten(field)
    try:
        read = json.loads(row)
    except (ValueError, RecursionError) as error:
        return "", f"the row is not JSON ({error})"
    if not isinstance(read, dict):
        kind = type(read).__name__
        return "", f"the row is JSON of type {kind}, expected an object with a field {name}"
    if field not in read:
        there = list_names(sorted(read)) or "no field"
        return "", f"the row has no field {name}; it has: {there}"
    text = read[field]
    if text is None:
        return "", f"the field {name} is null"
    if not isinstance(text, str):
        return "", f"the field {name} holds {type(text).__name__}, expected text"
    if "\0" in text:
        return "", f"the field {name} holds a NUL character, which no text has"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "", f"the field {name} holds half of a surrogate pair (\\ud800 to \\udfff)"
    return text, ""
