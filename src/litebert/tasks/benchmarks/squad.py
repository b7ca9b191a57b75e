"""SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018) in their JSON layout, files to AnswerExamples.

A context is one string that all of its questions share. Answers are moved to where the context
really has them (Answer.find).
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from litebert.checks import shorten
from litebert.config import HeadKind
from litebert.data.bad_rows import BadRowError, BadRows, Location
from litebert.errors import DataError
from litebert.tasks.benchmarks.benchmark import Benchmark
from litebert.tasks.examples import Answer, AnswerExample, TaskExample
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.tables.example import find_answers
from litebert.tasks.tables.rows import read_json
from litebert.tasks.task import Task

_LAYOUT = "SQuAD's {data: [{title, paragraphs: [{context, qas: [{id, question, answers}]}]}]}"


def read_squad(
    has_null: bool, path: Path, split: str, bad: BadRows, options: TableOptions
) -> Iterator[AnswerExample]:
    """The questions of one file. `has_null`: whether a question may have no answer."""
    seen = set[str]()
    questions = _questions(read_json(path), path)
    for number, (title, context, question) in enumerate(questions, 1):
        location = Location(str(path), number, "question")
        try:
            example = _example(
                question, title=title, context=context, has_null=has_null, where=str(location)
            )
            if example.key in seen:
                raise BadRowError(f"the id {shorten(example.key)} was there before")
            if split == "train" and example.answers is None:
                raise BadRowError("the question has no answers, from which a model could learn")
        except BadRowError as error:
            bad.add(location, str(error), question)
            continue
        seen.add(example.key)
        yield example


def _questions(data: Any, path: Path) -> Iterator[tuple[str, str, Any]]:
    """(title, context, question as it is in the file)."""
    try:
        for article in data["data"]:
            for paragraph in article["paragraphs"]:
                context = paragraph["context"]
                if not isinstance(context, str):
                    raise TypeError(f"a context is {type(context).__name__}")
                for question in paragraph["qas"]:
                    yield str(article.get("title", "")), context, question
    except (KeyError, TypeError, AttributeError) as error:
        missing = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(f"{path}: {missing}; expected {_LAYOUT}") from error


def _example(
    question: Any, *, title: str, context: str, has_null: bool, where: str
) -> AnswerExample:
    is_complete = isinstance(question, dict) and "id" in question
    if not is_complete or not isinstance(question.get("question"), str):
        raise BadRowError("the question has no text or no id")
    answers = _answers(question, context)
    if answers == () and not has_null:
        raise BadRowError(
            "the question has no answer, and in SQuAD 1 each has one; the task squad2 reads such "
            "files"
        )
    return AnswerExample(
        key=str(question["id"]),
        question=question["question"],
        context=context,
        answers=answers,
        slice=title,
        where=where,
    )


def _answers(question: dict[str, Any], context: str) -> tuple[Answer, ...] | None:
    """SQuAD's list of {text, answer_start}; None where it is not there."""
    if question.get("is_impossible"):
        return ()
    if question.get("answers") is None:
        return None
    try:
        stated = [(each["text"], each.get("answer_start")) for each in question["answers"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise BadRowError(
            "the answers are not a list of objects with text and answer_start"
        ) from error
    for text, start in stated:
        if not isinstance(text, str) or not (start is None or isinstance(start, int)):
            raise BadRowError(
                f"an answer is {shorten(text)} from {shorten(start)}, expected a text and a whole "
                "number"
            )
    return find_answers(context, [each for each in stated if each[0].strip()])


def _group(example: TaskExample) -> tuple[str, ...]:
    assert isinstance(example, AnswerExample)
    return (example.slice or example.context,)


def _benchmark(name: str, version: str, *, not_ours: str, has_null: bool) -> Benchmark:
    head: HeadKind = "joint_span" if has_null else "span"
    return Benchmark(
        task=Task(name=name, kind="answer", scores=("f1", "exact"), head=head, has_null=has_null),
        folders=("SQuAD", "squad", name),
        # any other train*.json too: other questions in SQuAD's layout
        splits={
            split: (f"{split}-v{version}.json", f"{split}*.json")
            for split in ("train", "dev", "test")
        },
        read=partial(read_squad, has_null),
        group=_group,
        cut_by="title",
        not_ours=not_ours,
    )


SQUAD = {
    "squad1": _benchmark("squad1", "1.1", not_ours="-v2.", has_null=False),
    "squad2": _benchmark("squad2", "2.0", not_ours="-v1.", has_null=True),
}
