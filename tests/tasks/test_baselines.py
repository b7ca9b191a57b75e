"""Baselines: equal to scikit-learn where it has them, worked by hand where it has not; and blind to
dev's labels."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from litebert.errors import DataError
from litebert.tasks.examples import (
    Answer,
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
    NumberPrediction,
    SpanPrediction,
    TagPrediction,
)
from litebert.tasks.scores.baselines import bag_of_words, majority, word_features
from litebert.tasks.scores.linear import LinearModel, logistic, ridge
from litebert.tasks.scores.score import score
from tests.helpers.predictions import TASKS, made

BASELINES = [majority, bag_of_words]


def texts(size: int, labels: int, seed: int = 0) -> list[TextExample]:
    """Texts whose label shows in some of their words."""
    draw = np.random.default_rng(seed)
    actual = []
    for number in range(size):
        label = int(draw.integers(labels))
        words = [f"w{draw.integers(30)}" for _ in range(8)] + [
            f"l{label if draw.random() < 0.7 else draw.integers(labels)}"
        ]
        actual.append(
            TextExample(
                key=str(number),
                first=" ".join(words),
                second=" ".join(words[::2]),
                label="xyz"[label],
            )
        )
    return actual


@pytest.mark.parametrize("labels", [2, 3])
def test_words_are_weighed_as_by_scikit_learn(labels: int) -> None:
    """Logistic regression at its minimum. Of two labels scikit-learn keeps the difference of
    weights: half the penalty."""
    examples = texts(200, labels)
    rows, targets = (
        [word_features(each) for each in examples],
        ["xyz".index(str(each.label)) for each in examples],
    )
    columns = DictVectorizer(sort=True)
    theirs = LogisticRegression(C=2.0 if labels == 2 else 1.0, tol=1e-8, max_iter=1000).fit(
        columns.fit_transform(rows), targets
    )
    chances = LinearModel.fit(rows, logistic(targets, labels)).outputs(rows[:50]).softmax(1).numpy()
    assert chances == pytest.approx(theirs.predict_proba(columns.transform(rows[:50])), abs=1e-4)


def test_numbers_are_guessed_as_by_scikit_learn() -> None:
    examples = texts(200, 3)
    rows, targets = (
        [word_features(each) for each in examples],
        [float("xyz".index(str(each.label))) + 50 for each in examples],
    )
    columns = DictVectorizer(sort=True)
    theirs = (
        Ridge(alpha=1.0)
        .fit(columns.fit_transform(rows), targets)
        .predict(columns.transform(rows[:50]))
    )
    assert LinearModel.fit(rows, ridge(targets)).outputs(rows[:50])[:, 0].numpy() == pytest.approx(
        theirs, abs=1e-3
    )


def test_what_a_bag_of_words_knows() -> None:
    assert list(word_features(TextExample(key="", first="b a b c"))) == ["1 b", "1 a", "1 c"], (
        "in an order that no hash decides"
    )
    signs = word_features(TextExample(key="", first="It's 5%, É!"))
    assert list(signs) == ["1 it", "1 '", "1 s", "1 5", "1 %", "1 ,", "1 é", "1 !"]
    pair = word_features(TextExample(key="", first="a b b", second="b c d"))
    assert pair == {
        **dict.fromkeys(["1 a", "1 b", "2 b", "2 c", "2 d", "both b"], 1.0),
        "shared of the first": 1 / 2,
        "shared of the second": 1 / 3,
        "shared of all": 1 / 4,
    }
    assert word_features(TextExample(key="", first="", second="")).keys() == pair.keys() - {
        "1 a",
        "1 b",
        "2 b",
        "2 c",
        "2 d",
        "both b",
    }
    assert word_features(TextExample(key="", first="")) == {}


@pytest.mark.parametrize("baseline", BASELINES)
@pytest.mark.parametrize("kind", sorted(TASKS))
def test_baselines_are_predictions_and_do_not_look(kind: str, baseline) -> None:  # type: ignore[no-untyped-def]
    """One for each example of dev, scored as a model is, the same with dev's labels taken away."""
    task, examples, _ = made(kind, 40)
    train, dev = examples[:30], examples[30:]
    said = baseline(task, train, dev)
    assert set(score(task, dev, said)) >= set(task.scores)
    assert baseline(task, train, [_unlabeled(each) for each in dev]) == said
    assert baseline(task, train, []) == []
    with pytest.raises(DataError, match="learns from train, which has no examples"):
        baseline(task, [], dev)


def _unlabeled(example: TaskExample) -> TaskExample:
    if isinstance(example, AnswerExample):
        return replace(example, answers=None)
    return (
        replace(example, tags=None)
        if isinstance(example, TagExample)
        else replace(example, label=None)
    )


def test_the_majority_by_hand() -> None:
    train: list[TaskExample] = [
        TextExample(key="", first="", label=label) for label in ("no", "yes", "yes")
    ]
    first = only(majority(TASKS["classify"], train, train[:1]), LabelPrediction)[0]
    assert first == LabelPrediction(label="yes", probabilities={"no": 1 / 3, "yes": 2 / 3})
    train = [TextExample(key="", first="", label=label) for label in (1.0, 2.0, 6.0)]
    assert majority(TASKS["regress"], train, train[:1]) == [NumberPrediction(value=3.0)]
    train = [
        ChoiceExample(key="", context="", question="", options=("a", "b"), label=label)
        for label in (1, 0, 1)
    ]
    assert only(majority(TASKS["choose"], train, train[:1]), ChoicePrediction)[0].index == 1
    train = [TagExample(key="", words=("a", "b", "c"), tags=("O", "B-X", "O"))]
    assert majority(TASKS["tag"], train, train) == [
        TagPrediction(tags=("O",) * 3, probabilities=(2 / 3,) * 3)
    ]


def test_a_frequent_answer_or_none() -> None:
    """Of SQuAD 2 no answer; of SQuAD 1 the most frequent of train's answers that the context has,
    or its first word."""
    answers = (Answer(text="1990", start=0),)
    train: list[TaskExample] = [
        AnswerExample(key="", question="?", context="1990", answers=answers)
    ]
    dev: list[TaskExample] = [
        AnswerExample(key="", question="?", context=context)
        for context in ("Since 1990.", "“Rome” fell.", "")
    ]
    none = only(majority(TASKS["answer or none"], train, dev), SpanPrediction)
    assert [each.best for each in none] == [None] * 3
    some = only(majority(TASKS["answer"], train, dev), SpanPrediction)
    assert [each.best and (each.best.text, each.best.start) for each in some] == [
        ("1990", 6),
        ("Rome", 1),
        None,
    ]


CONTEXT = (
    "The red fox lives in the cold north. The old goat eats dry grass all day. Nobody knows why."
)


@pytest.mark.parametrize(
    ("question", "answer"),
    [("Where does the red fox live?", 2), ("What does the old goat eat all day?", 1)],
)
def test_the_option_whose_words_stand_together(question: str, answer: int) -> None:
    options = ("a ship", "dry grass", "cold north")
    example = ChoiceExample(key="", context=CONTEXT, question=question, options=options)
    said = only(bag_of_words(TASKS["choose"], [example], [example]), ChoicePrediction)[0]
    assert said.index == answer
    assert sum(said.probabilities) == pytest.approx(1)


def test_the_answer_beside_the_question_s_words() -> None:
    example = AnswerExample(key="", question="What does the old goat eat?", context=CONTEXT)
    best = only(bag_of_words(TASKS["answer"], [example], [example]), SpanPrediction)[0].best
    assert best is not None
    assert (best.text, CONTEXT[best.start : best.end]) == ("eats dry grass all day", best.text)
    empty = AnswerExample(key="", question="?", context="")
    assert only(bag_of_words(TASKS["answer"], [example], [empty]), SpanPrediction)[0].best is None


def test_a_question_of_other_words_has_no_answer() -> None:
    """The null threshold comes from train."""
    known = AnswerExample(
        key="",
        question="What does the old goat eat?",
        context=CONTEXT,
        answers=(Answer(text="dry grass", start=0),),
    )
    unknown = AnswerExample(
        key="", question="Which sailor crossed twelve oceans?", context=CONTEXT, answers=()
    )
    said = only(
        bag_of_words(TASKS["answer or none"], [known, unknown], [known, unknown]), SpanPrediction
    )
    assert [each.best is None for each in said] == [False, True]


def test_a_word_has_its_tag_and_an_unknown_one_that_of_rare_words() -> None:
    train: list[TaskExample] = [
        TagExample(key="", words=("the", "fox", "the", "Rome"), tags=("O", "O", "O", "B-X")),
        TagExample(key="", words=("fox", "Oslo"), tags=("B-X", "B-X")),
    ]
    asked: list[TaskExample] = [TagExample(key="", words=("the", "fox", "Bern"))]
    said = only(bag_of_words(TASKS["tag"], train, asked), TagPrediction)[0]
    assert (said.tags, said.probabilities) == (("O", "B-X", "B-X"), (1.0, 0.5, 1.0))
