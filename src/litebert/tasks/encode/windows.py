"""Contexts and words that may be longer than a row, read in overlapping windows: answer and tag.

A token may stand in several windows; it belongs to the one that shows the most of its surroundings
on its poorer side (BERT's rule of maximal context, here in closed form: neighboring windows part in
the middle of their overlap).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from litebert.checks import shorten
from litebert.errors import DataError
from litebert.packing import num_special, ranges, row_bounds, row_positions
from litebert.shapes import Int
from litebert.tasks.encode.inputs import Inputs, distinct, pool_texts, slices_of
from litebert.tasks.examples import Answer, AnswerExample, TagExample
from litebert.tasks.task import TaskCard, shown
from litebert.text.tokenizer import Tokenizer

_Numbers = Int[np.ndarray, " texts"]
_Spans = Int[np.ndarray, "examples 2"]
_NO_SPAN = (-1, -1)  # of a question without an answer


@dataclass(frozen=True, kw_only=True, eq=False)
class _Windows:
    """All windows of all texts, one after another; positions are tokens of the text."""

    texts: Int[np.ndarray, " windows"]
    """Number of the text that each window shows."""
    starts: Int[np.ndarray, " windows"]
    stops: Int[np.ndarray, " windows"]
    cores: Int[np.ndarray, "windows 2"]
    """From and up to which token each window predicts; together every token once."""


def windows(lengths: _Numbers, rooms: _Numbers, stride: int) -> _Windows:
    """Windows of `rooms[i]` tokens over a text of `lengths[i]`, `stride` apart, or half a window
    where that is less.

    windows of 10 tokens, room 6, stride 2 -> 0…6, 2…8, 4…10 with the cores 0…4, 4…6, 6…10
    """
    strides = np.minimum(stride, np.maximum(rooms // 2, 1))
    counts = 1 + -(-np.maximum(lengths - rooms, 0) // strides)
    texts = np.repeat(np.arange(len(lengths)), counts)
    numbers = row_positions(row_bounds(counts))
    starts = numbers * strides[texts]
    stops = np.minimum(starts + rooms[texts], lengths[texts])
    cores = np.stack([starts, stops], 1)
    after = np.flatnonzero(numbers > 0)
    cores[after, 0] = cores[after - 1, 1] = (starts[after] + stops[after - 1]) // 2
    return _Windows(texts=texts, starts=starts, stops=stops, cores=cores)


def window_tokens(card: TaskCard, lengths: _Numbers, beside: _Numbers) -> _Numbers:
    """Tokens of all rows that show each text, with `beside[i]` other tokens in each row."""
    shown = windows(lengths, card.max_length - beside, card.stride)
    sizes = shown.stops - shown.starts + beside[shown.texts]
    return np.bincount(shown.texts, sizes, len(lengths)).astype(np.int64)


def max_question(card: TaskCard) -> int:
    """Tokens of a question that are read, beside a context."""
    return min(card.max_question, (card.max_length - num_special(True)) // 2)


def encode_answers(
    card: TaskCard, examples: Sequence[AnswerExample], tokenizer: Tokenizer
) -> Inputs:
    """The windows of every example, in order: [CLS] question [SEP] a window of the context [SEP]
    (SQuAD; ALBERT A.3). A context is tokenized once for all its questions."""
    contexts, numbers = distinct([example.context for example in examples])
    tokens = tokenizer.encode_with_offsets(contexts)
    lengths = np.array([len(text.ids) for text in tokens], np.int64)
    slices = slices_of(lengths)
    offsets = np.concatenate([np.zeros((0, 2), np.int32), *(text.offsets for text in tokens)])
    ids = np.concatenate(
        [np.zeros(0, np.int32), *(np.array(text.ids, np.int32) for text in tokens)]
    )
    question_ids, questions = pool_texts([example.question for example in examples], tokenizer)
    sizes = np.minimum(questions[:, 1] - questions[:, 0], max_question(card))
    room = card.max_length - num_special(True) - sizes
    window = windows(lengths[numbers], room, card.stride)
    context = slices[numbers[window.texts], 0]
    first = questions[window.texts] + len(ids)
    first[:, 1] = first[:, 0] + sizes[window.texts]
    before = 2 + sizes[window.texts]  # columns before the context
    targets = None
    spans = _answer_spans(examples)
    if spans is not None:
        spans = _token_spans(spans, numbers, offsets, slices, [len(text) for text in contexts])
        spans = spans[window.texts]
        inside = (spans[:, 0] >= window.starts) & (spans[:, 1] < window.stops) & (spans[:, 0] >= 0)
        targets = np.where(inside[:, None], spans + (before - window.starts)[:, None], 0)
    return Inputs(
        head=card.task.head,
        special_ids=(tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id),
        pool=np.concatenate([ids, question_ids]),
        first=first,
        second=np.stack([context + window.starts, context + window.stops], 1),
        examples=window.texts,
        offsets=offsets,
        cores=window.cores + (before - window.starts)[:, None],
        targets=targets,
    )


def encode_tags(card: TaskCard, examples: Sequence[TagExample], tokenizer: Tokenizer) -> Inputs:
    """The windows of every example, in order; every word is predicted in one of them, at its first
    token (BERT §5.3, which ALBERT follows).

    Words are tokenized one by one, as SentencePiece cuts at spaces in any case; one of which
    nothing remains reads <unk>.
    """
    counts = np.array([len(example.words) for example in examples], np.int64)
    ids, slices = pool_texts([word for example in examples for word in example.words], tokenizer)
    empty = slices[:, 0] == slices[:, 1]
    slices[empty] = len(ids), len(ids) + 1
    num_tokens = slices[:, 1] - slices[:, 0]
    pool = np.append(ids, np.int32(tokenizer.unk_id))[ranges(slices[:, 0], num_tokens)]
    word_starts = row_bounds(num_tokens)[:-1]
    bounds = np.append(word_starts, len(pool))[row_bounds(counts)]  # of examples
    room = np.full(len(examples), card.max_length - num_special(False))
    window = windows(np.diff(bounds), room, card.stride)
    begins = bounds[window.texts]
    word_bounds = np.searchsorted(word_starts, window.cores + begins[:, None])
    sizes = word_bounds[:, 1] - word_bounds[:, 0]
    return Inputs(
        head=card.task.head,
        special_ids=(tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id),
        pool=pool,
        first=np.stack([window.starts, window.stops], 1) + begins[:, None],
        second=np.full((len(begins), 2), -1),
        examples=window.texts,
        sizes=sizes,
        positions=1 + word_starts - np.repeat(begins + window.starts, sizes),
        targets=_tag_targets(card, examples),
    )


def _answer_spans(examples: Sequence[AnswerExample]) -> _Spans | None:
    """The characters of each example's first answer; None where answers are not known."""
    spans = []
    for example in examples:
        if example.answers is None:
            return None
        if not example.answers:
            spans.append(_NO_SPAN)
            continue
        text, start = example.answers[0].text, example.answers[0].start
        answer = Answer.find(example.context, text, start)
        if answer is None:
            raise DataError(
                f"{example.where or example.key}: the answer {shorten(text)} does not stand in its "
                "context; mend the example or leave it out"
            )
        spans.append((answer.start, answer.start + len(answer.text)))
    return np.array(spans, np.int64).reshape(-1, 2)


def _token_spans(
    spans: _Spans,
    numbers: Int[np.ndarray, " examples"],
    offsets: Int[np.ndarray, "tokens 2"],
    slices: Int[np.ndarray, "contexts 2"],
    sizes: Sequence[int],
) -> _Spans:
    """First and last token of each answer, counted in its context.

    The first token is the first that reaches beyond the answer's start, the last is the last that
    begins before its end.
    """
    # All contexts end to end, so that one search serves all answers.
    begins = row_bounds(np.array(sizes, np.int64) + 1)
    shift = np.repeat(begins[:-1], slices[:, 1] - slices[:, 0])[:, None]
    starts, stops = (offsets + shift).T
    characters = spans + begins[numbers][:, None]
    first = np.searchsorted(stops, characters[:, 0], side="right")
    last = np.searchsorted(starts, characters[:, 1], side="left") - 1
    tokens = np.stack([first, np.maximum(first, last)], 1) - slices[numbers, :1]
    return np.where(spans[:, :1] < 0, _NO_SPAN, tokens)


def _tag_targets(
    card: TaskCard, examples: Sequence[TagExample]
) -> Int[np.ndarray, " words"] | None:
    if not all(example.is_labeled for example in examples):
        return None
    numbers = {label: number for number, label in enumerate(card.task.labels)}
    targets = []
    for example in examples:
        tags, where = example.truth(), example.where or example.key
        if len(tags) != len(example.words):
            raise DataError(f"{where}: {len(example.words)} words have {len(tags)} tags")
        unknown = next((tag for tag in tags if tag not in numbers), None)
        if unknown is not None:
            raise DataError(
                f"{where}: tag {shorten(unknown)} is not among those of {card.task.name}: "
                f"{shown(card.task.labels)}"
            )
        targets += [numbers[tag] for tag in tags]
    return np.array(targets, np.int64)
