"""Answers by shared words: the sliding window of MCTest (Richardson et al. 2013), which RACE and
SQuAD give as their simplest baseline. A question about a context in; the option, or the span, whose
surroundings share most words with it, out.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from litebert.tasks.examples import AnswerExample, ChoiceExample
from litebert.tasks.predictions import ChoicePrediction, Span, SpanPrediction
from litebert.tasks.scores.words import words_of

_SENTENCE = re.compile(r"[^.!?]+(?:[.!?](?=\S)[^.!?]*)*[.!?]*")
_TOKEN = re.compile(r"\w+")
MAX_WORDS = 10
"""Words of the longest answer that is given."""


def choose_by_overlap(example: ChoiceExample) -> ChoicePrediction:
    """The option for which some window of the context, as long as the question and the option have
    words, shares most."""
    context = words_of(example.context)
    rare = _rarity(context)
    question = set(words_of(example.question.replace("_", " ")))
    scores = np.array(
        [
            _best_window(context, question | set(words_of(option)), rare)
            for option in example.options
        ]
    )
    chances = np.exp(scores - scores.max())
    return ChoicePrediction(
        index=int(scores.argmax()), probabilities=tuple((chances / chances.sum()).tolist())
    )


def answer_by_overlap(example: AnswerExample) -> SpanPrediction:
    """The longest run of words that the question does not have, in the sentence that shares most
    with it.

    The null score is the part of the question that this sentence lacks.
    """
    context = words_of(example.context)
    rare, question = _rarity(context), set(words_of(example.question))
    best, shared = "", -1.0
    start = 0
    for sentence in _SENTENCE.finditer(example.context):
        weight = math.fsum(rare.get(word, 0.0) for word in question & set(words_of(sentence[0])))
        if weight > shared:
            best, shared, start = sentence[0], weight, sentence.start()
    span = _longest_run(best, question)
    if span is None:
        return SpanPrediction(spans=(), null_score=1.0)
    whole = math.fsum(
        rare.get(word, math.log(2)) for word in question
    )  # a set has no order: fsum does not mind
    found = Span(
        text=best[span[0] : span[1]], start=start + span[0], end=start + span[1], score=0.0
    )
    return SpanPrediction(spans=(found,), null_score=1 - shared / whole if whole else 1.0)


def _rarity(words: Sequence[str]) -> Mapping[str, float]:
    """A word counts the less, the more often the context has it."""
    return {word: math.log(1 + 1 / count) for word, count in Counter(words).items()}


def _best_window(context: Sequence[str], wanted: set[str], rare: Mapping[str, float]) -> float:
    """The most that any window of as many words as are wanted has of them."""
    worth = np.array([rare[word] if word in wanted else 0.0 for word in context])
    sums = np.append(0.0, np.cumsum(worth))
    width = min(len(wanted), len(context))
    return float((sums[width:] - sums[: len(sums) - width]).max())


def _longest_run(sentence: str, question: set[str]) -> tuple[int, int] | None:
    """First character and the one after the last of the longest run of words that are not in the
    question."""
    runs: list[list[re.Match[str]]] = [[]]
    for word in _TOKEN.finditer(sentence):
        if word[0].lower() in question or len(runs[-1]) == MAX_WORDS:
            runs.append([])
        if word[0].lower() not in question:
            runs[-1].append(word)
    run = max(runs, key=len)
    return (run[0].start(), run[-1].end()) if run else None
