"""RACE (Lai et al. 2017) in its official layout, {train,dev,test}/{middle,high}/N.txt: files in,
ChoiceExamples out.

A file is one passage as JSON; the article is one string that all of its questions share. The "_" of
questions stays: encode replaces it by each option (as ALBERT's race_utils does).
"""

from collections.abc import Iterator
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from litebert.checks import shorten
from litebert.data.bad_rows import BadRowError, BadRows, Location
from litebert.errors import DataError
from litebert.tasks.benchmarks.benchmark import Benchmark
from litebert.tasks.examples import ChoiceExample, TaskExample
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.tables.rows import read_json
from litebert.tasks.task import Task


def _read_race(
    path: Path, split: str, bad: BadRows, options: TableOptions
) -> Iterator[ChoiceExample]:
    """The questions of one level's folder, or of all levels below `path`, passages by number."""
    levels = ("middle", "high") if options.level == "all" else (options.level,)
    folders = {level: path / level for level in levels}
    missing = [str(folder) for folder in folders.values() if not folder.is_dir()]
    if len(missing) == len(levels):
        raise DataError(
            f"{path} holds no {' or '.join(missing)}; RACE's layout is {split}/middle/N.txt and "
            f"{split}/high/N.txt"
        )
    for level, folder in folders.items():
        files = sorted(folder.glob("*.txt"), key=lambda file: (len(file.stem), file.stem))
        if not files and folder.is_dir():
            raise DataError(f"{folder} holds no passage; expected N.txt files")
        for file in files:
            yield from _passage(file, level, bad)


def _passage(path: Path, level: str, bad: BadRows) -> Iterator[ChoiceExample]:
    try:
        data = read_json(path)
        article, questions, options = data["article"], data["questions"], data["options"]
        answers = data.get("answers") or [None] * len(questions)
        if not isinstance(article, str):
            raise BadRowError("the article is no text")
        if not len(questions) == len(options) == len(answers):
            raise BadRowError(
                f"{len(questions)} questions, {len(options)} lists of options, {len(answers)} "
                "answers"
            )
    except (DataError, KeyError, TypeError, AttributeError) as error:
        reason = f"no passage of RACE ({shorten(error)})"
        if isinstance(error, DataError):
            reason = str(error).removeprefix(f"{path}: ")
        bad.add(Location(str(path), 1), reason)
        return
    for number, (question, choices, answer) in enumerate(
        zip(questions, options, answers, strict=True)
    ):
        location = Location(str(path), number + 1, "question")
        try:
            label = _label(question, choices, answer)
        except BadRowError as error:
            bad.add(
                location, str(error), {"question": question, "options": choices, "answer": answer}
            )
            continue
        yield ChoiceExample(
            key=f"{level}{path.stem}-{number}",
            context=article,
            question=question,
            options=tuple(choices),
            label=label,
            slice=level,
            where=f"{level}/{location}",
        )


def _label(question: Any, choices: Any, answer: Any) -> int | None:
    if (
        not isinstance(question, str)
        or not isinstance(choices, list)
        or not all(isinstance(text, str) for text in choices)
    ):
        raise BadRowError("the question or an option is no text")
    if len(choices) < 2:
        raise BadRowError(f"there are {len(choices)} options, expected two or more")
    if answer is None:
        return None
    letters = ascii_uppercase[: len(choices)]
    if not isinstance(answer, str) or len(answer) != 1 or answer not in letters:
        raise BadRowError(f"the answer is {shorten(answer)}, expected one of {', '.join(letters)}")
    return letters.index(answer)


def _group(example: TaskExample) -> tuple[str, ...]:
    assert isinstance(example, ChoiceExample)
    return (example.context,)


RACE = {
    "race": Benchmark(
        task=Task(name="race", kind="choose", scores=("accuracy",), head="choose"),
        folders=("RACE", "race"),
        splits={split: (split,) for split in ("train", "dev", "test")},
        read=_read_race,
        group=_group,
        cut_by="passage",
    )
}
