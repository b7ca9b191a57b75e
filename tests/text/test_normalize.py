"""The clean-up: equal to the reference's five lines on any text, and a worked example."""

import codecs
import unicodedata
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from litebert.text.normalize import TextRules, clean, clean_for_ids, collapse, width

ALBERT = TextRules()
TEXTS = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from(
            "aA zZ\t\n\v\f\r\x1c\x1f\x00\x85\xa0\u1680\u2028\u3000 "
            "\u0301\u0327ﬁ½¨ıİΣσς΄ﷺ\u200b\u00ad“”–한각▁,1"
        ),
    )
)


def reference(text: str) -> str:
    """What the reference's `preprocess_text` computes, said as slowly and plainly as possible."""
    decomposed = unicodedata.normalize("NFKD", " ".join(text.strip().split()))
    return "".join(char for char in decomposed if not unicodedata.combining(char)).lower()


@given(TEXTS)
@example("ΑΣ Σ ΑΣΑ Α.Σ. AΣ")
@example("\u0301é\u0327 e\u0301\u0301")
@example("“Curly” – and £5")
def test_clean_is_the_references(text: str) -> None:
    assert clean(text, ALBERT) == reference(text)


def test_worked_example() -> None:
    assert clean("  Ça\tva,  ﬁn ½\n", ALBERT) == "ca va, fin 1⁄2"


@given(TEXTS)
def test_switches(text: str) -> None:
    assert clean(text, TextRules(lowercase=False)).lower() == reference(text)
    assert clean(text, TextRules(keep_accents=True)) == collapse(text).lower()
    assert clean(text, TextRules(keep_accents=True, lowercase=False)) == collapse(text)


@given(TEXTS)
def test_collapse_splits_at_all_whitespace(text: str) -> None:
    assert collapse(text) == " ".join(text.split())


def test_lone_surrogates_become_the_replacement_character() -> None:
    assert clean("a\ud800é", ALBERT) == "a\ufffde"
    assert clean("a\ud800é", TextRules(keep_accents=True)) == "a\ufffdé"


@pytest.mark.parametrize(
    "rules", [ALBERT, TextRules(lowercase=False), TextRules(keep_accents=True)]
)
def test_widths_of_all_characters(rules: TextRules) -> None:
    """Of ideographs, syllables and codes without a character, which are alike, every 37th."""
    chars = [
        char
        for number, char in enumerate(map(chr, range(0x30000)))
        if not char.isspace()
        and (
            number < 0x3000
            or number % 37 == 0
            or unicodedata.decomposition(char)
            or unicodedata.category(char) not in ("Lo", "Cn", "Co", "Cs")
        )
    ]
    for start in range(0, len(chars), 256):
        # Between letters, so that spaces which come out of the decomposition stay.
        text = "a" + "a".join(chars[start : start + 256]) + "a"
        assert len(clean(text, rules)) == sum(width(char, rules) for char in text), hex(start)


@pytest.mark.parametrize(
    "unit", ["é", "\u0301", "漢", "😀", "한", "Σ", "λ", "\u2028", "ﬁ", "\ud800"]
)
def test_work_is_linear_in_the_length_of_a_run(unit: str, request: pytest.FixtureRequest) -> None:
    """Characters that CPython's encoder reads, counted: it reads to the end of a run at each
    error."""
    read = 0

    def counting(name: str) -> Callable[[UnicodeError], tuple[bytes | str, int]]:
        handle = codecs.lookup_error(f"litebert.{name}")

        def count(error: UnicodeError) -> tuple[bytes | str, int]:
            nonlocal read
            assert isinstance(error, UnicodeEncodeError)
            read += error.end - error.start
            return handle(error)

        return count

    names = ("drop_marks", "drop_marks_and_lower", "keep_marks")
    for name in names:
        before = codecs.lookup_error(f"litebert.{name}")
        request.addfinalizer(partial(codecs.register_error, f"litebert.{name}", before))
        codecs.register_error(f"litebert.{name}", counting(name))
    work = []
    for size in (20_000, 40_000):
        read = 0
        clean_for_ids(unit * size)
        clean(unit * size, ALBERT)
        clean(unit * size, TextRules(keep_accents=True))
        work.append(read)
    assert work[1] <= 2.1 * work[0]


@pytest.mark.parametrize("rules", [TextRules(), TextRules(keep_accents=True)])
def test_long_texts_are_cleaned_as_their_words_are(rules: TextRules) -> None:
    words = ["Ça", "ﬁn", "e\u0301te\u0301", "한국어", "½", "ΟΔΟΣ", "plain", "漢字"] * 700
    assert clean(" ".join(words), rules) == " ".join(clean(word, rules) for word in words)
