"""Several models as one (ALBERT §4.9): what each says of the same examples in; what they say
together out.
 Probabilities and numbers are averaged; of answers the scores of spans, and those of there being no
answer.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from litebert.errors import ConfigError
from litebert.tasks.examples import only
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    MultiLabelPrediction,
    NumberPrediction,
    Prediction,
    Span,
    SpanPrediction,
    TagPrediction,
)
from litebert.tasks.task import Task

Predictions = Sequence[Prediction]
"""Of one model, in the order of the examples."""


def average(task: Task, predictions: Sequence[Predictions]) -> list[Prediction]:
    """What models say together; one alone is what it says."""
    if not predictions or len({len(each) for each in predictions}) > 1:
        raise ConfigError(
            "an ensemble needs models that answered the same examples; got "
            f"{[len(each) for each in predictions]}"
        )
    if len(predictions) == 1:
        return list(predictions[0])
    together = _AVERAGES[task.head]
    return [together(said) for said in zip(*predictions, strict=True)]


def _labels(said: Sequence[Prediction]) -> LabelPrediction:
    each = [prediction.probabilities for prediction in only(said, LabelPrediction)]
    mean = {label: sum(one[label] for one in each) / len(each) for label in each[0]}
    return LabelPrediction(label=max(mean, key=mean.__getitem__), probabilities=mean)


def _label_sets(said: Sequence[Prediction]) -> MultiLabelPrediction:
    each = only(said, MultiLabelPrediction)
    labels = each[0].probabilities
    return MultiLabelPrediction(
        probabilities={
            label: sum(one.probabilities[label] for one in each) / len(each) for label in labels
        },
        threshold=sum(one.threshold for one in each) / len(each),
    )


def _numbers(said: Sequence[Prediction]) -> NumberPrediction:
    return NumberPrediction(
        value=float(np.mean([prediction.value for prediction in only(said, NumberPrediction)]))
    )


def _choices(said: Sequence[Prediction]) -> ChoicePrediction:
    mean = np.mean(
        [prediction.probabilities for prediction in only(said, ChoicePrediction)], axis=0
    )
    return ChoicePrediction(index=int(mean.argmax()), probabilities=tuple(mean.tolist()))


def _spans(said: Sequence[Prediction]) -> SpanPrediction:
    """Means of the scores of every span that a model names, and of the null scores as each counts
    from its own threshold.

    A model that does not name a span gives it at most the score of the last that it names, and that
    is what counts: the mean over those who name it alone would prefer what one model believes in to
    what all of them do.
    """
    each = only(said, SpanPrediction)
    voices = [prediction for prediction in each if prediction.spans]
    last = [min(span.score for span in prediction.spans) for prediction in voices]
    known = [{(span.start, span.end): span for span in prediction.spans} for prediction in voices]
    places = {place: span.text for spans in known for place, span in spans.items()}
    found = []
    for (start, end), text in places.items():
        scores = [
            spans[start, end].score if (start, end) in spans else low
            for spans, low in zip(known, last, strict=True)
        ]
        found.append(Span(text=text, start=start, end=end, score=float(np.mean(scores))))
    found.sort(key=lambda span: (-span.score, span.start, span.end))
    most = max(len(prediction.spans) for prediction in each)
    always = all(prediction.null_threshold is None for prediction in each)
    nulls = [prediction.null_score - (prediction.null_threshold or 0.0) for prediction in each]
    return SpanPrediction(
        spans=tuple(found[:most]),
        null_score=float(np.mean(nulls)),
        null_threshold=None if always else 0.0,
    )


def _tags(said: Sequence[Prediction]) -> TagPrediction:
    """Each model gives its probability to the tag that it chose."""
    each = only(said, TagPrediction)
    best = []
    for place in range(len(each[0].tags)):
        votes: defaultdict[str, float] = defaultdict(float)
        for prediction in each:
            votes[prediction.tags[place]] += prediction.probabilities[place] / len(each)
        best.append(max(sorted(votes.items()), key=lambda vote: vote[1]))
    return TagPrediction(
        tags=tuple(tag for tag, _ in best), probabilities=tuple(chance for _, chance in best)
    )


_AVERAGES: dict[str, Callable[[Sequence[Prediction]], Prediction]] = {
    "classify": _labels,
    "multilabel": _label_sets,
    "regress": _numbers,
    "choose": _choices,
    "span": _spans,
    "joint_span": _spans,
    "tag": _tags,
}
