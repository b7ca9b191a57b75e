"""Predictions stand in the order of the examples whatever shares a batch with what, and spans are
the best there are."""

import random
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from litebert.errors import ConfigError
from litebert.model.batch import DeviceBatch
from litebert.model.heads import JointSpanHead
from litebert.tasks.decode.decode import N_BEST, NO_SPAN
from litebert.tasks.encode.encode import encode
from litebert.tasks.examples import AnswerExample, TagExample
from litebert.tasks.heads.heads import predict, predict_inputs
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    MultiLabelPrediction,
    NumberPrediction,
    Prediction,
    SpanPrediction,
    TagPrediction,
)
from litebert.text.tokenizer import Tokenizer
from tests.helpers.task_examples import CASES, made_card, made_examples, made_model


def numbers(prediction: Prediction) -> list[float]:
    """All numbers of a prediction; the names are compared apart."""
    match prediction:
        case LabelPrediction(probabilities=chances) | MultiLabelPrediction(probabilities=chances):
            return list(chances.values())
        case NumberPrediction(value=value):
            return [value]
        case ChoicePrediction(probabilities=chances) | TagPrediction(probabilities=chances):
            return list(chances)
        case SpanPrediction(spans=spans, null_score=null_score):
            return [null_score, *(span.score for span in spans)]
    raise AssertionError(prediction)


def names(prediction: Prediction) -> Any:
    match prediction:
        case LabelPrediction(label=label):
            return label
        case MultiLabelPrediction(labels=labels):
            return labels
        case ChoicePrediction(index=index):
            return index
        case TagPrediction(tags=tags):
            return tags
        case SpanPrediction(spans=spans):
            return spans[0].text if spans else None
    return None


def assert_same(found: list[Prediction], told: list[Prediction]) -> None:
    assert [names(one) for one in found] == [names(one) for one in told]
    for one, other in zip(found, told, strict=True):
        np.testing.assert_allclose(numbers(one), numbers(other), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_batches_and_order_change_nothing(tokenizer: Tokenizer, kind: Any, head: Any) -> None:
    card, examples = made_card(kind, head), made_examples(kind, 15)
    model = made_model(card, tokenizer)
    together = predict(model, card, examples, tokenizer)
    assert len({tuple(numbers(one)) for one in together}) > 10
    assert_same(predict(model, card, examples, tokenizer, batch_tokens=1), together)
    assert_same(predict(model, card, examples, tokenizer, batch_tokens=100), together)
    assert_same([predict(model, card, [example], tokenizer)[0] for example in examples], together)
    order = random.Random(0).sample(range(15), 15)
    shuffled = predict(model, card, [examples[number] for number in order], tokenizer)
    assert_same(shuffled, [together[number] for number in order])
    assert predict(model, card, [], tokenizer) == []


@pytest.mark.parametrize(("kind", "head"), CASES)
def test_labels_are_not_looked_at(tokenizer: Tokenizer, kind: Any, head: Any) -> None:
    card, examples = made_card(kind, head), made_examples(kind, 6)
    hidden = {"answer": "answers", "tag": "tags"}.get(kind, "label")
    model = made_model(card, tokenizer)
    unlabeled = [replace(example, **{hidden: None}) for example in examples]
    assert predict(model, card, unlabeled, tokenizer) == predict(model, card, examples, tokenizer)


def test_probabilities_add_up_and_the_likeliest_is_named(tokenizer: Tokenizer) -> None:
    for kind in ("classify", "pair", "choose"):
        card, examples = made_card(kind), made_examples(kind)
        for example, one in zip(
            examples, predict(made_model(card, tokenizer), card, examples, tokenizer), strict=True
        ):
            np.testing.assert_allclose(sum(numbers(one)), 1, rtol=1e-6)
            if isinstance(one, LabelPrediction):
                assert tuple(one.probabilities) == card.task.labels
                assert one.label == max(
                    one.probabilities, key=lambda label: one.probabilities[label]
                )
            else:
                assert isinstance(one, ChoicePrediction)
                assert len(one.probabilities) == len(example.options)  # type: ignore[union-attr]
                assert one.index == one.probabilities.index(max(one.probabilities))


def test_every_word_has_a_tag(tokenizer: Tokenizer) -> None:
    card = made_card("tag", max_length=16)
    examples = [
        TagExample(key="a", words=()),
        *made_examples("tag", 5),
        TagExample(key="b", words=("\u0301", "ship")),
    ]
    for example, one in zip(
        examples, predict(made_model(card, tokenizer), card, examples, tokenizer), strict=True
    ):
        assert isinstance(one, TagPrediction)
        assert isinstance(example, TagExample)
        assert len(one.tags) == len(one.probabilities) == len(example.words)
        assert all(1 / 3 <= chance <= 1 for chance in one.probabilities)


def brute_force(
    model: Any, card: Any, example: AnswerExample, tokenizer: Tokenizer
) -> tuple[list[Any], float]:
    """All spans of all windows as (score, start, end), the best first, and the null score; by the
    definition, in Python."""
    inputs = encode(card, [example], tokenizer)
    offsets = tokenizer.encode_with_offsets([example.context])[0].offsets
    actual: dict[tuple[int, int], float] = {}
    nulls = []
    for unit in range(len(inputs)):
        batch = DeviceBatch.of(inputs.batch(np.array([unit])).padded())
        allowed = batch.head_inputs["allowed"]
        assert inputs.cores is not None
        states = model.encoder(token_ids=batch.token_ids, segment_ids=batch.segment_ids)
        before = int(inputs.first[unit, 1] - inputs.first[unit, 0]) + 2
        head = model.head(card.task.head)
        inside = [0, *range(before, states.shape[1] - 1)]
        best = -np.inf
        if isinstance(head, JointSpanHead):
            start = head.start_logits(states, allowed)[0, inside].log_softmax(0)
            nulls.append(float(head.unanswerable(states, head.start_logits(states, allowed))))
        else:
            start, end = head(states)[0, inside].log_softmax(0).T
        for (i, first), (j, last) in product(enumerate(inside), repeat=2):
            if not (
                inputs.cores[unit, 0] <= first < inputs.cores[unit, 1]
                and first <= last < first + card.max_answer
            ):
                continue
            if isinstance(head, JointSpanHead):
                end = head.end_logits(states, allowed, torch.tensor([[first]]))[
                    0, 0, inside
                ].log_softmax(0)
            score = float(start[i] + end[j])
            best = max(best, score)
            shift = int(inputs.second[unit, 0]) - before
            place = int(offsets[first + shift, 0]), int(offsets[last + shift, 1])
            actual[place] = max(score, actual.get(place, -np.inf))
        if not isinstance(head, JointSpanHead):
            nulls.append(float(start[0] + end[0]) - best)
    ranked = sorted(
        ((score, *place) for place, score in actual.items() if place[0] < place[1]), reverse=True
    )
    return ranked[:N_BEST], min(nulls)


@pytest.mark.parametrize("head", ["span", "joint_span"])
@torch.no_grad()
def test_the_best_spans_are_the_best_of_all(tokenizer: Tokenizer, head: Any) -> None:
    card = made_card("answer", head, beam=32, max_answer=4, null_threshold=0.5)
    model = made_model(card, tokenizer)
    for example in made_examples("answer", 4):
        assert isinstance(example, AnswerExample)
        (one,) = predict(model, card, [example], tokenizer)
        assert isinstance(one, SpanPrediction)
        ranked, null_score = brute_force(model, card, example, tokenizer)
        np.testing.assert_allclose(
            [span.score for span in one.spans], [score for score, *_ in ranked], rtol=1e-5
        )
        assert {(span.start, span.end) for span in one.spans[:5]} == {
            (start, end) for _, start, end in ranked[:5]
        }
        np.testing.assert_allclose(one.null_score, null_score, rtol=1e-4, atol=1e-5)
        assert all(span.text == example.context[span.start : span.end] for span in one.spans)
        assert one.null_threshold == 0.5


@torch.no_grad()
def test_a_beam_follows_its_starts_only(tokenizer: Tokenizer) -> None:
    card, wide = (made_card("answer", "joint_span", beam=beam) for beam in (2, 32))
    model, examples = made_model(card, tokenizer), made_examples("answer", 8)
    for example, narrow, full in zip(
        examples,
        predict(model, card, examples, tokenizer),
        predict(model, wide, examples, tokenizer),
        strict=True,
    ):
        assert isinstance(narrow, SpanPrediction)
        assert isinstance(full, SpanPrediction)
        windows = len(encode(card, [example], tokenizer))
        assert 1 <= len(narrow.spans) <= 4 * windows
        assert len({span.start for span in narrow.spans}) <= 2 * windows
        assert narrow.null_score == pytest.approx(full.null_score, rel=1e-5)
        assert narrow.spans[0].score <= full.spans[0].score + 1e-5


@pytest.mark.parametrize("head", ["span", "joint_span"])
def test_a_context_without_words_has_no_answer(tokenizer: Tokenizer, head: Any) -> None:
    card = made_card("answer", head)
    examples = [
        AnswerExample(key=str(number), question="who ?", context=context)
        for number, context in enumerate(["", " ", "a"])
    ]
    actual = predict(made_model(card, tokenizer), card, examples, tokenizer)
    for one in actual[:2]:
        assert isinstance(one, SpanPrediction)
        assert one.spans == ()
        assert one.best is None
        assert one.null_score == NO_SPAN or head == "joint_span"
    assert isinstance(actual[2], SpanPrediction)
    assert [span.text for span in actual[2].spans] == ["a"]
    alone = predict(made_model(card, tokenizer), card, examples[:1], tokenizer)
    assert_same(alone, actual[:1])


def test_a_threshold_is_for_tasks_with_unanswerable_questions(tokenizer: Tokenizer) -> None:
    card = made_card("answer", null_threshold=-1e6)
    examples, model = made_examples("answer", 3), made_model(card, tokenizer)
    assert all(one.best is None for one in predict(model, card, examples, tokenizer))  # type: ignore[union-attr]
    always = replace(card, task=replace(card.task, has_null=False))
    assert all(one.best is not None for one in predict(model, always, examples, tokenizer))  # type: ignore[union-attr]


def test_a_model_in_training_stays_so_and_is_asked_without_dropout(tokenizer: Tokenizer) -> None:
    card, examples = made_card("classify"), made_examples("classify")
    model = made_model(card, tokenizer)
    told = predict(model, card, examples, tokenizer)
    assert predict(model.train(), card, examples, tokenizer) == told
    assert model.training
    calls: list[int] = []

    def pause() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt

    inputs = encode(card, examples, tokenizer)
    with pytest.raises(KeyboardInterrupt):
        predict_inputs(model, card, inputs, examples, batch_tokens=1, pause=pause)
    assert len(calls) == 3
    assert model.training
    assert not torch.is_inference_mode_enabled()


def test_a_model_without_the_head_is_refused(tokenizer: Tokenizer) -> None:
    model = made_model(made_card("classify"), tokenizer)
    with pytest.raises(
        ConfigError, match="regress is answered by a regress head, the model has: classify"
    ):
        predict(model, made_card("regress"), made_examples("regress"), tokenizer)
