"""What a model has to beat: examples in; predictions of the majority and the bag-of-words baselines
out.

They are scored as any model is. Both learn from train alone, in seconds, without randomness.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from litebert.errors import DataError
from litebert.tasks.examples import (
    AnswerExample,
    ChoiceExample,
    TagExample,
    TaskExample,
    TextExample,
    only,
)
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
from litebert.tasks.scores.answers import at_threshold, best_threshold
from litebert.tasks.task import Task

_FREQUENT = 1000
"""Answers of train that are searched in a context."""
_MAX_WORDS = 10
"""Words of the longest answer that is given."""
_WORD = re.compile(r"\w+|[^\w\s]")
_SENTENCE = re.compile(r"[^.!?]+(?:[.!?](?=\S)[^.!?]*)*[.!?]*")
_TOKEN = re.compile(r"\w+")


def majority(
    task: Task, train: Sequence[TaskExample], dev: Sequence[TaskExample]
) -> list[Prediction]:
    """What is most frequent in train, whatever the input: a label, all labels that half of train
    has, a tag, an option's position, no answer, or a frequent answer that the context has; for
    numbers the mean."""
    _check(task, train)
    if task.kind == "answer":
        return _frequent_answers(task, only(train, AnswerExample), only(dev, AnswerExample))
    if task.kind == "regress":
        mean = float(np.mean([example.number() for example in only(train, TextExample)]))
        return [NumberPrediction(value=mean) for _ in dev]
    if task.head == "multilabel":
        return _frequent_labels(task, only(train, TextExample), len(dev))
    if task.kind == "choose":
        return _frequent_options(only(train, ChoiceExample), only(dev, ChoiceExample))
    if task.kind == "tag":
        tags = Counter(tag for example in only(train, TagExample) for tag in example.truth())
        tag, count = _most_common(tags)
        probability = count / tags.total()
        return [
            TagPrediction(
                tags=(tag,) * len(example.words),
                probabilities=(probability,) * len(example.words),
            )
            for example in only(dev, TagExample)
        ]
    counts = Counter(str(example.truth()) for example in only(train, TextExample))
    shares = {label: counts[label] / counts.total() for label in task.labels}
    return [LabelPrediction.of(dict(shares)) for _ in dev]


def bag_of_words(
    task: Task, train: Sequence[TaskExample], dev: Sequence[TaskExample]
) -> list[Prediction]:
    """Logistic or ridge regression on the words, for pairs also on the words they share; the
    sliding window of MCTest (Richardson et al. 2013, RACE §4.1) for options and answers; for tags
    the most frequent one of each word."""
    _check(task, train)
    if task.kind == "choose":
        return [_choose_by_overlap(example) for example in only(dev, ChoiceExample)]
    if task.kind == "answer":
        return _overlapping_answers(task, only(train, AnswerExample), only(dev, AnswerExample))
    if task.kind == "tag":
        return _tags_of_words(only(train, TagExample), only(dev, TagExample))
    from litebert.tasks.scores import linear  # imports torch

    texts = only(train, TextExample)
    rows, dev_rows = map(word_features, texts), map(word_features, only(dev, TextExample))
    if task.kind == "regress":
        numbers = [example.number() for example in texts]
        model = linear.LinearModel.fit(rows, linear.ridge(numbers))
        return [NumberPrediction(value=float(row[0])) for row in model.outputs(dev_rows)]
    if task.head == "multilabel":
        sets = [[float(label in example.labels()) for label in task.labels] for example in texts]
        model = linear.LinearModel.fit(rows, linear.multilabel(sets))
        return [
            MultiLabelPrediction(probabilities=dict(zip(task.labels, row.tolist(), strict=True)))
            for row in model.outputs(dev_rows).sigmoid()
        ]
    label_ids = {label: number for number, label in enumerate(task.labels)}
    targets = [label_ids[str(example.truth())] for example in texts]
    model = linear.LinearModel.fit(rows, linear.logistic(targets, len(task.labels)))
    return [
        LabelPrediction.of(dict(zip(task.labels, row.tolist(), strict=True)))
        for row in model.outputs(dev_rows).softmax(1)
    ]


def _check(task: Task, train: Sequence[TaskExample]) -> None:
    if not train:
        raise DataError(f"a baseline of {task.name} learns from train, which has no examples")


def _most_common(counts: Counter[str]) -> tuple[str, int]:
    """The most frequent; of equals the first in the alphabet, whatever the order of the file."""
    return max(sorted(counts.items()), key=lambda each: each[1])


def _words(text: str) -> list[str]:
    """Words and signs in their order: "It's 5%." is it ' s 5 % ."""
    return _WORD.findall(text.lower())


def word_features(example: TextExample) -> dict[str, float]:
    """The words of a text; of two texts those of each, those in both, and how much they share."""
    # dicts as ordered sets: the same order in every process
    first = dict.fromkeys(_words(example.first))
    features = {f"1 {word}": 1.0 for word in first}
    if example.second is None:
        return features
    second = dict.fromkeys(_words(example.second))
    shared = [word for word in first if word in second]
    features |= {f"2 {word}": 1.0 for word in second} | {f"both {word}": 1.0 for word in shared}
    return features | {
        "shared of the first": len(shared) / max(len(first), 1),
        "shared of the second": len(shared) / max(len(second), 1),
        "shared of all": len(shared) / max(len(first) + len(second) - len(shared), 1),
    }


def _frequent_labels(task: Task, train: Sequence[TextExample], count: int) -> list[Prediction]:
    """Every label that at least half of train has; the most frequent one where there is none."""
    counts = Counter(label for example in train for label in example.labels())
    shares = {label: counts[label] / len(train) for label in task.labels}
    threshold = min(0.5, max(shares.values()))
    return [
        MultiLabelPrediction(probabilities=dict(shares), threshold=threshold) for _ in range(count)
    ]


def _frequent_options(
    train: Sequence[ChoiceExample], dev: Sequence[ChoiceExample]
) -> list[Prediction]:
    counts = Counter(example.truth() for example in train)
    predictions = list[Prediction]()
    for example in dev:
        shares = np.array([counts[number] for number in range(len(example.options))]) + 1e-9
        probabilities = tuple((shares / shares.sum()).tolist())
        predictions.append(
            ChoicePrediction(index=int(shares.argmax()), probabilities=probabilities)
        )
    return predictions


def _frequent_answers(
    task: Task, train: Sequence[AnswerExample], dev: Sequence[AnswerExample]
) -> list[Prediction]:
    """No answer where there may be none; else the most frequent answer of train that this context
    has, or its first word."""
    counts = Counter(answer.text for example in train for answer in example.truth())
    frequent = [text for text, _ in counts.most_common(_FREQUENT)]
    threshold = 0.0 if task.has_null else None
    predictions = list[Prediction]()
    for example in dev:
        word = _TOKEN.search(example.context)
        text = next((text for text in frequent if text in example.context), word[0] if word else "")
        start = example.context.find(text)
        spans = (Span(text=text, start=start, end=start + len(text), score=0.0),) if text else ()
        predictions.append(SpanPrediction(spans=spans, null_score=1.0, null_threshold=threshold))
    return predictions


def _overlapping_answers(
    task: Task, train: Sequence[AnswerExample], dev: Sequence[AnswerExample]
) -> list[Prediction]:
    """Answers by overlap, with the null threshold that is best on train."""
    predictions = list(map(_answer_by_overlap, dev))
    if not task.has_null:
        return [*predictions]
    threshold = best_threshold(train, list(map(_answer_by_overlap, train)))
    return [*at_threshold(predictions, threshold)]


def _tags_of_words(train: Sequence[TagExample], dev: Sequence[TagExample]) -> list[Prediction]:
    """A word that train does not have gets the tag most frequent among words that occur once."""
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for example in train:
        for word, tag in zip(example.words, example.truth(), strict=True):
            seen[word][tag] += 1
    rare = sum((counts for counts in seen.values() if counts.total() == 1), Counter[str]())
    unknown = rare or sum(seen.values(), Counter[str]())
    predictions = list[Prediction]()
    for example in dev:
        counts = [seen.get(word, unknown) for word in example.words]
        best = [_most_common(each) for each in counts]
        shares = (count / each.total() for (_, count), each in zip(best, counts, strict=True))
        predictions.append(
            TagPrediction(tags=tuple(tag for tag, _ in best), probabilities=tuple(shares))
        )
    return predictions


def _choose_by_overlap(example: ChoiceExample) -> ChoicePrediction:
    """The option that shares most with some window of the context, as wide as question and option
    have words."""
    context = _words(example.context)
    rarity = _rarity(context)
    question = set(_words(example.question.replace("_", " ")))
    scores = np.array(
        [
            _best_window(context, question | set(_words(option)), rarity)
            for option in example.options
        ]
    )
    weights = np.exp(scores - scores.max())
    return ChoicePrediction(
        index=int(scores.argmax()), probabilities=tuple((weights / weights.sum()).tolist())
    )


def _answer_by_overlap(example: AnswerExample) -> SpanPrediction:
    """The longest run of words that the question lacks, in the sentence that shares most with it.

    The null score is the weighted share of the question that this sentence lacks.
    """
    rarity, question = _rarity(_words(example.context)), set(_words(example.question))
    sentence, start, shared = "", 0, -1.0
    for match in _SENTENCE.finditer(example.context):
        weight = math.fsum(rarity.get(word, 0.0) for word in question & set(_words(match[0])))
        if weight > shared:
            sentence, start, shared = match[0], match.start(), weight
    run = _longest_run(sentence, question)
    if run is None:
        return SpanPrediction(spans=(), null_score=1.0)
    # fsum does not depend on the order of a set
    total = math.fsum(rarity.get(word, math.log(2)) for word in question)
    span = Span(text=sentence[run[0] : run[1]], start=start + run[0], end=start + run[1], score=0.0)
    return SpanPrediction(spans=(span,), null_score=1 - shared / total if total else 1.0)


def _rarity(words: Sequence[str]) -> Mapping[str, float]:
    """Weight of each word: the less, the more often the context has it."""
    return {word: math.log(1 + 1 / count) for word, count in Counter(words).items()}


def _best_window(context: Sequence[str], wanted: set[str], rarity: Mapping[str, float]) -> float:
    """The highest weight of wanted words in a window of as many words as are wanted."""
    weights = np.array([rarity[word] if word in wanted else 0.0 for word in context])
    sums = np.append(0.0, np.cumsum(weights))
    width = min(len(wanted), len(context))
    return float((sums[width:] - sums[: len(sums) - width]).max())


def _longest_run(sentence: str, question: set[str]) -> tuple[int, int] | None:
    """First character and the one after the last of the longest run of words that the question
    lacks."""
    runs: list[list[re.Match[str]]] = [[]]
    for word in _TOKEN.finditer(sentence):
        if word[0].lower() in question or len(runs[-1]) == _MAX_WORDS:
            runs.append([])
        if word[0].lower() not in question:
            runs[-1].append(word)
    run = max(runs, key=len)
    return (run[0].start(), run[-1].end()) if run else None
