"""What a model has to beat: examples in; predictions of a guesser who looks at nothing, and of one
who counts words, out.

They are scored as any model is. Both learn from train alone, in seconds, without randomness.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from litebert.errors import DataError
from litebert.tasks.examples import (
    AnswerExample,
    ChoiceExample,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.tasks.heads.null_threshold import at_threshold, best_threshold
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    NumberPrediction,
    Prediction,
    Span,
    SpanPrediction,
    TagPrediction,
)
from litebert.tasks.scores.linear import LinearModel
from litebert.tasks.scores.measures import only, truth
from litebert.tasks.scores.overlap import answer_by_overlap, choose_by_overlap
from litebert.tasks.scores.words import features
from litebert.tasks.task import Task

FREQUENT = 1000
"""Answers of train that are looked for in a context."""


def majority(
    task: Task, train: Sequence[TaskExample], dev: Sequence[TaskExample]
) -> list[Prediction]:
    """What is most frequent in train, whatever is asked: a label, a tag, the number of an option,
    no answer, an answer that often is one; of numbers the mean.
    """
    _check(task, train)
    if task.kind == "answer":
        return list(_frequent_answers(task, only(train, AnswerExample), only(dev, AnswerExample)))
    if task.kind == "regress":
        middle = float(np.mean([_number(example) for example in only(train, TextExample)]))
        return [NumberPrediction(value=middle) for _ in dev]
    if task.kind == "choose":
        return list(_frequent_options(only(train, ChoiceExample), only(dev, ChoiceExample)))
    if task.kind == "tag":
        tags = Counter(
            tag for example in only(train, TagExample) for tag in truth(example, example.tags)
        )
        tag, count = _first(tags)
        chance = count / tags.total()
        return [
            TagPrediction(tags=(tag,) * len(each.words), probabilities=(chance,) * len(each.words))
            for each in only(dev, TagExample)
        ]
    counts = Counter(str(truth(example, example.label)) for example in only(train, TextExample))
    chances = {label: counts[label] / counts.total() for label in task.labels}
    return [
        LabelPrediction(label=max(chances, key=chances.__getitem__), probabilities=dict(chances))
        for _ in dev
    ]


def bag_of_words(
    task: Task, train: Sequence[TaskExample], dev: Sequence[TaskExample]
) -> list[Prediction]:
    """What words say, their order forgotten: logistic regression and ridge on words, pairs of texts
    with the words they share; the sliding window of overlap for options (MCTest, RACE §4.1) and
    answers; for tags the most frequent one of each word.
    """
    _check(task, train)
    if task.kind == "choose":
        return [choose_by_overlap(example) for example in only(dev, ChoiceExample)]
    if task.kind == "answer":
        return list(
            _overlapping_answers(task, only(train, AnswerExample), only(dev, AnswerExample))
        )
    if task.kind == "tag":
        return list(_tags_of_words(only(train, TagExample), only(dev, TagExample)))
    learn, ask = only(train, TextExample), only(dev, TextExample)
    if task.kind == "regress":
        model = LinearModel.ridge(map(features, learn), [_number(each) for each in learn])
        return [NumberPrediction(value=float(row[0])) for row in model.outputs(map(features, ask))]
    places = {label: place for place, label in enumerate(task.labels)}
    targets = [places[str(truth(each, each.label))] for each in learn]
    model = LinearModel.logistic(map(features, learn), targets, len(places))
    chances = model.outputs(map(features, ask)).softmax(1).numpy()
    return [
        LabelPrediction(
            label=task.labels[int(row.argmax())],
            probabilities=dict(zip(task.labels, row.tolist(), strict=True)),
        )
        for row in chances
    ]


def _frequent_options(
    train: Sequence[ChoiceExample], dev: Sequence[ChoiceExample]
) -> list[ChoicePrediction]:
    counts = Counter(truth(example, example.label) for example in train)
    found = []
    for example in dev:
        seen = np.array([counts[place] for place in range(len(example.options))]) + 1e-9
        chances = tuple((seen / seen.sum()).tolist())
        found.append(ChoicePrediction(index=int(seen.argmax()), probabilities=chances))
    return found


def _frequent_answers(
    task: Task, train: Sequence[AnswerExample], dev: Sequence[AnswerExample]
) -> list[SpanPrediction]:
    """No answer where there may be none; else the most frequent answer of train that this context
    has, or its first word."""
    counts = Counter(answer.text for example in train for answer in truth(example, example.answers))
    known = [text for text, _ in counts.most_common(FREQUENT)]
    found = []
    for example in dev:
        word = re.search(r"\w+", example.context)
        text = next((text for text in known if text in example.context), word[0] if word else "")
        start = example.context.find(text)
        spans = (Span(text=text, start=start, end=start + len(text), score=0.0),) if text else ()
        found.append(
            SpanPrediction(
                spans=spans, null_score=1.0, null_threshold=0.0 if task.has_null else None
            )
        )
    return found


def _overlapping_answers(
    task: Task, train: Sequence[AnswerExample], dev: Sequence[AnswerExample]
) -> list[SpanPrediction]:
    """With the null threshold that is best on train."""
    guessed = [answer_by_overlap(example) for example in dev]
    if not task.has_null:
        return guessed
    return at_threshold(
        guessed, best_threshold(train, [answer_by_overlap(example) for example in train])
    )


def _tags_of_words(train: Sequence[TagExample], dev: Sequence[TagExample]) -> list[TagPrediction]:
    """A word that train does not have gets the tag that is most frequent among the words it has
    once."""
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for example in train:
        for word, tag in zip(example.words, truth(example, example.tags), strict=True):
            seen[word][tag] += 1
    rare = sum((counts for counts in seen.values() if counts.total() == 1), Counter[str]())
    unknown = rare or sum(seen.values(), Counter[str]())
    found = []
    for example in dev:
        best = [
            (_first(counts), counts.total())
            for counts in (seen.get(word, unknown) for word in example.words)
        ]
        chances = tuple(count / total for (_, count), total in best)
        found.append(TagPrediction(tags=tuple(tag for (tag, _), _ in best), probabilities=chances))
    return found


def _check(task: Task, train: Sequence[TaskExample]) -> None:
    if not train:
        raise DataError(f"a baseline of {task.name} learns from train, which has no examples")


def _number(example: TextExample) -> float:
    return truth(example, None if example.label is None else float(example.label))


def _first(counts: Counter[str]) -> tuple[str, int]:
    """The most frequent; of equals the first in the alphabet, whatever the order of the file."""
    return max(sorted(counts.items()), key=lambda each: each[1])
