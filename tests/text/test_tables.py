"""The clean-up as data: tables that give every character what Python's clean-up gives it."""

import re

import pytest

from litebert.text.normalize import TextRules, clean
from litebert.text.tables import cleanup_tables

RULES = {
    "albert": TextRules(),
    "accents": TextRules(keep_accents=True),
    "case": TextRules(lowercase=False),
    "both": TextRules(lowercase=False, keep_accents=True),
}


@pytest.mark.parametrize("name", RULES)
def test_the_tables_do_what_the_clean_up_does(name: str) -> None:
    rules = RULES[name]
    tables = cleanup_tables(rules)
    decomposed, lowered = tables["decomposed"], tables["lowered"]
    codes = {*map(ord, {**decomposed, **lowered}), *range(0x80), *range(0x80, 0x110000, 19)}
    codes -= {*range(0xD800, 0xE000), *range(0xAC00, 0xD7A4), ord("Σ")}
    chars = [char for char in map(chr, sorted(codes)) if not char.isspace()]
    by_table = "1".join(
        "".join(lowered.get(each, each) for each in decomposed.get(char, char)) for char in chars
    )
    # "1" is no letter, so that no Σ is at the end of a word
    by_table = by_table.replace("Σ", "σ") if rules.lowercase else by_table
    assert by_table == clean("1".join(chars), rules)


def test_a_sigma_ends_a_word_where_python_says_so() -> None:
    tables = cleanup_tables(TextRules())
    python = {
        name: re.sub(r"\\u\{(\w+)\}", lambda match: f"\\U{int(match[1], 16):08x}", tables[name])
        for name in ("cased", "ignorable")
    }
    cased, ignorable = (re.compile(f"[{python[name]}]") for name in ("cased", "ignorable"))
    for code in range(0, 0x110000, 29):
        char = chr(code)
        sees_past = bool(ignorable.match(char))
        is_letter = bool(cased.match(char))
        assert not (sees_past and is_letter)
        assert ((char + "Σ").lower()[-1] == "ς") == is_letter, hex(code)
        assert (("a" + char + "Σ").lower()[-1] == "ς") == (is_letter or sees_past), hex(code)
