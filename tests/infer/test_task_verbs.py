"""classify, pair, regress, choose, answer, tag: forms, order, and equality with predicting one
example at a time."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from litebert.config import HeadKind
from litebert.errors import ConfigError
from litebert.infer.formats import to_dict
from litebert.infer.predictor import Predictor, load
from litebert.tasks.examples import AnswerExample
from litebert.tasks.predictions import Span
from litebert.tasks.task import Task, TaskCard
from tests.helpers.models import LABELS, SENTENCES, save_model, texts

FIRST, SECOND = texts(20), texts(20, seed=1)
OPTIONS = [random.Random(number).sample(SENTENCES, 2 + number % 3) for number in range(20)]
QUESTIONS: dict[str, tuple[HeadKind, dict[str, list[Any]]]] = {
    "classify": ("classify", {"texts": FIRST}),
    "pair": ("classify", {"first": FIRST, "second": SECOND}),
    "regress": ("regress", {"first": FIRST, "second": SECOND}),
    "choose": ("choose", {"context": FIRST, "question": SECOND, "options": OPTIONS}),
    "answer": ("span", {"question": [each[:40] for each in SECOND], "context": FIRST}),
    "tag": ("tag", {"texts": FIRST}),
}


@pytest.mark.parametrize("verb", QUESTIONS)
def test_one_many_and_a_stream_are_answered_alike(tmp_path: Path, verb: str) -> None:
    head, fields = QUESTIONS[verb]
    model = load(save_model(tmp_path / "m", head), device="cpu")
    ask = getattr(model, verb)
    many = ask(**fields)
    assert isinstance(many, list)
    assert len(many) == 20
    stream = ask(**{name: iter(values) for name, values in fields.items()})
    assert not isinstance(stream, list)
    assert list(stream) == many  # bit for bit
    backwards = ask(**{name: values[::-1] for name, values in fields.items()})
    for number, prediction in enumerate(many):
        alone = ask(**{name: values[number] for name, values in fields.items()})
        assert close(alone, prediction)
        assert close(backwards[-1 - number], prediction)
    for tokens in (1, 100_000):
        model.engine.batch_tokens = tokens
        assert all(close(*both) for both in zip(ask(**fields), many, strict=True))
    assert ask(**{name: [] for name in fields}) == []


def close(ours: Any, theirs: Any) -> bool:
    """Equal but for the last digits."""
    if isinstance(ours, float):
        return abs(ours - theirs) < 1e-5
    if ours is None or isinstance(ours, Span):
        return ours is theirs or (ours.text, ours.start, ours.end) == (
            theirs.text,
            theirs.start,
            theirs.end,
        )
    first, second = ours.probabilities, theirs.probabilities
    values = (
        (list(first.values()), list(second.values()))
        if isinstance(first, dict)
        else (first, second)
    )
    names = ("label", "index", "tags")
    same = all(getattr(ours, name, None) == getattr(theirs, name, None) for name in names)
    return same and bool(np.allclose(*values, atol=1e-5))


def test_what_each_verb_gives(tmp_path: Path) -> None:
    answers = {}
    for verb, (head, fields) in QUESTIONS.items():
        model = load(save_model(tmp_path / verb, head))
        answers[verb] = getattr(model, verb)(**{name: values[3] for name, values in fields.items()})
    assert answers["classify"].label == max(
        answers["classify"].probabilities, key=answers["classify"].probabilities.get
    )
    assert set(answers["pair"].probabilities) == set(LABELS)
    assert sum(answers["pair"].probabilities.values()) == pytest.approx(1, abs=1e-5)
    assert isinstance(answers["regress"], float)
    assert len(answers["choose"].probabilities) == len(OPTIONS[3])
    span = answers["answer"]
    assert FIRST[3][span.start : span.end] == span.text
    assert len(answers["tag"].tags) == len(FIRST[3].split())


def test_a_text_is_tagged_by_its_words_however_given(tmp_path: Path) -> None:
    model = load(save_model(tmp_path / "m", "tag"))
    split, words = model.tag(["the  whale\tsails"]), model.tag([["the", "whale", "sails"]])
    assert split == words == [model.tag("the whale sails")]


def test_no_answer_is_none_and_json_says_null(tmp_path: Path) -> None:
    task = Task(name="squad2", kind="answer", scores=("f1",), head="joint_span", has_null=True)
    card = TaskCard(task=task, max_length=48, stride=16, null_threshold=-1e6)
    silent = load(save_model(tmp_path / "m", "joint_span", card=card))
    assert silent.answer(question="who?", context="the whale sails .") is None
    example = AnswerExample(key="", question="who?", context="the whale sails .")
    prediction = to_dict(next(silent.predict([example])))
    assert prediction["text"] is prediction["start"] is prediction["score"] is None
    assert prediction["spans"][0]["text"] in example.context
    assert isinstance(prediction["null_score"], float)


def test_a_model_says_what_it_can_do(model: Predictor, labeller: Predictor, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match="this model cannot classify; it can fill and embed; fine-tune one: litebert",
    ):
        model.classify(iter(["a"]))  # at once, not when the stream is read
    with pytest.raises(
        ConfigError,
        match="this model cannot fill; it can embed and classify and pair; pretraining adds",
    ):
        labeller.fill("[MASK]")
    with pytest.raises(
        ConfigError, match="this model has no head for a task; it can fill and embed"
    ):
        model.predict([])
    chooser = load(save_model(tmp_path / "m", "choose"))
    with pytest.raises(ConfigError, match="choose needs two or more options; got 1"):
        chooser.choose(context="a", question="b", options=["c"])
    with pytest.raises(ConfigError, match="expected a text for question; got NoneType: None"):
        chooser.choose(context=["a"], question=[None], options=[["c", "d"]])  # type: ignore[call-overload]
