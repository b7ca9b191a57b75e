"""Paragraphs in, the number of words in each of their sentences out: `sentence_ends` for many
paragraphs at once.

Most stops are plain: a word before that is no abbreviation, a space and a letter after. These are
decided in whole arrays, the rest by the rules of sentences.py; scripts that write no spaces go by
these alone. The sentences are the same, and a test holds them to it; a corpus is split in half the
time.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from litebert.text.sentences import (
    CLOSERS,
    OPENERS,
    SPACED_STOPS,
    SUFFIXES,
    UNSPACED_STOPS,
    end_at,
    sentence_ends,
)


class _SentenceWords(NamedTuple):
    """What a batch of paragraphs holds."""

    num_sentences: Int[np.ndarray, " paragraphs"]
    words: Int[np.ndarray, " sentences"]
    """Words of each sentence, if single spaces part them."""
    regular: Bool[np.ndarray, " paragraphs"]
    """Whether single spaces do part words and sentences. Else the words may be miscounted."""


_LIMIT = 0x3000
"""Characters from here on, above all the Chinese and Japanese ones, are left to the rules."""
_CHARACTERS = [chr(code) for code in range(_LIMIT)]
_LF, _SPACE, _LAST_ASCII = 10, 32, 126


def _table(characters: list[str]) -> np.ndarray:
    table = np.zeros(_LIMIT + 1, dtype=bool)  # the last place is for all that is beyond
    table[[ord(each) for each in characters if ord(each) < _LIMIT]] = True
    return table


_CAPITAL = _table([each for each in _CHARACTERS if each.isupper()])
_SMALL = _table([each for each in _CHARACTERS if each.islower()])
_LETTER = _table([each for each in _CHARACTERS[:128] if each.isalpha()])
_DIGIT = _table(list("0123456789"))
_ROMAN = _table(list("ivxIVXLC "))
_STOP = _table(list(SPACED_STOPS))
_GOES_ON = _table(
    [*SPACED_STOPS, *CLOSERS, *(each for each in _CHARACTERS if each.isspace() and each != "\n")]
)
_CLOSER = _table(list(CLOSERS))
_OPENER = _table(list(OPENERS))
_PRINTABLE = _table([each for each in _CHARACTERS if each.isprintable()])
_LEFT_TO_RULES = _table(list(UNSPACED_STOPS))
_LEFT_TO_RULES[_LIMIT] = True


def _key(letters: list[np.ndarray]) -> np.ndarray:
    """Four letters, the last one first, as one number."""
    key: np.ndarray = letters[0].astype(np.uint32)
    for position, letter in enumerate(letters[1:], 1):
        key |= letter.astype(np.uint32) << np.uint32(8 * position)
    return key


_ENDINGS = [word.rjust(4) for word in SUFFIXES if word.isascii()]
_ABBREVIATED = np.sort(
    _key([np.array([ord(word[-1 - back]) for word in _ENDINGS]) for back in range(4)])
)


def sentence_words(paragraphs: list[str]) -> _SentenceWords:
    """Sentences of each paragraph, and words of each. Paragraphs are stripped lines."""
    if not paragraphs:
        return _one_by_one([])
    is_ascii = np.fromiter(map(str.isascii, paragraphs), bool, len(paragraphs))
    if is_ascii.all():
        return _at_once(paragraphs, _ascii_codes(paragraphs))
    rest = _chosen(paragraphs, ~is_ascii)
    codes = np.frombuffer(_padded(rest).encode("utf-32-le"), dtype=np.uint32)
    codes = np.minimum(codes, _LIMIT)
    for_rules = np.zeros(len(rest), dtype=bool)
    for_rules[_lines_with(codes, _LEFT_TO_RULES)] = True
    if for_rules.any():
        slow = _one_by_one(_chosen(rest, for_rules))
        others = sentence_words(_chosen(rest, ~for_rules)) if not for_rules.all() else None
        wide = _merge(for_rules, slow, others) if others else slow
    else:
        wide = _at_once(rest, codes)
    plain = _chosen(paragraphs, is_ascii)
    return _merge(is_ascii, _at_once(plain, _ascii_codes(plain)), wide) if plain else wide


def _chosen(paragraphs: list[str], mask: np.ndarray) -> list[str]:
    return [paragraph for paragraph, chosen in zip(paragraphs, mask, strict=True) if chosen]


def _padded(paragraphs: list[str]) -> str:
    """With line feeds around, so that one may look a little before and after any character."""
    return "\n\n\n\n" + "\n".join(paragraphs) + "\n\n\n\n\n"


def _ascii_codes(paragraphs: list[str]) -> np.ndarray:
    return np.frombuffer(_padded(paragraphs).encode(), dtype=np.uint8)


def _lines_with(codes: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Numbers of the lines that hold a character of `table`, beyond ASCII."""
    data = codes[4:-4]
    exotic = np.flatnonzero(data > _LAST_ASCII)
    lines: np.ndarray = np.searchsorted(np.flatnonzero(data == _LF), exotic[table[data[exotic]]])
    return lines


def _merge(mask: np.ndarray, where: _SentenceWords, elsewhere: _SentenceWords) -> _SentenceWords:
    num_sentences = _put(mask, where.num_sentences, elsewhere.num_sentences)
    words = _put(np.repeat(mask, num_sentences), where.words, elsewhere.words)
    return _SentenceWords(num_sentences, words, _put(mask, where.regular, elsewhere.regular))


def _put(mask: np.ndarray, where: np.ndarray, elsewhere: np.ndarray) -> np.ndarray:
    merged = np.empty(len(mask), dtype=where.dtype)
    merged[mask], merged[~mask] = where, elsewhere
    return merged


def _one_by_one(paragraphs: list[str]) -> _SentenceWords:
    words: list[int] = []
    counts, regular = [], []
    for paragraph in paragraphs:
        ends = sentence_ends(paragraph)
        begin = 0
        for end in ends:
            words.append(paragraph.count(" ", begin, end))
            begin = end
        words[-1] += 1  # behind every word but the last there is a space
        counts.append(len(ends))
        parted = all(paragraph[end - 1] == " " for end in ends[:-1])
        regular.append(parted and "  " not in paragraph and paragraph.isprintable())
    return _SentenceWords(
        np.array(counts, dtype=np.int64),
        np.array(words, dtype=np.int64),
        np.array(regular, dtype=bool),
    )


def _at_once(paragraphs: list[str], codes: np.ndarray) -> _SentenceWords:
    data = codes[4:-4]  # every paragraph with its line feed
    controls = np.flatnonzero(data < _SPACE)
    is_feed = data[controls] == _LF
    feeds = controls[is_feed]
    ends = np.sort(np.concatenate([_ends_inside(codes, feeds, "\n".join(paragraphs)), feeds + 1]))
    spaces = np.flatnonzero(data == _SPACE)
    words = np.diff(np.searchsorted(spaces, ends), prepend=0)
    last = np.searchsorted(ends, feeds + 1)
    words[last] += 1
    regular = np.ones(len(paragraphs), dtype=bool)
    regular[np.searchsorted(feeds, spaces[:-1][np.diff(spaces) == 1])] = False
    regular[np.searchsorted(feeds, controls[~is_feed])] = False
    if codes.dtype != np.uint8:
        regular[_lines_with(codes, ~_PRINTABLE)] = False
    return _SentenceWords(np.diff(last, prepend=-1), words, regular)


def _ends_inside(codes: np.ndarray, feeds: np.ndarray, text: str) -> np.ndarray:
    """Where sentences end in a text of several lines, ends of lines aside."""
    data = codes[4:]
    stops = np.flatnonzero((data == ord(".")) | (data == ord("!")) | (data == ord("?")))
    if codes.dtype != np.uint8:
        exotic = np.flatnonzero(data > _LAST_ASCII)
        stops = np.sort(np.concatenate([stops, exotic[_STOP[data[exotic]]]]))
    stops = stops[_GOES_ON[data[stops + 1]]]
    # if all is plain: a stop, perhaps a closing mark, a space, a letter
    following = stops + 2 + _CLOSER[data[stops + 1]]
    spaced = data[following - 1] == _SPACE
    letter = data[following + _OPENER[data[following]]]  # perhaps behind an opening mark
    before = [codes[stops + 3 - back] for back in range(4)]
    plain = spaced & _CAPITAL[letter] & _after_plain_word(before)
    ends = following[plain]
    doubtful = stops[~plain & ~(spaced & _SMALL[letter])]

    # the rest in turn: what ended before, and where the line begins, is part of the question
    lines = np.concatenate([[0], feeds + 1])
    begins = np.maximum(
        lines[np.searchsorted(lines, doubtful, side="right") - 1], _last_before(ends, doubtful)
    )
    limits = feeds[np.searchsorted(feeds, doubtful)]
    accepted_ends: list[int] = []
    passed = accepted = 0
    for stop, begin, limit in zip(doubtful.tolist(), begins.tolist(), limits.tolist(), strict=True):
        if stop >= passed:  # not a part of the run of stops before
            passed, ended = end_at(text, max(begin, accepted), stop, limit)
            if ended:
                accepted_ends.append(passed)
                accepted = passed
    return np.concatenate([ends, np.array(accepted_ends, dtype=np.int64)])


def _after_plain_word(before: list[np.ndarray]) -> np.ndarray:
    """Do these four characters, the last one first, end a plain word of two letters or more?"""
    letter = [_LETTER[each] for each in before]
    space = [each == _SPACE for each in before]
    word = letter[0] & letter[1] & ((letter[2] & (letter[3] | space[3])) | space[2])
    before = [*before[:3], np.where(space[2], _SPACE, before[3])]
    key = _key(before)
    abbreviated = (
        _ABBREVIATED[np.minimum(np.searchsorted(_ABBREVIATED, key), len(_ABBREVIATED) - 1)] == key
    )
    # "xvii. A list", perhaps
    roman = _ROMAN[before[0]] & _ROMAN[before[1]] & _ROMAN[before[2]] & _ROMAN[before[3]]
    year = _DIGIT[before[0]] & _DIGIT[before[1]] & _DIGIT[before[2]] & _DIGIT[before[3]]
    plain: np.ndarray = (word & ~abbreviated & ~roman) | year
    return plain


def _last_before(ends: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The last of `ends` at or before each place, 0 if there is none."""
    return np.concatenate([[0], ends])[np.searchsorted(ends, places, side="right")]
