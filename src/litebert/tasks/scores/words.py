"""Texts as bags of words, for baselines: words and lone signs in lower case, each once."""

import re

from litebert.tasks.examples import TextExample

_WORD = re.compile(r"\w+|[^\w\s]")


def words_of(text: str) -> list[str]:
    """Words and signs in their order: "It's 5%." is it ' s 5 % ."""
    return _WORD.findall(text.lower())


def features(example: TextExample) -> dict[str, float]:
    """What a bag of words knows of a text: its words; of two texts those of each, those in both,
    and how much they share."""
    first = dict.fromkeys(
        words_of(example.first)
    )  # a set in the order of the text: the same in every process
    found = {f"1 {word}": 1.0 for word in first}
    if example.second is None:
        return found
    second = dict.fromkeys(words_of(example.second))
    shared = [word for word in first if word in second]
    found |= {f"2 {word}": 1.0 for word in second} | {f"both {word}": 1.0 for word in shared}
    return found | {
        "shared of the first": len(shared) / max(len(first), 1),
        "shared of the second": len(shared) / max(len(second), 1),
        "shared of all": len(shared) / max(len(first) + len(second) - len(shared), 1),
    }
