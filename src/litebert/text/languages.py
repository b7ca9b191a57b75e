"""What a language asks of the clean-up: its code, or lines of its text, in; `TextRules` out.

Two things differ. Combining marks tell words apart in almost every language ("schon", "schön");
ALBERT's English drops them. And I is the capital of ı, İ that of i, where the alphabet has both
(Unicode's SpecialCasing.txt: tr, az). All other lower-casing is the same everywhere and needs no
rule: ß stays ß, ẞ becomes ß, Σ at the end of a word ς. The dots that SpecialCasing adds for
Lithuanian appear under stress marks alone, which only dictionaries print.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from litebert.checks import check_known
from litebert.text.normalize import TextRules

OTHER = "other"
"""Any language without rules of its own: marks are kept, letters lowered as Unicode does."""


@dataclass(frozen=True, kw_only=True)
class Language:
    """A language whose rules differ from those of most."""

    name: str
    keeps_accents: bool = True
    has_dotless_i: bool = False


_LANGUAGES = {
    "en": Language(name="English", keeps_accents=False),
    "tr": Language(name="Turkish", has_dotless_i=True),
    "az": Language(name="Azerbaijani", has_dotless_i=True),
    OTHER: Language(name="another language than English"),
}
_SAME = """ar bg bn ca cs da de el es et eu fa fi fr ga gl he hi hr hu hy id is it ja ka ko lt lv
    mk ms nb nl nn no pl pt ro ru sk sl sq sr sv sw ta te th uk ur vi zh"""
SAME = tuple(_SAME.split())
"""Codes that `other` stands for, so that nobody has to know that theirs is one of them."""

_WORDS = """the of and to that for with this are from which have not but they his her were
    by you it be was she had"""
_ENGLISH_WORDS = frozenset(_WORDS.split())
_ENGLISH_SHARE = 0.1
"""Of running English a quarter is these words; of its closest relatives a few in a hundred."""
_DOTLESS_SHARE = 0.01
"""Of the letters of Turkish one in twenty is ı, of other large languages none."""
_SCHWA_SHARE = 0.01
"""ə is the commonest letter of Azerbaijani; Turkish has none."""
_SAMPLED_LINES, _SAMPLED_CHARACTERS = 10_000, 2_000_000
_WORD = re.compile(r"[^\W\d_]+")


def language_of(code: str) -> Language:
    """By its two-letter code (ISO 639-1), or `other`."""
    code = OTHER if code in SAME else code
    check_known("language", code, [*_LANGUAGES, *SAME])
    return _LANGUAGES[code]


def rules_of(
    language: Language, *, lowercase: bool = True, keep_accents: bool | None = None
) -> TextRules:
    """The clean-up for a language; `keep_accents` overrides what it asks for."""
    return TextRules(
        lowercase=lowercase,
        keep_accents=language.keeps_accents if keep_accents is None else keep_accents,
        dotless_i=language.has_dotless_i,
    )


@dataclass(frozen=True, kw_only=True)
class Detected:
    """A language by a sample of text."""

    code: str
    evidence: str
    """What of the sample decided, for people."""


def detect(lines: Iterable[str]) -> Detected:
    """English, Turkish, Azerbaijani or `other`, by the first of the lines."""
    words = num_words = 0
    letters: Counter[str] = Counter()
    for number, line in enumerate(lines):
        if number == _SAMPLED_LINES or letters.total() > _SAMPLED_CHARACTERS:
            break
        for word in _WORD.findall(line):
            num_words += 1
            words += word.lower() in _ENGLISH_WORDS
            letters.update(word)
    total = max(letters.total(), 1)
    english, dotless = words / max(num_words, 1), letters["ı"] / total
    if dotless >= _DOTLESS_SHARE:
        is_azerbaijani = (letters["ə"] + letters["Ə"]) / total >= _SCHWA_SHARE
        code = "az" if is_azerbaijani else "tr"
        return Detected(code=code, evidence=f"{dotless:.1%} of its letters are ı")
    code = "en" if english >= _ENGLISH_SHARE else OTHER
    return Detected(code=code, evidence=f"{english:.1%} of its words are common English words")
