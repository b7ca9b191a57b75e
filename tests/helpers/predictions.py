"""Examples and predictions made up: one task of each kind, with guesses as good as wanted."""

import numpy as np

from litebert.tasks.examples import (
    Answer,
    AnswerExample,
    ChoiceExample,
    TagExample,
    TaskExample,
    TextExample,
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
from litebert.tasks.task import HEADS, Task

WORDS = ["red", "green", "blue", "seven", "nine", "Paris", "Rome", "ships", "goats", "north"]
TASKS = {
    "classify": Task(
        name="classify",
        kind="classify",
        scores=("accuracy", "f1", "matthews"),
        labels=("no", "yes"),
        head=HEADS["classify"],
    ),
    "pair": Task(
        name="mnli",
        kind="pair",
        scores=("accuracy", "macro_f1"),
        labels=("x", "y", "z"),
        head=HEADS["pair"],
    ),
    "several labels": Task(
        name="classify",
        kind="classify",
        scores=("micro_f1", "macro_f1", "subset_accuracy"),
        labels=("x", "y", "z"),
        head="multilabel",
    ),
    "regress": Task(
        name="stsb",
        kind="regress",
        scores=("pearson", "spearman", "mean_squared_error"),
        head=HEADS["regress"],
    ),
    "choose": Task(name="race", kind="choose", scores=("accuracy",), head=HEADS["choose"]),
    "answer": Task(name="squad1", kind="answer", scores=("f1", "exact"), head=HEADS["answer"]),
    "answer or none": Task(
        name="squad2", kind="answer", scores=("f1", "exact"), head="joint_span", has_null=True
    ),
    "tag": Task(
        name="tag",
        kind="tag",
        scores=("f1", "precision", "recall", "accuracy"),
        labels=("B-X", "I-X", "O"),
        head=HEADS["tag"],
    ),
}


def example(task: Task, number: int, draw: np.random.Generator) -> TaskExample:
    """One example; slices are named after the number."""
    text = [str(word) for word in draw.choice(WORDS, 6)]
    key, slice = str(number), "even" if number % 2 == 0 else "odd"
    if task.head == "multilabel":
        labels = tuple(each for each in task.labels if draw.random() < 0.5)
        return TextExample(key=key, first=" ".join(text), label=labels, slice=slice)
    if task.kind in ("classify", "pair"):
        label, second = (
            str(draw.choice(task.labels)),
            None if task.kind == "classify" else WORDS[number % 3],
        )
        return TextExample(key=key, first=" ".join(text), second=second, label=label, slice=slice)
    if task.kind == "regress":
        return TextExample(
            key=key,
            first=" ".join(text),
            second=text[0],
            label=float(draw.integers(0, 51)) / 10,
            slice=slice,
        )
    if task.kind == "choose":
        return ChoiceExample(
            key=key,
            context=" ".join(text),
            question="which?",
            options=tuple(text[:4]),
            label=int(draw.integers(4)),
            slice=slice,
        )
    if task.kind == "answer":
        start = len(text[0]) + 1
        answers = (
            Answer(text=text[1], start=start),
            Answer(text=f"{text[1]} {text[2]}", start=start),
        )
        silent = task.has_null and number % 3 == 0
        return AnswerExample(
            key=key,
            question="which?",
            context=" ".join(text),
            answers=() if silent else answers,
            slice=slice,
        )
    tags = (
        ("O", "B-X", "I-X", "O", "B-X", "O")
        if number % 2
        else ("B-X", "O", "O", "B-X", "B-X", "I-X")
    )
    return TagExample(key=key, words=tuple(text), tags=tags, slice=slice)


def predict(task: Task, example: TaskExample, right: bool, sure: float = 0.9) -> Prediction:
    """What is true of the example, or something else."""
    if isinstance(example, TextExample):
        if task.kind == "regress":
            return NumberPrediction(value=example.number() + (0 if right else 1 + sure))
        if task.head == "multilabel":
            wrong = set() if right else {task.labels[len(example.labels()) % 3]}
            predicted = set(example.labels()) ^ wrong
            return MultiLabelPrediction(
                probabilities={
                    each: sure if each in predicted else 1 - sure for each in task.labels
                }
            )
        label = str(example.label)
        said = label if right else task.labels[(task.labels.index(label) + 1) % len(task.labels)]
        rest = (1 - sure) / (len(task.labels) - 1)
        return LabelPrediction(
            label=said, probabilities={each: sure if each == said else rest for each in task.labels}
        )
    if isinstance(example, ChoiceExample):
        assert example.label is not None
        index = example.label if right else (example.label + 1) % 4
        return ChoicePrediction(
            index=index,
            probabilities=tuple(sure if i == index else (1 - sure) / 3 for i in range(4)),
        )
    if isinstance(example, AnswerExample):
        answers = example.answers or ()
        text, start = (
            (answers[0].text, answers[0].start) if answers and right else ("something else", 0)
        )
        silent = not answers if right else bool(answers)
        return SpanPrediction(
            spans=(Span(text=text, start=start, end=start + len(text), score=float(np.log(sure))),),
            null_score=sure if silent and task.has_null else -sure,
            null_threshold=0.0 if task.has_null else None,
        )
    assert example.tags is not None
    tags = example.tags if right else tuple("O" if tag != "O" else "B-X" for tag in example.tags)
    return TagPrediction(tags=tags, probabilities=(sure,) * len(tags))


def made(
    kind: str, size: int = 40, *, skill: float = 0.7, seed: int = 0
) -> tuple[Task, list[TaskExample], list[Prediction]]:
    """A task, examples, and predictions of which about `skill` are right; 1 for all."""
    draw, task = np.random.default_rng(seed), TASKS[kind]
    examples = [example(task, number, draw) for number in range(size)]
    predictions = [
        predict(task, each, bool(draw.random() < skill), 0.5 + 0.4 * draw.random())
        for each in examples
    ]
    return task, examples, predictions


def made_models(
    kind: str, skills: list[float], size: int = 60
) -> tuple[Task, list[TaskExample], list[list[Prediction]]]:
    """A task, examples, and the predictions of models that err independently."""
    draw, task = np.random.default_rng(0), TASKS[kind]
    examples = [example(task, number, draw) for number in range(size)]
    sure = 0.5 + 0.4 * draw.random((len(skills), size))
    right = draw.random((len(skills), size)) < np.array(skills)[:, None]
    said = [
        [
            predict(task, each, bool(right[model, number]), float(sure[model, number]))
            for number, each in enumerate(examples)
        ]
        for model in range(len(skills))
    ]
    return task, examples, said
