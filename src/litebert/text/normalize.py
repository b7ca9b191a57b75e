"""Raw text in, the text that SentencePiece sees out: ALBERT's clean-up.

Whitespace is collapsed, then compatibility forms are decomposed (NFKD), combining marks are dropped and letters are
lowered, as in the reference's `preprocess_text` with lower-casing on. Most text is ASCII, and is only lowered. (ALBERT §4.1)
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, kw_only=True)
class TextRules:
    """What is done to a text besides SentencePiece itself. Saved with the tokenizer; the defaults are ALBERT's."""

    lowercase: bool = True
    """Lower every letter."""
    keep_accents: bool = False
    """Skip NFKD and keep combining marks, for languages in which they tell words apart. SentencePiece still composes (NFKC)."""
    split_digit_commas: bool = True
    """Cut a piece that ends in digit and comma ("▁2010,") into the number and the comma, as the reference does."""


# A run is cut at 16 characters so that the cache below is bounded in bytes too. Any cut is safe: each character
# decomposes on its own, and the only thing that crosses characters, the order of the marks, goes away with the marks.
_NON_ASCII = re.compile(r"[^\x00-\x7f]{1,16}")


@lru_cache(maxsize=1 << 16)
def _without_marks(run: str) -> str:
    return "".join([char for char in unicodedata.normalize("NFKD", run) if not unicodedata.combining(char)])


def _replacement(match: re.Match[str]) -> str:
    return _without_marks(match[0])


def collapse(text: str) -> str:
    """One space for each run of whitespace, none at either end: collapse(" a\\t b\\n") -> "a b"."""
    # All whitespace but the space itself is unprintable, so this test is exact, and cheaper than splitting into words.
    if text.isprintable() and "  " not in text and text[:1] != " " and text[-1:] != " ":
        return text
    return " ".join(text.split())


def clean(text: str, rules: TextRules) -> str:
    """The whole clean-up: clean("Ça  va, ﬁn ½", TextRules()) -> "ca va, fin 1⁄2"."""
    text = collapse(text)
    if not (rules.keep_accents or text.isascii()):
        text = _NON_ASCII.sub(_replacement, text)
    return text.lower() if rules.lowercase else text


def clean_for_ids(text: str, rules: TextRules) -> str:
    """As `clean`, but runs of spaces stay where SentencePiece's own normalizer collapses them: same ids, less time."""
    if not text.isprintable():
        text = " ".join(text.split())
    if not (rules.keep_accents or text.isascii()):
        text = _NON_ASCII.sub(_replacement, text)
    return text.lower() if rules.lowercase else text


def width(char: str, rules: TextRules) -> int:
    """How many characters `clean` makes of one that is not whitespace: width("ﬁ", rules) -> 2; 0 for a dropped mark."""
    cleaned = char if rules.keep_accents else _without_marks(char)
    return len(cleaned.lower() if rules.lowercase else cleaned)
