"""Splitting many paragraphs at once: the same sentences as one by one, and their words."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from litebert.text.sentence_words import sentence_words
from litebert.text.sentences import EITHER, NUMBERED, STARTERS, TITLES, split_sentences
from tests.text.test_sentences import GOLDEN

PARAGRAPHS = [param.values[0] for param in GOLDEN]
# Pieces of which rules are made: known words, numbers, stops, quotes, white space of several kinds,
# scripts of several kinds.
TABLES = sorted(TITLES | NUMBERED | EITHER)[::9]
WORDS = [
    *TABLES,
    *sorted(STARTERS)[::20],
    "word",
    "Paris",
    "ab",
    "xvi",
    "IV",
    "x",
    "1990",
    "12",
    "(e.g",
    "«",
    "»",
    "“Yes”",
    "Ünder",
]
GAPS = [
    " ",
    " ",
    " ",
    ". ",
    "! ",
    "? ",
    '." ',
    ".) ",
    "... ",
    "… ",
    ".”\u00a0",
    ".\t",
    ".  ",
    "。",
    "। ",
    "؟ ",
    " » ",
    ".",
    "\u200b",
]
PROSE = st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(GAPS)), min_size=1, max_size=14)
LINES = st.lists(
    PROSE.map(lambda parts: "".join(map("".join, parts)).strip()), min_size=1, max_size=6
)


def check(paragraphs: list[str]) -> None:
    actual = sentence_words(paragraphs)
    expected = [split_sentences(paragraph) for paragraph in paragraphs]
    assert actual.num_sentences.tolist() == [len(sentences) for sentences in expected]
    if not paragraphs:
        return
    bounds = np.cumsum(actual.num_sentences)[:-1]
    for paragraph, sentences, words, regular in zip(
        paragraphs, expected, np.split(actual.words, bounds), actual.regular, strict=True
    ):
        if regular:
            assert words.tolist() == [len(sentence.split()) for sentence in sentences], paragraph


def test_the_golden_set() -> None:
    check(PARAGRAPHS)
    for paragraph in PARAGRAPHS:
        check([paragraph])
    check([paragraph for paragraph in PARAGRAPHS if paragraph.isascii()])


def test_plain_paragraphs_are_regular() -> None:
    actual = sentence_words(
        [
            "One two. Three four five! Yes.",
            "Café – “là”. Oui.",
            "今日は。 はい。はい。",
            "two  spaces. Cat d.",
        ]
    )
    assert actual.num_sentences.tolist() == [3, 2, 3, 2]
    assert actual.words[:5].tolist() == [2, 3, 1, 3, 1]
    assert actual.regular.tolist() == [True, True, False, False]


@given(LINES)
@example(["xvi. Paris", "word. xvi. Paris", "1990. Paris is. 12. Paris"])
@example([".", "!?", "a.b. C", "...... Then... Now"])
@settings(max_examples=500, deadline=None)
def test_same_as_one_by_one(paragraphs: list[str]) -> None:
    check([paragraph for paragraph in paragraphs if paragraph])


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\n", exclude_categories=("Cs",)), max_size=30),
        max_size=5,
    )
)
@settings(max_examples=200, deadline=None)
def test_any_text_at_all(paragraphs: list[str]) -> None:
    check([stripped for paragraph in paragraphs if (stripped := paragraph.strip())])
