"""Raw text in, the text that SentencePiece sees out: ALBERT's clean-up.

Whitespace is collapsed, then compatibility forms are decomposed (NFKD), combining marks are
dropped and letters are lowered, as in the reference's `preprocess_text` with lower-casing on. Most
text is ASCII and is only lowered. (ALBERT §4.1)
"""

import codecs
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, kw_only=True)
class TextRules:
    """What is done to a text besides SentencePiece itself; the defaults are ALBERT's."""

    lowercase: bool = True
    """Lower every letter."""
    keep_accents: bool = False
    """Skip NFKD and keep combining marks, for languages in which they tell words apart."""
    split_digit_commas: bool = True
    """Split a token that ends in digit and comma ("▁2010,") into the number and the comma, as the
    reference does."""
    dotless_i: bool = False
    """Lower I to ı and İ to i, as in Turkish and Azerbaijani (Unicode's SpecialCasing: tr, az)."""

    @property
    def lowers_dotless(self) -> bool:
        return self.lowercase and self.dotless_i


def clean(text: str, rules: TextRules) -> str:
    """The whole clean-up: clean("Ça  va, ﬁn ½", TextRules()) -> "ca va, fin 1⁄2"."""
    text = collapse(text)
    if rules.lowers_dotless:
        text = _lower_turkic(text)
    if not text.isascii() and _CHANGES.search(text):
        text = _encode(text, _KEEP if rules.keep_accents else _DROP).decode()
    return text.lower() if rules.lowercase else text


def clean_for_ids(text: str) -> str | bytes:
    """`clean` with ALBERT's rules, made to be fast: ASCII as str, the rest as UTF-8, and runs of
    whitespace left to models whose normalizer takes tab, newline, form feed and carriage return for
    spaces, collapses them, and drops them at both ends."""
    if text.isascii():
        if "\v" in text or "\x1c" in text or "\x1d" in text or "\x1e" in text or "\x1f" in text:
            # to Python, and so to the reference, these are whitespace; SentencePiece drops them
            return clean(text, _ALBERT)
        return text.lower()
    if not _CHANGES_OR_ODD.search(text):
        return text.encode().lower()
    data = _encode(text, _DROP_AND_LOWER).lower()
    if (
        b"\v" in data
        or b"\x1c" in data
        or b"\x1d" in data
        or b"\x1e" in data
        or b"\x1f" in data
        or _SIGMA in data
    ):
        return clean(text, _ALBERT).encode()
    return data


def collapse(text: str) -> str:
    """One space for each run of whitespace, none at either end: collapse(" a\\t b\\n") -> "a b"."""
    # exact, since all whitespace but the space is unprintable, and cheaper than splitting
    if text.isprintable() and "  " not in text and text[:1] != " " and text[-1:] != " ":
        return text
    return " ".join(text.split())


def width(char: str, rules: TextRules) -> int:
    """Characters that `clean` makes of one that is no whitespace: width("ﬁ", rules) -> 2."""
    if rules.lowers_dotless:
        char = _lower_turkic(char)
    if not (rules.keep_accents or char.isascii()):
        char = without_marks(char)
    return len(char.lower() if rules.lowercase else char)


def dots_of_capitals(text: str) -> list[int]:
    """Where a combining dot makes İ of a capital I, maybe behind marks that leave the place above
    the letter free, such as a dot below: İ followed by such a mark is the same text."""
    dots = (_dot_of(match) for match in _MARKED_CAPITAL.finditer(text))
    return [position for position in dots if position is not None]


def _lower_turkic(text: str) -> str:
    """I and İ; before marks are dropped, since İ is I with a mark. I with any mark is i, as Î is î
    in Turkish: so text lowers alike composed and decomposed."""
    text = text.replace("İ", "i")
    if not text.isascii():
        text = _MARKED_CAPITAL.sub(_lower_marked, text)
    return text.replace("I", "ı")


def _lower_marked(match: re.Match[str]) -> str:
    letter, rest = match[1], match[2]
    if not unicodedata.combining(rest[0]):
        return match[0]
    dot = _dot_of(match)
    if dot is not None:
        dot -= match.start(2)
        rest = rest[:dot] + rest[dot + 1 :]
    return ("i" if letter == "I" else letter) + rest


def _dot_of(match: re.Match[str]) -> int | None:
    for position, char in enumerate(match[2], match.start(2)):
        if char == "\u0307":
            return position
        if unicodedata.combining(char) in (0, _ABOVE):
            return None
    return None


CAPITALS_BELOW = "ĮỊḬ"
"""I with a mark below, in one character: a dot above may follow."""
_MARKED_CAPITAL = re.compile(f"([I{CAPITALS_BELOW}])([^\x00-\x7f{CAPITALS_BELOW}]+)")
_ABOVE = 230
"""The combining class of marks above a letter, where the first keeps others from its place."""


# To encode as ASCII with an error handler is to visit the non-ASCII runs only, and to find them at
# the speed of C. A handler may return any bytes, so what comes out is UTF-8. Lone surrogates, which
# have no UTF-8, become U+FFFD.
# bounds the caches in bytes; any cut is safe, since what crosses characters, the marks' order, is
# dropped
_LONGEST_RUN = 16
# For each error CPython looks for the end of its run anew, so a run costs the square of its length
# unless the text is cut.
_CHUNK = 1 << 10
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)
# ASCII and the commonest characters beyond it stay as they are, lower case aside.
_CHANGES = re.compile("[^\x00-\x7f£€–—‘’“”]")
_CHANGES_OR_ODD = re.compile("[^\x00-\n\f-\x1b\x20-\x7f£€–—‘’“”]")
_SIGMA = "Σ".encode()  # the one letter whose lower case depends on its neighbors
_ALBERT = TextRules()


def _encode(text: str, handler: str) -> bytes:
    if len(text) <= _CHUNK:
        return text.encode("ascii", handler)
    chunks = (text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK))
    return b"".join([chunk.encode("ascii", handler) for chunk in chunks])


def without_marks(text: str) -> str:
    """Compatibility forms decomposed, combining marks dropped: without_marks("Çﬁ") -> "Cfi"."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join([char for char in decomposed if not unicodedata.combining(char)])


@lru_cache(maxsize=1 << 13)
def _without_marks(run: str) -> bytes:
    return without_marks(run).translate(_SURROGATES).encode()


@lru_cache(maxsize=1 << 13)
def _lowered_without_marks(run: str) -> bytes:
    # Whitespace comes first in `clean`, and some of it (U+2028) has no decomposition.
    spaced = "".join([" " if char.isspace() else char for char in run])
    data = _without_marks(spaced)
    return data if _SIGMA in data else data.decode().lower().encode()


def _handler(name: str, convert: Callable[[str], bytes], longest: int = _LONGEST_RUN) -> str:
    """The name of an error handler that converts runs."""

    def handle(error: UnicodeError) -> tuple[bytes, int]:
        assert isinstance(error, UnicodeEncodeError)
        end = min(error.end, error.start + longest)
        return convert(error.object[error.start : end]), end

    codecs.register_error(name, handle)
    return name


_DROP = _handler("litebert.drop_marks", _without_marks)
_DROP_AND_LOWER = _handler("litebert.drop_marks_and_lower", _lowered_without_marks)
_KEEP = _handler("litebert.keep_marks", lambda run: run.translate(_SURROGATES).encode(), _CHUNK)
