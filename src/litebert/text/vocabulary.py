"""A SentencePiece model in, what it holds out: its description, special tokens, word starts, and
tokens that are split after encoding. Damaged files are refused with the reason.

SentencePiece's Python package exposes neither the normalizer's table nor the model's type, so the
few fields that are needed are read from the file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sentencepiece

from litebert.errors import DataError
from litebert.protobuf import read_fields
from litebert.shapes import Int

Ids = Int[np.ndarray, " tokens"]
Bounds = Int[np.ndarray, " texts_plus_one"]
Offsets = Int[np.ndarray, "_ 2"]

SPACE = "▁"
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_WORD_INNER = _PUNCTUATION | frozenset("abcdefghijklmnopqrstuvwxyz")
MAX_TOKENS = 2**19
"""Twice the largest multilingual vocabularies."""


@dataclass(frozen=True, kw_only=True)
class ModelDescription:
    """What the model file holds beside its tokens."""

    kind: str
    """unigram, bpe, word, char or byte-fallback."""
    charsmap: bytes
    """SentencePiece's precompiled normalization table; empty for the identity."""
    add_prefix: bool
    """Whether a space is put before the text."""
    collapse_spaces: bool
    """Whether runs of spaces are collapsed."""


def describe(model: bytes, source: str) -> ModelDescription:
    """Read the description out of a serialized model; `source` names the file in errors."""
    num_tokens, trainer, normalizer = 0, None, None
    try:
        for number, value in _read_fields(model):
            if number == 1:
                num_tokens += 1
                if num_tokens > MAX_TOKENS:
                    raise damaged(source, f"it holds more than {MAX_TOKENS:,} tokens")
            elif number == 2 and isinstance(value, slice):
                trainer = _fields(model[value])
            elif number == 3 and isinstance(value, slice):
                normalizer = _fields(model[value])
    except ValueError:
        raise damaged(source, "it ends early or is not a SentencePiece model") from None
    if not num_tokens or trainer is None or normalizer is None:
        raise damaged(source, "its vocabulary, trainer or normalizer part is missing")
    charsmap = normalizer.get(2, b"")
    if not isinstance(charsmap, bytes) or (
        charsmap and int.from_bytes(charsmap[:4], "little") + 4 > len(charsmap)
    ):
        raise damaged(source, "its normalization table is cut off")
    kinds: dict[int | bytes, str] = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
    kind = "byte-fallback" if trainer.get(35, 0) else kinds.get(trainer.get(3, 1), "unknown")
    return ModelDescription(
        kind=kind,
        charsmap=charsmap,
        add_prefix=bool(normalizer.get(3, 1)),
        collapse_spaces=bool(normalizer.get(4, 1)),
    )


def damaged(source: str, reason: str) -> DataError:
    """The error for a file that cannot be used."""
    return DataError(
        f"{source} cannot be read as a SentencePiece model: {reason}; copy it again, or train a "
        "new one"
    )


def _fields(message: bytes) -> dict[int, int | bytes]:
    """The fields of a protobuf message by number, the last of several."""
    return {
        number: message[value] if isinstance(value, slice) else value
        for number, value in _read_fields(message)
    }


def _read_fields(message: bytes) -> Iterator[tuple[int, int | slice]]:
    """The fields of a message; ValueError for one of more than any vocabulary has."""
    for count, field in enumerate(read_fields(message)):
        if count > MAX_TOKENS + 1000:
            raise ValueError("there are too many fields")
        yield field


def special_ids(
    processor: sentencepiece.SentencePieceProcessor, source: str
) -> tuple[int, int, int, int, int]:
    """The ids of padding, unknown, [CLS], [SEP] and [MASK]; 0 to 4 in ALBERT's vocabulary."""
    ids = {"<pad>": processor.pad_id(), "<unk>": processor.unk_id()}
    for name in ("[CLS]", "[SEP]", "[MASK]"):
        index = processor.PieceToId(name)
        ids[name] = index if processor.IsControl(index) else -1
    absent = [name for name, index in ids.items() if index < 0]
    if absent:
        raise DataError(
            f"{source} has no special token {', '.join(absent)}, expected all of {', '.join(ids)}; "
            "train a vocabulary with `litebert tokenizer train`"
        )
    pad, unk, cls, sep, mask = ids.values()
    return pad, unk, cls, sep, mask


def starts_word(token: str) -> bool:
    """Whether a token begins a word when whole words are masked (the reference's rule): digits,
    apostrophes and letters beyond a-z stand alone; "ing" and "..." hang on the word before, "."
    not."""
    if token.startswith((SPACE, "<")) or token in _PUNCTUATION:
        return True
    return not all(char.lower() in _WORD_INNER for char in token)


def digit_comma_splits(
    processor: sentencepiece.SentencePieceProcessor, tokens: Sequence[str]
) -> dict[int, list[int]]:
    """For each token that ends in digit and comma, what replaces it: "▁2010," -> the ids of "▁2010"
    and ",". The reference means to take off the ▁ that encoding anew puts before a number inside a
    word, but its test never holds under Python 3. ALBERT's own 141 tokens all begin a word; for
    other vocabularies we do what was meant."""
    splits = {}
    for index, token in enumerate(tokens):
        if len(token) > 1 and token[-1] == "," and token[-2].isdigit():
            number = token[:-1].replace(SPACE, "")
            parts: list[str] = processor.Encode(number, out_type=str)
            if not token.startswith(SPACE):
                parts = [parts[0].removeprefix(SPACE), *parts[1:]]
                parts = [part for part in parts if part]
            ids: list[int] = [processor.PieceToId(part) for part in [*parts, ","]]
            if processor.unk_id() not in ids:  # a split must lose no character
                splits[index] = ids
    return splits


class Splits:
    """Replaces some ids by several: [4, 9, 4] with {9: [1, 2]} -> [4, 1, 2, 4]."""

    def __init__(self, splits: Mapping[int, list[int]], vocab_size: int) -> None:
        self._splits = splits
        self._is_split = np.zeros(vocab_size, dtype=bool)
        self._is_split[list(splits)] = True

    def apply_to_lists(self, rows: Sequence[list[int]]) -> None:
        """Replace in each text's own list."""
        are_whole = self._splits.keys().isdisjoint
        for ids in rows:
            if not are_whole(ids):
                ids[:] = [part for index in ids for part in self._splits.get(index) or (index,)]

    def apply(self, ids: Ids, bounds: Bounds) -> tuple[Int[np.ndarray, " split_tokens"], Bounds]:
        """Replace in the ids of many texts, one after another; `bounds` are where texts start."""
        at = np.flatnonzero(self._is_split[ids])
        if not at.size:
            return ids, bounds
        replacements = [self._splits[index] for index in ids[at].tolist()]
        extra = np.array([len(replacement) - 1 for replacement in replacements])
        ids = ids.copy()
        ids[at] = [replacement[0] for replacement in replacements]
        further = [index for replacement in replacements for index in replacement[1:]]
        shift = np.append(0, np.cumsum(extra))[np.searchsorted(at, bounds)]
        return np.insert(ids, np.repeat(at + 1, extra), further), bounds + shift
