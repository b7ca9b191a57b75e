"""The bytes of a SentencePiece model in, its description out; damaged files are refused with the
reason.
 SentencePiece's Python package exposes neither the normalizer's table nor the model's type, and
reading its protobuf by generated code would need one more dependency. The wire format of the few
fields that are wanted takes a page.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from litebert.errors import DataError

_MODEL_TYPES = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}


@dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """What the model file says beside its pieces."""

    num_pieces: int
    model_type: str
    """unigram, bpe, word or char."""
    byte_fallback: bool
    charsmap: bytes
    """SentencePiece's precompiled normalization table; empty for the identity."""
    add_prefix: bool
    """Whether a space is put before the text."""
    collapse_spaces: bool
    """Whether runs of spaces are collapsed."""
    escape_spaces: bool
    """Whether a space is written as ▁."""


def describe(model: bytes, source: str) -> ModelDescription:
    """Read the description out of a serialized model; `source` names the file in errors."""
    num_pieces, trainer, normalizer = 0, None, None
    try:
        for number, value in _fields(model):
            if number == 1:
                num_pieces += 1
            elif number == 2 and isinstance(value, bytes):
                trainer = dict(_fields(value))
            elif number == 3 and isinstance(value, bytes):
                normalizer = dict(_fields(value))
    except (IndexError, ValueError):
        raise damaged(source, "it ends early or is not a SentencePiece model") from None
    if not num_pieces or trainer is None or normalizer is None:
        raise damaged(source, "its vocabulary, trainer or normalizer part is missing")
    charsmap = normalizer.get(2, b"")
    if not isinstance(charsmap, bytes) or (charsmap and _table_size(charsmap) + 4 > len(charsmap)):
        raise damaged(source, "its normalization table is cut off")
    kind = trainer.get(3, 1)
    return ModelDescription(
        num_pieces=num_pieces,
        model_type=_MODEL_TYPES.get(kind, "unknown") if isinstance(kind, int) else "unknown",
        byte_fallback=bool(trainer.get(35, 0)),
        charsmap=charsmap,
        add_prefix=bool(normalizer.get(3, 1)),
        collapse_spaces=bool(normalizer.get(4, 1)),
        escape_spaces=bool(normalizer.get(5, 1)),
    )


def _table_size(charsmap: bytes) -> int:
    return int.from_bytes(charsmap[:4], "little")


def damaged(source: str, reason: str) -> DataError:
    """The error for a file that cannot be used."""
    return DataError(
        f"{source} cannot be read as a SentencePiece model: {reason}; copy it again, or train a "
        "new one"
    )


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The (field number, value) pairs of one protobuf message; numbers of a fixed width come as
    bytes."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        kind = key & 7
        value: int | bytes
        if kind == 0:
            value, at = _varint(message, at)
        else:
            if kind == 2:
                size, at = _varint(message, at)
            elif kind in (1, 5):
                size = 8 if kind == 1 else 4
            else:
                raise ValueError(f"wire type {kind}")
            value = message[at : at + size]
            at += size
            if at > end:
                raise ValueError("cut off")
        yield key >> 3, value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    byte = message[at]
    at += 1
    if byte < 128:
        return byte, at
    value, shift = byte & 127, 7
    while shift < 64:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a number of more than 64 bits")
