"""Pieces of files become documents.
 In: a Piece. Out: its Documents, paragraph by paragraph, and its BadRows, each with file and line.
Pure: what a piece holds depends on nothing else, so any process may do it. Nothing is dropped
without a BadRow, save white space and the byte-order mark at the beginning of a file.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from litebert.data.bad_rows import BadRow
from litebert.data.pieces import Piece

_BOM = b"\xef\xbb\xbf"
_QUOTED_BYTES = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A text, or a part of one that is too long for one piece."""

    paragraphs: list[str]
    """Without white space at their ends; none of them is empty."""
    path: str
    line: int
    """Number of its first line, or of its row, from 1."""
    joined: bool = False
    """True for a further part of the document before: a long document comes in parts, so that
    memory stays bounded."""


def read_piece(
    piece: Piece, *, field: str = "text", one_document: bool = False
) -> tuple[list[Document], list[BadRow]]:
    """The documents of `piece` and what was wrong with it; `one_document`: a text file is one
    document.

    The last document may have no paragraph yet: it says that what is joined to it begins a
    document.
    """
    bad: list[BadRow] = []
    read = (
        _text_documents(piece, one_document, bad)
        if piece.kind == "text"
        else _row_documents(piece, field, bad)
    )
    documents = list(read)
    if piece.damage:
        line = piece.line + (
            piece.data.count(b"\n") if isinstance(piece.data, bytes) else len(piece.data)
        )
        bad.append(BadRow(path=piece.path, line=line, reason=piece.damage))
    return documents, bad


def _text_documents(piece: Piece, one_document: bool, bad: list[BadRow]) -> Iterator[Document]:
    joined = piece.number > 0 if one_document else piece.joined
    paragraphs: list[str] = []
    first = piece.line
    for line, text in enumerate(_lines(piece, bad), piece.line):
        if text:
            if not paragraphs:
                first = line
            paragraphs.append(text)
        elif text is not None and not one_document:  # a blank line; a bad one ends no document
            if paragraphs:
                yield Document(paragraphs=paragraphs, path=piece.path, line=first, joined=joined)
                paragraphs = []
            joined = False
    if paragraphs or not joined:
        # Also without a paragraph: the next piece's first lines belong to this new document, not to
        # the one before.
        yield Document(paragraphs=paragraphs, path=piece.path, line=first, joined=joined)


def _lines(piece: Piece, bad: list[BadRow]) -> list[str | None]:
    """Stripped lines; None for a bad one. Only a line feed ends a line: other marks do not in
    jsonl, nor in `wc -l`."""
    assert isinstance(piece.data, bytes)
    data = piece.data.removeprefix(_BOM) if piece.number == 0 else piece.data
    data = data.removesuffix(b"\n")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text:
        return [line.strip() for line in text.split("\n")]
    rows = enumerate(data.split(b"\n"), piece.line)
    return [_decode(row, piece, line, bad) for line, row in rows]


def _decode(row: bytes, piece: Piece, line: int, bad: list[BadRow]) -> str | None:
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
            f"byte 0x{near} at byte {error.start + 1} of the line is not UTF-8 ({error.reason})"
        )
    if reason:
        bad.append(BadRow(path=piece.path, line=line, reason=reason, data=row))
        return None
    return text.strip()


def _row_documents(piece: Piece, field: str, bad: list[BadRow]) -> Iterator[Document]:
    rows: list[str | None]
    if isinstance(piece.data, bytes):
        rows = _lines(piece, bad)
    else:
        rows = [
            _column_text(row, piece, line, field, bad)
            for line, row in enumerate(piece.data, piece.line)
        ]
    for line, row in enumerate(rows, piece.line):
        if not row:
            continue
        text = row
        if piece.kind == "jsonl":
            found, reason = _json_text(row, field)
            if reason:
                bad.append(BadRow(path=piece.path, line=line, reason=reason, data=row.encode()))
            text = found
        paragraphs = [stripped for paragraph in text.split("\n") if (stripped := paragraph.strip())]
        if paragraphs:
            yield Document(paragraphs=paragraphs, path=piece.path, line=line)


def _column_text(
    row: bytes | None, piece: Piece, line: int, field: str, bad: list[BadRow]
) -> str | None:
    if row is None:
        bad.append(BadRow(path=piece.path, line=line, reason=f"the column {field!r} is null here"))
        return None
    return _decode(row, piece, line, bad)


def _json_text(row: str, field: str) -> tuple[str, str]:
    """The text of a row of JSON, or what is wrong with it."""
    try:
        read = json.loads(row)
    except (ValueError, RecursionError) as error:
        return "", f"the row is not JSON ({error})"
    if not isinstance(read, dict):
        return (
            "",
            f"the row is JSON of type {type(read).__name__}, expected an object with a field "
            f"{field!r}",
        )
    text = read.get(field)
    if field in read and text is None:
        return "", f"the field {field!r} is null"
    if text is None:
        names = ", ".join(sorted(read)) or "no field"
        return "", f"the row has no field {field!r}; it has: {names[:200]}"
    if not isinstance(text, str):
        return "", f"the field {field!r} holds {type(text).__name__}, expected text"
    if "\0" in text:
        return "", f"the field {field!r} holds a NUL character, which no text has"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "", f"the field {field!r} holds half of a surrogate pair (\\ud800 to \\udfff)"
    return text, ""
