"""Scores of tags: entities found and words tagged rightly. Tags of one text in, counts out.
 An entity is a run of words under one name, as CoNLL's script and seqeval read it: B- begins, I-
goes on, E- (or L-) ends, S- (or U-) stands alone; a run that lacks its beginning counts all the
same. Tags without such letters, as those of parts of speech, are entities of one word. O is none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

OUTSIDE = "O"
_ENTERS, _STAYS = frozenset("BI"), frozenset("IEL")
_LETTERS = frozenset("BIELSU")


@dataclass(frozen=True, kw_only=True)
class TagCounts:
    """Of one text; a score is made of their sums."""

    right: int
    """Entities found, with their ends and their name."""
    true: int
    guessed: int
    right_words: int
    words: int


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Name, first word and word after the last of each entity: B-PER I-PER O is {("PER", 0, 2)}."""
    found, start, before = set(), 0, (OUTSIDE, "")
    for place, tag in enumerate([*tags, OUTSIDE]):
        letter, name = _split(tag)
        goes_on = before[0] in _ENTERS and letter in _STAYS and before[1] == name
        if not goes_on:
            if before[0] != OUTSIDE:
                found.add((before[1], start, place))
            start = place
        before = (letter, name)
    return found


def count(true: Sequence[str], guessed: Sequence[str]) -> TagCounts:
    """Compare the tags of one text."""
    ours, theirs = entities(guessed), entities(true)
    right = sum(a == b for a, b in zip(true, guessed, strict=True))
    return TagCounts(
        right=len(ours & theirs),
        true=len(theirs),
        guessed=len(ours),
        right_words=right,
        words=len(true),
    )


def _split(tag: str) -> tuple[str, str]:
    """B-PER → B, PER; a tag without a letter stands alone."""
    if tag in (OUTSIDE, *_ENTERS):
        return tag, ""
    letter, dash, name = tag.partition("-")
    return (letter, name) if dash and letter in _LETTERS else ("S", tag)
