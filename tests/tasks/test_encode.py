"""Inputs are what the tokenizer would make of each example alone; gold answers and tags stand where
the text has them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from litebert.errors import DataError
from litebert.tasks.encode.encode import encode, fill_in
from litebert.tasks.encode.inputs import Inputs
from litebert.tasks.examples import Answer, AnswerExample, ChoiceExample, TagExample, TextExample
from litebert.text.tokenizer import Tokenizer
from tests.helpers.task_examples import made_card, made_examples


def row(inputs: Inputs, unit: int, number: int = 0) -> tuple[list[int], list[int]]:
    """Token and segment ids of one row of a unit."""
    batch = inputs.batch(np.array([unit]))
    length = inputs.row_lengths[inputs.row_bounds[unit] + number]
    return batch.token_ids[number, :length].tolist(), batch.segment_ids[number, :length].tolist()


@pytest.mark.parametrize("max_length", [8, 9, 21, 40, 64])
@pytest.mark.parametrize("kind", ["classify", "pair", "regress"])
def test_texts_are_cut_as_the_tokenizer_cuts(
    tokenizer: Tokenizer, kind: Any, max_length: int
) -> None:
    examples = [
        *made_examples(kind, 20),
        TextExample(key="x", first="", second=None if kind == "classify" else "", label=0.0),
    ]
    examples[-1] = replace(examples[-1], label=examples[0].label)
    inputs = encode(made_card(kind, max_length=max_length), examples, tokenizer)
    for unit, example in enumerate(examples):
        assert isinstance(example, TextExample)
        told = tokenizer.pair(
            example.first, example.second, max_length=max_length, truncate="longest"
        )
        assert row(inputs, unit) == (told.token_ids, told.segment_ids)


def test_one_and_two_texts_may_stand_together(tokenizer: Tokenizer) -> None:
    some = [
        TextExample(key="a", first="the ship", label="no"),
        TextExample(key="b", first="the", second="ship", label="yes"),
    ]
    inputs = encode(made_card("classify"), some, tokenizer)
    assert [row(inputs, unit)[0] for unit in (0, 1)] == [
        tokenizer.pair("the ship").token_ids,
        tokenizer.pair("the", "ship").token_ids,
    ]
    assert inputs.targets is not None
    assert inputs.targets.tolist() == [0, 1]


def test_an_option_fills_the_blank_or_follows_the_question() -> None:
    assert fill_in("She was _ and _ .", r"\1 glad") == r"She was \1 glad and \1 glad ."
    assert fill_in("a ____ b", "x") == "a x b"
    assert fill_in("Who came?", "The baker") == "Who came? The baker"


def test_options_are_rows_with_the_end_of_the_question_and_the_start_of_the_context(
    tokenizer: Tokenizer,
) -> None:
    context, question = (
        "the sailor hunts the cold wave . " * 6,
        "then the captain follows " * 8 + "_ ?",
    )
    example = ChoiceExample(
        key="0",
        context=context,
        question=question,
        options=("the ship", "a far island", ""),
        label=2,
    )
    inputs = encode(made_card("choose", max_length=41), [example], tokenizer)
    assert inputs.num_rows.tolist() == [3]
    for number, option in enumerate(example.options):
        asked = tokenizer.encode(question.replace("_", option))[
            -19:
        ]  # at most half of the 38 that special tokens leave
        told = [
            tokenizer.cls_id,
            *tokenizer.encode(context)[:19],
            tokenizer.sep_id,
            *asked,
            tokenizer.sep_id,
        ]
        assert row(inputs, 0, number) == (told, [0] * 21 + [1] * 20)


def test_shared_texts_are_held_once(tokenizer: Tokenizer) -> None:
    some = made_examples("answer", 1) * 3
    alone, three = (encode(made_card("answer"), part, tokenizer) for part in (some[:1], some))
    assert len(three) == 3 * len(alone)
    assert three.pool.tolist() == alone.pool.tolist()


@pytest.mark.parametrize("stride", [3, 7, 128])
def test_gold_windows_read_the_gold_answer(tokenizer: Tokenizer, stride: int) -> None:
    examples = made_examples("answer", 40)
    card = made_card("answer", stride=stride)
    inputs = encode(card, examples, tokenizer)
    assert inputs.targets is not None
    assert inputs.offsets is not None
    assert len(inputs) > len(examples)
    read = set()
    for unit, (first, last) in enumerate(inputs.targets.tolist()):
        example = examples[inputs.examples[unit]]
        assert isinstance(example, AnswerExample)
        if last == 0:
            assert first == 0
            continue
        assert example.answers
        shift = inputs.second[unit, 0] - 2 - (inputs.first[unit, 1] - inputs.first[unit, 0])
        start, end = inputs.offsets[first + shift, 0], inputs.offsets[last + shift, 1]
        assert (example.context[start:end], start) == (
            example.answers[0].text,
            example.answers[0].start,
        )
        assert inputs.batch(np.array([unit])).token_ids[0, first] == inputs.pool[first + shift]
        read.add(inputs.examples[unit])
    assert read == {number for number, example in enumerate(examples) if example.answers}  # type: ignore[union-attr]


def test_a_window_is_question_and_part_of_the_context(tokenizer: Tokenizer) -> None:
    question, context = (
        "who then finally follows the old captain ?",
        "the sailor hunts the cold wave . " * 5,
    )
    example = AnswerExample(key="0", question=question, context=context)
    inputs = encode(
        made_card("answer", max_length=24, max_question=5, stride=4), [example], tokenizer
    )
    asked, read = tokenizer.encode(question)[:5], tokenizer.encode(context)
    for unit in range(len(inputs)):
        start = 4 * unit
        told = [
            tokenizer.cls_id,
            *asked,
            tokenizer.sep_id,
            *read[start : start + 16],
            tokenizer.sep_id,
        ]
        assert row(inputs, unit) == (told, [0] * 7 + [1] * (len(told) - 7))
    assert start + 16 >= len(read)
    assert inputs.targets is None


def test_an_answer_inside_of_tokens_takes_them_whole(tokenizer: Tokenizer) -> None:
    context = "First the SAILOR\u00a0 hunts  a wave."
    example = AnswerExample(
        key="0", question="who", context=context, answers=(Answer(text="he SAILOR", start=7),)
    )
    inputs = encode(made_card("answer"), [example], tokenizer)
    assert inputs.targets is not None
    assert inputs.offsets is not None
    tokens = tokenizer.encode_with_offsets([context])[0]
    before = inputs.lengths[0] - 1 - len(tokens.ids)
    first, last = inputs.targets[0] - before
    assert context[tokens.offsets[first, 0] : tokens.offsets[last, 1]] == "the SAILOR"


def test_tags_are_asked_at_the_first_piece_of_every_word_once(tokenizer: Tokenizer) -> None:
    examples = [*made_examples("tag", 10), TagExample(key="none", words=(), tags=())]
    inputs = encode(made_card("tag", max_length=16, stride=5), examples, tokenizer)
    assert len(inputs) > len(examples)
    asked: dict[int, list[int]] = {number: [] for number in range(len(examples))}
    for unit in range(len(inputs)):
        batch = inputs.batch(np.array([unit]))
        assert batch.words is not None
        asked[int(inputs.examples[unit])] += batch.token_ids.flatten()[batch.words].tolist()
    for number, example in enumerate(examples):
        assert isinstance(example, TagExample)
        assert asked[number] == [tokenizer.encode(word)[0] for word in example.words]


def test_words_together_are_the_text(tokenizer: Tokenizer) -> None:
    text = "then the zebra sails a wooden cart , finally"
    inputs = encode(made_card("tag"), [TagExample(key="0", words=tuple(text.split()))], tokenizer)
    assert row(inputs, 0)[0] == tokenizer.pair(text).token_ids
    inputs = encode(
        made_card("tag"), [TagExample(key="0", words=("the", "\u0301", "ship"))], tokenizer
    )
    assert row(inputs, 0)[0][1:-1] == [
        *tokenizer.encode("the"),
        tokenizer.unk_id,
        *tokenizer.encode("ship"),
    ]


@pytest.mark.parametrize("kind", ["classify", "choose", "answer", "tag"])
def test_nothing_in_nothing_out(tokenizer: Tokenizer, kind: Any) -> None:
    inputs = encode(made_card(kind), [], tokenizer)
    assert len(inputs) == 0
    assert inputs.lengths.tolist() == []


def test_a_fingerprint_is_of_all_that_is_read(tokenizer: Tokenizer) -> None:
    examples, card = made_examples("classify", 5), made_card("classify")
    same, again = (encode(card, examples, tokenizer).fingerprint for _ in range(2))
    other = [
        replace(examples[0], label="no" if examples[0].label == "yes" else "yes"),
        *examples[1:],
    ]  # type: ignore[union-attr,call-arg]
    assert same == again
    assert encode(card, other, tokenizer).fingerprint != same  # type: ignore[arg-type]
    assert encode(replace(card, max_length=8), examples, tokenizer).fingerprint != same


@pytest.mark.parametrize(
    ("kind", "example", "message"),
    [
        (
            "classify",
            TextExample(key="7", first="a", label="perhaps"),
            r"7: label 'perhaps' is not among those of classify: 'no'",
        ),
        (
            "regress",
            TextExample(key="7", first="a", label="high", where="d.tsv:3"),
            r"d.tsv:3: label 'high' is not a number",
        ),
        (
            "regress",
            TextExample(key="7", first="a", label="", where="d.tsv:3"),
            r"d.tsv:3: label '' is not a number",
        ),
        (
            "regress",
            TextExample(key="7", first="a", label="nan", where="d.tsv:3"),
            r"d.tsv:3: label 'nan' is not a number",
        ),
        (
            "tag",
            TextExample(key="7", first="a"),
            r"tag asks about a TagExample, '7' is a TextExample",
        ),
        ("tag", TagExample(key="7", words=("a", "b"), tags=("O",)), r"7: 2 words have 1 tags"),
        (
            "tag",
            TagExample(key="7", words=("a",), tags=("X",)),
            r"7: tag 'X' is not among those of tag: 'O', 'B', 'I'",
        ),
        (
            "choose",
            ChoiceExample(key="7", context="a", question="b", options=("x", "y"), label=2),
            r"7: option 2 is said to be right, there are 2",
        ),
        (
            "choose",
            ChoiceExample(key="7", context="a", question="b", options=()),
            r"7: there is no option to choose",
        ),
        (
            "answer",
            AnswerExample(
                key="7",
                question="a",
                context="b",
                answers=(Answer(text="c", start=0),),
                where="t.json:4",
            ),
            r"t.json:4: the answer 'c' does not stand in its context; mend the example",
        ),
    ],
)
def test_what_cannot_be_learned_from_is_named(
    tokenizer: Tokenizer, kind: Any, example: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        encode(made_card(kind), [example], tokenizer)
