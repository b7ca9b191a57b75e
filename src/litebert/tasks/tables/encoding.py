"""The encoding of a text file: its first bytes and the user's word in, a codec's name out.

A byte-order mark decides, then UTF-8. A file that is not UTF-8 is taken for Windows-1252, which
includes Latin-1, only where almost every line beyond ASCII speaks for it and its letters look like
those of a Western European language; the guess is told. Anything else stays UTF-8 with bad rows.
"""

import codecs

from litebert.checks import shorten
from litebert.errors import ConfigError

_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_GUESS = "cp1252"
_LEAST_LINES = 3
"""Lines that are not UTF-8; fewer are damage."""
_LEAST_SHARE = 0.9
"""Of the lines beyond ASCII, those that are not UTF-8."""
_MOST_LETTERS = 0.3
"""Of all letters, those beyond ASCII: German has 2 %, French 4 %; in Cyrillic almost all are."""


def check_encoding(name: str) -> None:
    """ConfigError where Python has no such codec."""
    if name == "auto":
        return
    try:
        " ".encode(name)
    except (LookupError, UnicodeError, ValueError):
        raise ConfigError(
            f"there is no text encoding {shorten(name)}; usual ones are utf-8, cp1252, latin-1, "
            "cp1251, utf-16 and auto"
        ) from None


def find_encoding(sample: bytes) -> tuple[str, bool]:
    """The encoding of a file that begins with `sample`, and whether it is a guess."""
    for mark, name in _MARKS.items():
        if sample.startswith(mark):
            return name, False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return (_GUESS, True) if _is_western(sample) else ("utf-8", False)
    return "utf-8", False


def _is_western(sample: bytes) -> bool:
    lines = [line for line in sample.split(b"\n") if not line.isascii()]
    broken = [line for line in lines if not _is_utf8(line)]
    if len(broken) < max(_LEAST_LINES, _LEAST_SHARE * len(lines)):
        return False
    try:
        text = sample.decode(_GUESS)
    except UnicodeDecodeError:
        return False
    letters = sum(map(str.isalpha, text))
    beyond = sum(char.isalpha() and not char.isascii() for char in text)
    return beyond <= _MOST_LETTERS * letters


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
