"""Questions about contexts in, windows out: [CLS] question [SEP] a window of the context [SEP]
(SQuAD; ALBERT A.3).
 A context is tokenized once for all its questions. The place of an answer comes from the tokens'
offsets: its first token is the first that reaches beyond its start, its last is the last that
begins before its end.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from litebert.errors import DataError
from litebert.tasks.benchmarks.align import align
from litebert.tasks.card import TaskCard
from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.encode.pool import distinct, pool_texts, side_by_side
from litebert.tasks.encode.windows import windows
from litebert.tasks.examples import AnswerExample
from litebert.text.tokenizer import Tokenizer

Spans = Int[np.ndarray, "examples 2"]
NOWHERE = (-1, -1)
"""The span of a question without an answer."""


def encode_answers(
    card: TaskCard, examples: Sequence[AnswerExample], tokenizer: Tokenizer
) -> Inputs:
    """The windows of every example, in order."""
    contexts, numbers = distinct([example.context for example in examples])
    tokens = tokenizer.encode_with_offsets(contexts)
    lengths = np.array([len(text.ids) for text in tokens], np.int64)
    places = side_by_side(lengths)
    offsets = np.concatenate([np.zeros((0, 2), np.int32), *(text.offsets for text in tokens)])
    ids = np.concatenate(
        [np.zeros(0, np.int32), *(np.array(text.ids, np.int32) for text in tokens)]
    )
    question_ids, questions = pool_texts([example.question for example in examples], tokenizer)
    room = card.max_length - 3
    kept = np.minimum(questions[:, 1] - questions[:, 0], min(card.max_question, room // 2))
    shown = windows(lengths[numbers], room - kept, card.stride)
    context = places[numbers[shown.texts], 0]
    first = questions[shown.texts] + len(ids)
    first[:, 1] = first[:, 0] + kept[shown.texts]
    before = 2 + kept[shown.texts]  # columns before the context
    targets = None
    spans = answer_spans(examples)
    if spans is not None:
        found = token_spans(spans, numbers, offsets, places, [len(text) for text in contexts])[
            shown.texts
        ]
        inside = (found[:, 0] >= shown.starts) & (found[:, 1] < shown.stops) & (found[:, 0] >= 0)
        targets = np.where(inside[:, None], found + (before - shown.starts)[:, None], 0)
    return Inputs(
        head=card.task.head,
        special_ids=(tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id),
        pool=np.concatenate([ids, question_ids]),
        first=first,
        second=np.stack([context + shown.starts, context + shown.stops], 1),
        examples=shown.texts,
        offsets=offsets,
        cores=shown.cores + (before - shown.starts)[:, None],
        targets=targets,
    )


def answer_spans(examples: Sequence[AnswerExample]) -> Spans | None:
    """The characters of each example's answer, the first where there are several; None where they
    are not known."""
    spans = []
    for example in examples:
        if example.answers is None:
            return None
        if not example.answers:
            spans.append(NOWHERE)
            continue
        answer = align(example.context, example.answers[0].text, example.answers[0].start)
        if answer is None:
            raise DataError(
                f"{example.where or example.key}: the answer {example.answers[0].text!r} does not "
                "stand in its context; "
                "mend the example or leave it out"
            )
        spans.append((answer.start, answer.start + len(answer.text)))
    return np.array(spans, np.int64).reshape(-1, 2)


def token_spans(
    spans: Spans,
    numbers: Int[np.ndarray, " examples"],
    offsets: Int[np.ndarray, "tokens 2"],
    places: Int[np.ndarray, "contexts 2"],
    sizes: Sequence[int],
) -> Spans:
    """First and last token of each answer, counted in its context; NOWHERE stays."""
    # All contexts laid end to end, so that one search serves all answers.
    begins = np.append(0, np.cumsum(np.array(sizes, np.int64) + 1))
    shift = np.repeat(begins[:-1], places[:, 1] - places[:, 0])[:, None]
    starts, stops = (offsets + shift).T
    at = spans + begins[numbers][:, None]
    first = np.searchsorted(stops, at[:, 0], side="right")
    last = np.searchsorted(starts, at[:, 1], side="left") - 1
    found = np.stack([first, np.maximum(first, last)], 1) - places[numbers, :1]
    return np.where(spans[:, :1] < 0, NOWHERE, found)
