"""What the clean-up does to each character, as data: rules in, tables out.

A program that has no Python, such as a page in a browser, gets the same token ids from them,
whatever its own version of Unicode is. Two steps are tables: marks (compatibility forms are
decomposed, combining marks dropped) and case. Hangul syllables, which decompose by arithmetic that
no version changes, are left out. Σ alone depends on its neighbors: it becomes ς where a word ends
(Unicode 3.13, Final_Sigma), which the two character classes decide.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from litebert.text.huggingface import code_ranges
from litebert.text.normalize import TextRules, without_marks

_HANGUL = range(0xAC00, 0xD7A4)
_SURROGATES = range(0xD800, 0xE000)
_CHARACTERS = "".join(
    chr(code) for code in range(0x110000) if code not in _SURROGATES and code not in _HANGUL
)
_CHUNK = 256
_TWO_LOWERED = "İ"
"""The one character whose lower case is two."""
_ONE_TO_ONE = _CHARACTERS.replace(_TWO_LOWERED, "")


def cleanup_tables(rules: TextRules) -> dict[str, Any]:
    """JSON values: `decomposed` and `lowered` by character, and `cased` and `ignorable`, each the
    inside of a character class of a regular expression."""
    decomposed = {} if rules.keep_accents else _changes(without_marks)
    if not rules.lowercase:
        return {"decomposed": decomposed, "lowered": {}, "cased": "", "ignorable": ""}
    cased, ignorable = _sigma_classes()
    lowered = {char: low for char, low in _changes(str.lower).items() if char != "Σ"}
    return {"decomposed": decomposed, "lowered": lowered, "cased": cased, "ignorable": ignorable}


@cache
def _changes(step: Callable[[str], str]) -> dict[str, str]:
    changes: dict[str, str] = {}
    for start in range(0, len(_CHARACTERS), _CHUNK):
        chunk = _CHARACTERS[start : start + _CHUNK]
        if step(chunk) != chunk:  # true of few
            changes |= {char: new for char in chunk if (new := step(char)) != char}
    return changes


@cache
def _sigma_classes() -> tuple[str, str]:
    """Letters with case, and what Σ looks past: str.lower() itself tells them apart."""

    def ends_word(before: str) -> list[bool]:
        """For each character: whether Σ becomes ς behind `before` and it."""
        lowered = "".join(f"{before}{char}Σ " for char in _ONE_TO_ONE).lower()
        return [each == "ς" for each in lowered[2::4]]

    is_cased = ends_word(" ")
    # behind a letter: only what is looked past leaves the letter in sight
    is_seen_past = ends_word("a")
    cased = [ord(c) for c, yes in zip(_ONE_TO_ONE, is_cased, strict=True) if yes]
    ignorable = [
        ord(char)
        for char, past, yes in zip(_ONE_TO_ONE, is_seen_past, is_cased, strict=True)
        if past and not yes
    ]
    return _class(sorted([*cased, ord(_TWO_LOWERED)])), _class(ignorable)


def _class(codes: list[int]) -> str:
    """[65, 66, 67, 97] -> "\\\\u{41}-\\\\u{43}\\\\u{61}"."""
    return "".join(
        f"\\u{{{first:x}}}" + (f"-\\u{{{last:x}}}" if last > first else "")
        for first, last in code_ranges(codes)
    )
