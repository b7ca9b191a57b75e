"""SQuAD's scores of answers, and its threshold for "no answer" (Rajpurkar et al. 2016, 2018).

Exact match and F1 of words are the best over the accepted answers, after SQuAD's normalization.
Where questions may have no answer, the empty text is the one accepted answer of those that have
none, and an accepted answer of nothing but punctuation and articles does not count.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from litebert.errors import DataError
from litebert.tasks.examples import AnswerExample
from litebert.tasks.predictions import SpanPrediction

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def answer_scores(
    examples: Sequence[AnswerExample], answers: Sequence[str], *, has_null: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each question: exact match and F1 of the answer given, and whether the question has an
    answer; "" stands for no answer."""
    exact, f1, answerable = np.zeros((3, len(examples)))
    for number, (example, text) in enumerate(zip(examples, answers, strict=True)):
        accepted = _accepted([answer.text for answer in example.truth()], has_null=has_null)
        answer = _normalize(text)
        exact[number], f1[number] = answer in accepted, _best_f1(answer, accepted)
        answerable[number] = bool(example.answers)
    return exact, f1, answerable


def best_threshold(
    examples: Sequence[AnswerExample], predictions: Sequence[SpanPrediction]
) -> float:
    """The null threshold with the best F1; among equals, the one that answers least.

    A question gets no answer where its null score exceeds the threshold (ALBERT A.3). Sorted by
    null score, the F1 of every threshold is one running sum: O(n log n), as in SQuAD 2's script,
    except that equal null scores stay together and that the threshold lies in the middle of the
    gap, where an unseen question is most likely to fall on the right side.
    """
    if not examples:
        raise DataError("a null threshold needs at least one question to be chosen on")
    nulls = np.array([prediction.null_score for prediction in predictions])
    if not (nulls > -np.inf).all():  # +inf is a context without a word: certainly no answer
        raise DataError(
            f"the null score of question {examples[int(np.argmin(nulls > -np.inf))].key} is not a "
            "number"
        )
    texts = [prediction.spans[0].text if prediction.spans else "" for prediction in predictions]
    _, answered, _ = answer_scores(examples, texts, has_null=True)
    _, silent, _ = answer_scores(examples, [""] * len(texts), has_null=True)
    values, group = np.unique(nulls, return_inverse=True)
    # total i: the i smallest null scores are answered, the others are not
    gains = np.cumsum(np.bincount(group, answered - silent))
    totals = silent.sum() + np.concatenate([[0.0], gains])
    # rounded: sums of the same terms in another order are equal
    return _between(values, int(np.argmax(np.round(totals, 9))))


def at_threshold(
    predictions: Sequence[SpanPrediction], threshold: float | None
) -> list[SpanPrediction]:
    """The same predictions under another null threshold."""
    return [replace(prediction, null_threshold=threshold) for prediction in predictions]


def _normalize(text: str) -> str:
    """Lower case, no ASCII punctuation, no articles, single spaces: "The  Eiffel Tower!" is "eiffel
    tower"."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _accepted(answers: Sequence[str], *, has_null: bool) -> list[str]:
    texts = [_normalize(answer) for answer in answers]
    return [text for text in texts if text] or [""] if has_null else texts or [""]


def _best_f1(answer: str, accepted: Sequence[str]) -> float:
    """The best F1 of the answer's words against those of an accepted answer; all are normalized.

    Two texts of no words are equal, as in SQuAD 2's rules; SQuAD 1's script gives 0 where an
    accepted answer is a lone ".".
    """
    words = answer.split()
    return max(_f1(words, right.split()) for right in accepted)


def _f1(answer: list[str], accepted: list[str]) -> float:
    if not answer or not accepted:
        return float(answer == accepted)
    same = (Counter(answer) & Counter(accepted)).total()
    return 2 * same / (len(answer) + len(accepted))


def _between(values: np.ndarray, answered: int) -> float:
    """A threshold that the smallest `answered` values do not exceed and the others do."""
    if answered == 0:
        return float(np.nextafter(values[0], -np.inf))
    last = float(values[answered - 1])
    if answered == len(values):
        return last
    middle = last + (float(values[answered]) - last) / 2
    return middle if last <= middle < values[answered] else last
