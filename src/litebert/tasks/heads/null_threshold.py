"""When to give no answer (SQuAD 2, ALBERT A.3): predictions and truth in, the null threshold with
the best F1 out.
 A question gets no answer where its null score exceeds the threshold. Sorted by null score, the F1
of every threshold is one running sum: O(n log n), as in SQuAD 2's own script, except that equal
null scores are kept together and that the threshold stands in the middle of the gap, where a
question not seen before is most likely to fall on the right side.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from litebert.errors import DataError
from litebert.tasks.examples import AnswerExample
from litebert.tasks.predictions import SpanPrediction
from litebert.tasks.scores.measures import answer_scores


def best_threshold(
    examples: Sequence[AnswerExample], predictions: Sequence[SpanPrediction]
) -> float:
    """The threshold on the null score whose answers have the best F1; among equals, the one that
    answers least."""
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
    # number i answers the i smallest null scores and is silent about the rest
    totals = silent.sum() + np.concatenate(
        [[0.0], np.cumsum(np.bincount(group, answered - silent))]
    )
    return _between(
        values, int(np.argmax(np.round(totals, 9)))
    )  # sums of the same terms in another order are equal


def at_threshold(
    predictions: Sequence[SpanPrediction], threshold: float | None
) -> list[SpanPrediction]:
    """The same predictions under another null threshold."""
    return [replace(prediction, null_threshold=threshold) for prediction in predictions]


def _between(values: np.ndarray, answered: int) -> float:
    """A threshold that the smallest `answered` values do not exceed and the others do."""
    if answered == 0:
        return float(np.nextafter(values[0], -np.inf))
    last = float(values[answered - 1])
    if answered == len(values):
        return last
    middle = last + (float(values[answered]) - last) / 2
    return middle if last <= middle < values[answered] else last
