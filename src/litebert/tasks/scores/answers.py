"""SQuAD's scores of one answer: exact match and F1 of words, after its normalisation (Rajpurkar et
al. 2016, 2018).
 Both scores take the best over the accepted answers. Where questions may have no answer, the empty
text is the one accepted answer of those that have none, and an accepted answer of nothing but
punctuation and articles does not count.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalize(text: str) -> str:
    """Lower case, no ASCII punctuation, no articles, single spaces: "The  Eiffel Tower!" is "eiffel
    tower"."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def accepted(answers: Sequence[str], *, has_null: bool) -> list[str]:
    """What counts as right, normalized."""
    texts = [normalize(answer) for answer in answers]
    return [text for text in texts if text] or [""] if has_null else texts or [""]


def exact(guess: str, right: Sequence[str]) -> float:
    """1 if the guess is one of the accepted answers; all are normalized."""
    return float(guess in right)


def f1(guess: str, right: Sequence[str]) -> float:
    """The best F1 of the guess's words against those of an accepted answer; all are normalized.

    Two texts of no words are equal, as in SQuAD 2's rules; SQuAD 1's script says 0 where an
    accepted answer is a lone ".".
    """
    words = guess.split()
    return max(_f1(words, answer.split()) for answer in right)


def _f1(guess: list[str], right: list[str]) -> float:
    if not guess or not right:
        return float(guess == right)
    same = (Counter(guess) & Counter(right)).total()
    return 2 * same / (len(guess) + len(right))
