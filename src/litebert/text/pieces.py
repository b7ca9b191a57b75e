"""A vocabulary's pieces in, small tables by id out: special tokens, word starts, pieces that are
cut after encoding."""

from collections.abc import Mapping, Sequence

import numpy as np
import sentencepiece
from jaxtyping import Int

from litebert.errors import DataError

Ids = Int[np.ndarray, " tokens"]
Bounds = Int[np.ndarray, " texts_plus_one"]
Offsets = Int[np.ndarray, "tokens 2"]

SPACE = "▁"
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_WORD_INNER = _PUNCTUATION | frozenset("abcdefghijklmnopqrstuvwxyz")


def special_ids(
    processor: sentencepiece.SentencePieceProcessor, source: str
) -> tuple[int, int, int, int, int]:
    """The ids of padding, unknown, [CLS], [SEP] and [MASK]; 0 to 4 in ALBERT's vocabulary."""
    found = {"<pad>": processor.pad_id(), "<unk>": processor.unk_id()}
    for name in ("[CLS]", "[SEP]", "[MASK]"):
        index = processor.PieceToId(name)
        found[name] = index if processor.IsControl(index) else -1
    absent = [name for name, index in found.items() if index < 0]
    if absent:
        raise DataError(
            f"{source} has no special token {', '.join(absent)}, expected all of "
            f"{', '.join(found)}; "
            "train a vocabulary with `litebert tokenizer train`"
        )
    pad, unk, cls, sep, mask = found.values()
    return pad, unk, cls, sep, mask


def starts_word(piece: str) -> bool:
    """Whether a piece begins a word when words are masked as a whole: starts_word("ing") -> False.
    (reference's rule)

    Digits, apostrophes and letters beyond a-z always stand alone; "..." hangs on the word before
    it, "." does not.
    """
    if piece.startswith((SPACE, "<")) or piece in _PUNCTUATION:
        return True
    return not all(char.lower() in _WORD_INNER for char in piece)


def digit_comma_splits(
    processor: sentencepiece.SentencePieceProcessor, pieces: Sequence[str]
) -> dict[int, list[int]]:
    """For each piece that ends in digit and comma, what replaces it: "▁2010," -> the ids of "▁2010"
    and ",".

    The reference encodes the number anew and means to take off the ▁ that this puts before a number
    inside a word, but its test for that never holds under Python 3. All 141 such pieces of ALBERT's
    own vocabulary begin a word, so both readings agree there; for other vocabularies we do what was
    meant, since a ▁ too many would change the text.
    """
    splits = {}
    for index, piece in enumerate(pieces):
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            number = piece[:-1].replace(SPACE, "")
            parts: list[str] = processor.Encode(number, out_type=str)
            if not piece.startswith(SPACE):
                parts = [parts[0].removeprefix(SPACE), *parts[1:]]
                parts = [part for part in parts if part]
            ids: list[int] = [processor.PieceToId(part) for part in [*parts, ","]]
            if processor.unk_id() not in ids:  # a cut that loses characters helps nobody
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
        found_in = frozenset(self._splits).intersection
        for ids in rows:
            for found in found_in(ids):
                at = 0
                for _ in range(ids.count(found)):
                    at = ids.index(found, at)
                    ids[at : at + 1] = self._splits[found]
                    at += len(self._splits[found])

    def apply(self, ids: Ids, bounds: Bounds) -> tuple[Ids, Bounds]:
        """Replace in the ids of many texts, one after another; `bounds` says where each text
        starts."""
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
