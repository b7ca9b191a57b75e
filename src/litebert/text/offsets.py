"""Raw texts and their token ids in, the place of each token in the raw text out.

SentencePiece's own offsets come slowly and know only the cleaned text. But the pieces of a text partition its normalized
form, so the pieces' lengths alone say where each one lies; what remains is to walk back from the normalized text to the
cleaned and from the cleaned to the raw. For most texts both walks are the identity, and cost nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import sentencepiece
from jaxtyping import Int

from litebert.text.normalize import TextRules, clean, collapse, width
from litebert.text.pieces import SPACE

Places = Int[np.ndarray, " chars"]


@dataclass(frozen=True, slots=True)
class Aligned:
    """One text on its way to SentencePiece."""

    cleaned: str
    size: int
    """Number of characters of the normalized text, which the pieces partition."""
    walk: tuple[Places, Places] | None
    """For each character of the normalized text, the raw characters it starts and ends at. None: raw, after the prefix."""


class Aligner:
    """The walk from normalized text back to raw, for one vocabulary and its rules."""

    def __init__(
        self, processor: sentencepiece.SentencePieceProcessor, pieces: Sequence[str], unk_id: int, rules: TextRules
    ) -> None:
        self._processor = processor
        self._unk_id = unk_id
        self._rules = rules
        self._widths = _Widths(rules)
        self._prefix: str = processor.Normalize("a").removesuffix("a")
        # A foreign model may bring rules for ASCII; then every text takes the long walk.
        everything = "".join(map(chr, range(33, 127)))
        everything = " ".join((everything, *everything))
        self._ascii_is_plain = self._is_plain(everything)
        self._lengths = np.array([len(piece) for piece in pieces])
        self._leads = self._lengths - [len(piece.lstrip(SPACE)) for piece in pieces]
        self._trails = self._lengths - [len(piece.rstrip(SPACE)) for piece in pieces]
        self._trails[self._leads == self._lengths] = 0  # a lone ▁ is all lead

    def _is_plain(self, cleaned: str) -> bool:
        """Whether SentencePiece's own normalizer does no more than write ▁ for spaces."""
        return bool(self._processor.Normalize(cleaned) == self._prefix + cleaned.replace(" ", SPACE))

    def align(self, raw: str) -> Aligned:
        """Clean one text and find the way back."""
        cleaned = clean(raw, self._rules)
        if not cleaned:
            return Aligned(cleaned, 0, None)
        # Equal lengths alone prove nothing beyond ASCII: a ligature may make up for a dropped mark.
        in_place = len(cleaned) == len(raw) and (raw.isascii() or cleaned == (raw.lower() if self._rules.lowercase else raw))
        tidy_ascii = cleaned.isascii() and collapse(cleaned) is cleaned
        if in_place and ((tidy_ascii and self._ascii_is_plain) or self._is_plain(cleaned)):
            return Aligned(cleaned, len(self._prefix) + len(cleaned), None)
        starts, ends = _cleaned_to_raw(raw, len(cleaned), self._widths)
        normalized, places = self._processor.Normalize(cleaned, with_offsets=True)
        first, last = _normalized_to_cleaned(cleaned, np.array(places))
        return Aligned(cleaned, len(normalized), (starts[first], ends[last]))

    def offsets(self, texts: Sequence[Aligned], encoded: Sequence[Sequence[int]]) -> list[list[tuple[int, int]]]:
        """The (start, end) of every token in its raw text."""
        bounds = np.cumsum([0, *map(len, encoded)])
        ids = np.fromiter(chain.from_iterable(encoded), dtype=np.int64, count=bounds[-1])
        sizes = np.array([text.size for text in texts], dtype=np.int64)
        lengths = self._lengths[ids]
        self._measure_unknowns(texts, ids, lengths, bounds)
        stops = np.cumsum(lengths)
        first_char = np.cumsum(sizes) - sizes
        assert np.array_equal(np.append(0, stops)[bounds[1:]], first_char + sizes), "pieces must partition their text"
        # All texts at once: places count from each text's own first character, and then from the raw text's.
        stops -= np.repeat(first_char, np.diff(bounds))
        starts = stops - lengths + np.where(ids == self._unk_id, 0, self._leads[ids])
        stops -= np.where(ids == self._unk_id, 0, self._trails[ids])
        shift = len(self._prefix)
        for row, text in enumerate(texts):
            if text.walk is not None:
                tokens = slice(bounds[row], bounds[row + 1])
                starts[tokens], stops[tokens] = _walk_back(starts[tokens], stops[tokens], *text.walk)
                starts[tokens] += shift
                stops[tokens] += shift
        places = list(zip((starts - shift).tolist(), (stops - shift).tolist(), strict=True))
        edges = bounds.tolist()
        return [places[edges[row] : edges[row + 1]] for row in range(len(texts))]

    def _measure_unknowns(self, texts: Sequence[Aligned], ids: Places, lengths: Places, bounds: Places) -> None:
        """Write the true length of each unknown token into `lengths`: it stands for a run of any length."""
        unknown = np.flatnonzero(ids == self._unk_id)
        rows = np.searchsorted(bounds, unknown, side="right") - 1
        for row in np.unique(rows):
            at = unknown[rows == row]
            lengths[at] = 0
            if len(at) == 1:
                lengths[at] = texts[row].size - lengths[bounds[row] : bounds[row + 1]].sum()
            else:
                cleaned = texts[row].cleaned
                pairs = zip(self._processor.Encode(cleaned), self._processor.Encode(cleaned, out_type=str), strict=True)
                lengths[at] = [len(surface) for index, surface in pairs if index == self._unk_id]


class _Widths(dict[str, int]):
    """`width` of each character, remembered."""

    def __init__(self, rules: TextRules) -> None:
        super().__init__()
        self.rules = rules

    def __missing__(self, char: str) -> int:
        self[char] = found = width(char, self.rules)
        return found


def _cleaned_to_raw(raw: str, size: int, widths: _Widths) -> tuple[Places, Places]:
    """For each character of the cleaned text, the raw characters it starts and ends at."""
    counts = np.array([widths[char] for char in raw])
    dropped = counts == 0
    if collapse(raw) is not raw:
        space = np.array([char.isspace() for char in raw])
        words = np.flatnonzero(~space)
        inner = np.zeros_like(space)
        inner[words[0] : words[-1]] = True
        counts[space] = (inner & ~np.append(True, space[:-1]))[space]  # of each inner run, the first
        dropped &= ~space
    assert counts.sum() == size, "the clean-up and its widths must agree"
    places = np.arange(len(raw) + 1)
    # A character reaches up to the next one that is not a dropped mark.
    kept = np.where(np.append(dropped, False), len(raw), places)
    reach = np.minimum.accumulate(kept[::-1])[::-1][1:]
    return np.repeat(places[:-1], counts), np.repeat(reach, counts)


def _normalized_to_cleaned(cleaned: str, places: Places) -> tuple[Places, Places]:
    """For each character of the normalized text, the first and the last character of the cleaned text it stands for."""
    first = places[:-1]
    reached = np.append(np.unique(places), len(cleaned))  # up to the next place that is reached, so that nothing gets lost
    last = reached[np.searchsorted(reached, first, side="right")] - 1
    letters = np.array([char != " " for char in cleaned])
    last_letter = np.maximum.accumulate(np.where(letters, np.arange(len(cleaned)), -1))[last]
    return first, np.where(last_letter >= first, last_letter, last)  # collapsed spaces belong to no one


def _walk_back(starts: Places, stops: Places, raw_starts: Places, raw_ends: Places) -> tuple[Places, Places]:
    begins = np.append(raw_starts, raw_ends[-1:])[starts]
    return begins, np.where(stops > starts, raw_ends[np.maximum(stops - 1, 0)], begins)
