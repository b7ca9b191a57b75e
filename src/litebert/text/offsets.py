"""Raw texts and their token ids in, the offsets of each token in the raw text out.

SentencePiece's own offsets are slow and refer to the cleaned text. But the tokens of a text
partition its normalized form, so that the lengths of tokens give their offsets there; what remains
is to map the normalized text back to the cleaned one, and that to the raw one. For most texts both
mappings are the identity, and cost nothing.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import sentencepiece

from litebert.shapes import Int
from litebert.text.normalize import TextRules, clean, collapse, dots_of_capitals, width
from litebert.text.vocabulary import SPACE, Bounds, Ids, Offsets

Places = Int[np.ndarray, "_"]
_SPECIAL = {"<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>"}


@dataclass(frozen=True, slots=True)
class _Aligned:
    """One text, cleaned, and the mapping back to the raw text."""

    cleaned: str
    size: int
    """Number of characters of the normalized text, which the tokens partition."""
    walk: tuple[Places, Places] | None
    """Raw start and end of each normalized character. None: raw, after the prefix."""


class Aligner:
    """Maps tokens back to raw text, for one vocabulary and its rules."""

    def __init__(
        self,
        processor: sentencepiece.SentencePieceProcessor,
        tokens: Sequence[str],
        unk_id: int,
        rules: TextRules,
    ) -> None:
        self._processor = processor
        self._unk_id = unk_id
        self._rules = rules
        self._widths = _Widths(rules)
        self._prefix: str = processor.Normalize("a").removesuffix("a")
        # A foreign model may bring rules for ASCII; then every text takes the long walk.
        printable = "".join(map(chr, range(33, 127)))
        self._ascii_is_plain = self._is_plain(" ".join((printable, *printable)))
        sizes = np.array(
            [(len(p), len(p) - len(p.lstrip(SPACE)), len(p) - len(p.rstrip(SPACE))) for p in tokens]
        )
        self._lengths, self._leads, self._trails = sizes.astype(np.int32).T.copy()
        self._trails[self._leads == self._lengths] = 0  # a lone ▁ is all lead
        single = {token for token in tokens if len(token) == 1}
        self._characters_are_tokens = single.issuperset(
            "".join(token for token in tokens if token not in _SPECIAL)
        )
        self._unknown_run = re.compile("[^" + re.escape("".join(sorted(single))) + "]+")

    def _is_plain(self, cleaned: str) -> bool:
        """Whether SentencePiece's own normalizer does no more than write ▁ for spaces."""
        return bool(
            self._processor.Normalize(cleaned) == self._prefix + cleaned.replace(" ", SPACE)
        )

    def _align(self, raw: str) -> _Aligned:
        """Clean one text and map it back to the raw text."""
        cleaned = clean(raw, self._rules)
        if not cleaned:
            return _Aligned(cleaned, 0, None)
        # Equal lengths alone prove nothing beyond ASCII: a ligature may make up for a dropped mark.
        in_place = len(cleaned) == len(raw) and (
            raw.isascii() or cleaned == (raw.lower() if self._rules.lowercase else raw)
        )
        tidy_ascii = cleaned.isascii() and cleaned.isprintable() and collapse(cleaned) == cleaned
        plain = (tidy_ascii and self._ascii_is_plain) or self._is_plain(cleaned)
        if in_place and plain:
            return _Aligned(cleaned, len(self._prefix) + len(cleaned), None)
        starts, ends = _cleaned_to_raw(raw, len(cleaned), self._widths)
        if plain:
            prefix = np.zeros(len(self._prefix), dtype=np.int64)
            walk = np.concatenate((prefix, starts)), np.concatenate((prefix, ends))
            return _Aligned(cleaned, len(walk[0]), walk)
        normalized, places = self._processor.Normalize(cleaned, with_offsets=True)
        first, last = _normalized_to_cleaned(cleaned, np.array(places))
        return _Aligned(cleaned, len(normalized), (starts[first], ends[last]))

    def offsets(
        self, texts: Sequence[str], ids: Ids, bounds: Bounds
    ) -> list[Int[np.ndarray, "_tokens 2"]]:
        """The (start, end) of every token; text i has ids[bounds[i] : bounds[i + 1]]."""
        aligned = [self._align(text) for text in texts]
        sizes = np.array([text.size for text in aligned])
        lengths = self._lengths[ids]
        self._measure_unknowns(aligned, ids, lengths, bounds)
        stops = np.cumsum(lengths)
        first_char = np.cumsum(sizes) - sizes
        assert np.array_equal(np.append(0, stops)[bounds[1:]], first_char + sizes), (
            "tokens must partition their text"
        )
        # from here on each text counts from 0
        stops -= np.repeat(first_char + len(self._prefix), np.diff(bounds))
        places = np.empty((len(ids), 2), dtype=np.int32)
        np.subtract(stops, lengths - self._leads[ids], out=places[:, 0], casting="same_kind")
        np.subtract(stops, self._trails[ids], out=places[:, 1], casting="same_kind")
        rows = [places[start:end] for start, end in pairwise(bounds.tolist())]
        for text, row in zip(aligned, rows, strict=True):
            if text.walk is not None:
                _walk_back(row, len(self._prefix), *text.walk)
        return rows

    def _measure_unknowns(
        self, texts: Sequence[_Aligned], ids: Ids, lengths: Ids, bounds: Bounds
    ) -> None:
        """Write into `lengths` the length of the run that each unknown token stands for."""
        unknown = np.flatnonzero(ids == self._unk_id)
        lengths[unknown] = 0
        rows = np.searchsorted(bounds, unknown, side="right") - 1
        for start, end in pairwise(np.flatnonzero(np.diff(rows, prepend=-1, append=-1)).tolist()):
            row, at = rows[start], unknown[start:end]
            if len(at) == 1:
                lengths[at] = texts[row].size - lengths[bounds[row] : bounds[row + 1]].sum()
            else:
                lengths[at] = self._unknown_lengths(texts[row].cleaned, len(at))

    def _unknown_lengths(self, cleaned: str, count: int) -> list[int]:
        # an unknown token: characters that are no tokens, unless a longer one covers them
        runs = self._unknown_run.findall(self._processor.Normalize(cleaned))
        if self._characters_are_tokens and len(runs) == count:
            return [len(run) for run in runs]
        surfaces = self._processor.Encode(cleaned, out_type=str)
        pairs = zip(self._processor.Encode(cleaned), surfaces, strict=True)
        return [len(surface) for index, surface in pairs if index == self._unk_id]


class _Widths(dict[str, int]):
    """`width` of each character, remembered."""

    def __init__(self, rules: TextRules) -> None:
        super().__init__()
        self.rules = rules

    def __missing__(self, char: str) -> int:
        self[char] = count = width(char, self.rules)
        return count


def _cleaned_to_raw(raw: str, size: int, widths: _Widths) -> tuple[Places, Places]:
    """For each character of the cleaned text, the raw characters it starts and ends at."""
    counts = np.ones(len(raw), dtype=np.int64)
    beyond_ascii = np.flatnonzero(
        np.frombuffer(raw.encode("utf-32-le", "surrogatepass"), dtype=np.uint32) > 127
    )
    counts[beyond_ascii] = [widths[raw[at]] for at in beyond_ascii.tolist()]
    if widths.rules.lowers_dotless:
        counts[dots_of_capitals(raw)] = 0
    dropped = counts == 0
    if collapse(raw) != raw:
        space = np.array([char.isspace() for char in raw])
        words = np.flatnonzero(~space)
        inner = np.zeros_like(space)
        inner[words[0] : words[-1]] = True
        is_first = inner & ~np.append(True, space[:-1])
        counts[space] = is_first[space]
        dropped &= ~space
    assert counts.sum() == size, "the clean-up and its widths must agree"
    places = np.arange(len(raw) + 1)
    # A character reaches up to the next one that is not a dropped mark.
    next_base = np.where(np.append(dropped, False), len(raw), places)
    reach = np.minimum.accumulate(next_base[::-1])[::-1][1:]
    return np.repeat(places[:-1], counts), np.repeat(reach, counts)


def _normalized_to_cleaned(cleaned: str, places: Places) -> tuple[Places, Places]:
    """For each normalized character, the first and last cleaned one it stands for."""
    first = places[:-1]
    # up to the next place that is reached, so that nothing gets lost
    reached = np.append(np.unique(places), len(cleaned))
    last = reached[np.searchsorted(reached, first, side="right")] - 1
    letters = np.array([char != " " for char in cleaned])
    last_letter = np.maximum.accumulate(np.where(letters, np.arange(len(cleaned)), -1))[last]
    # collapsed spaces belong to no one
    return first, np.where(last_letter >= first, last_letter, last)


def _walk_back(places: Offsets, prefix: int, raw_starts: Places, raw_ends: Places) -> None:
    """Turn places in the normalized text into places in the raw one, in the same array."""
    starts, stops = places.T + prefix
    places[:, 0] = np.append(raw_starts, raw_ends[-1:])[starts]
    places[:, 1] = np.where(stops > starts, raw_ends[np.maximum(stops - 1, 0)], places[:, 0])
