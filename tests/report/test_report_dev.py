"""The report of a fine-tuning run: scores, slices and worst examples of every kind, hostile ones
too; seeds side by side."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from litebert.errors import DataError
from litebert.report import write_report
from litebert.report.page import LIMIT
from litebert.report.run import PREDICTIONS, RESULT
from litebert.tasks.examples import (
    Answer,
    AnswerExample,
    ChoiceExample,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.tasks.predictions import Prediction, Span, SpanPrediction, save_predictions
from litebert.tasks.scores.evaluation import evaluate
from litebert.tasks.scores.score import score
from litebert.tasks.task import Task
from tests.helpers.predictions import TASKS, made, made_models
from tests.helpers.run_folders import finetuning, make_run
from tests.report.test_report import Reader

EVIL = "</script><img src=x onerror=alert(1)>\"'&\x00\u202e"


def tuned_run(
    folder: Path, task: Task, examples: list[TaskExample], predictions: list[Prediction]
) -> Path:
    """A finished fine-tuning run."""
    make_run(folder, finetuning(100), recipe={"task": task.name, "rate": 2e-5})
    save_predictions(folder / PREDICTIONS, task, examples, predictions)
    (folder / RESULT).write_text(
        json.dumps({"chance": 0.123, "null_threshold": 1.25 if task.has_null else None})
    )
    return folder


def page_of(*folders: Path, out: Path | None = None) -> str:
    return write_report(folders, out).path.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", sorted(TASKS))
def test_a_report_says_what_the_evaluation_says(kind: str, tmp_path: Path) -> None:
    task, examples, predictions = made(kind)
    words = Reader(page_of(tuned_run(tmp_path / "run", task, examples, predictions))).words
    evaluation = evaluate(task, examples, predictions, count=12)
    assert "Scores on dev" in words
    assert "40 examples of dev" in words
    assert ("exceeds 1.25" in words) == task.has_null
    for name, value in evaluation.scores.items():
        assert name.replace("_", " ") in words
        assert (f"{value:.3f}" if name == "mean_squared_error" else f"{100 * value:.1f}") in words
    assert "12.3" in words, "the majority baseline"
    for part in evaluation.slices["slice"]:
        assert part.name in words
    for each in evaluation.worst:
        assert each.true in words
        assert each.predicted in words


def test_confusion_of_labels(tmp_path: Path) -> None:
    task, examples, predictions = made("classify", 50)
    page = page_of(tuned_run(tmp_path / "run", task, examples, predictions))
    table = page.split("Confusion of labels")[1].split("</table>")[0]
    counted = [int(cell) for cell in re.findall(r"<td[^>]*>(\d+)</td>", table)]
    labels = [str(example.label) for example in examples if isinstance(example, TextExample)]
    assert sum(counted[:2]) == counted[2] == labels.count("no")
    assert sum(counted[3:5]) == counted[5] == labels.count("yes")


def test_hostile_texts_are_only_text(tmp_path: Path) -> None:
    for number, kind in enumerate(sorted(TASKS)):
        task, examples, predictions = made(kind, 6, skill=0)
        examples = [_evil(example) for example in examples]
        folder = tuned_run(tmp_path / str(number), task, examples, predictions)
        page = page_of(folder)
        read = Reader(page)
        assert "img" not in read.tags
        assert not read.handlers
        assert "\x00" not in page
        assert "\u202e" not in page


def _evil(example: TaskExample) -> TaskExample:
    if isinstance(example, TextExample):
        return replace(example, first=EVIL, second=EVIL, slice=EVIL + example.slice, where=EVIL)
    if isinstance(example, ChoiceExample):
        return replace(example, context=EVIL, question=EVIL, options=(EVIL,) * 4, where=EVIL)
    if isinstance(example, AnswerExample):
        answers = tuple(Answer(text=EVIL, start=-5) for _ in example.answers or ())
        return replace(example, context=EVIL, question=EVIL, answers=answers)
    assert isinstance(example, TagExample)
    return replace(example, words=(EVIL,) * 6)


def test_an_answer_is_shown_where_it_stands(tmp_path: Path) -> None:
    """Truth and guess are marked in the context, however far apart."""
    context = "Rome " + "x " * 500 + "Oslo " + "y " * 500
    example = AnswerExample(
        key="1", question="Where?", context=context, answers=(Answer(text="Oslo", start=1005),)
    )
    prediction = SpanPrediction(
        spans=(Span(text="Rome", start=0, end=4, score=0.0),), null_score=0.0
    )
    page = page_of(tuned_run(tmp_path / "run", TASKS["answer"], [example], [prediction]))
    assert '<p><span class="slot wrong">Rome</span> x x' in page
    assert 'x x <span class="slot right">Oslo</span> y y' in page
    assert len(page.split("<b>Where?</b>")[1].split("</article>")[0]) < 1200


def test_perfect_predictions_have_no_worst(tmp_path: Path) -> None:
    page = page_of(tuned_run(tmp_path / "run", *made("tag", skill=1)))
    assert "Every prediction is right" in page


def test_seeds_are_put_side_by_side(tmp_path: Path) -> None:
    """The folder of several seeds is the comparison of its runs, and stands there."""
    task, examples, models = made_models("classify", [0.6, 0.7, 0.8])
    for number, predictions in enumerate(models):
        tuned_run(tmp_path / "out" / f"seed-{number}", task, examples, predictions)
    written = write_report([tmp_path / "out"])
    assert written.path == tmp_path / "out" / "report.html"
    page = written.path.read_text(encoding="utf-8")
    compared = Reader(page.split('<section id="compare">')[1].split("</section>")[0]).words
    scores = [evaluate(task, examples, predictions).scores["accuracy"] for predictions in models]
    for value in (*scores, sorted(scores)[1]):
        assert f"{100 * value:.1f}" in compared
    assert "standard deviation" in compared
    assert written.num_bytes < LIMIT


def test_own_tasks_with_other_scores_are_not_compared(tmp_path: Path) -> None:
    kinds = ("classify", "several labels")
    runs = [tuned_run(tmp_path / kind, *made(kind)) for kind in kinds]
    page = page_of(*runs, out=tmp_path / "both.html")
    assert "accuracy" in page
    assert "Scores on dev of each run's final checkpoint" not in page


def test_the_best_score_is_marked_only_beyond_its_interval(tmp_path: Path) -> None:
    """Of 200 examples, six more or fewer are noise."""
    task, examples, wrong = made("choose", 200, skill=0.0)
    _, _, right = made("choose", 200, skill=0.9)
    poor = tuned_run(tmp_path / "poor", task, examples, wrong)
    good = tuned_run(tmp_path / "good", task, examples, right)
    near = tuned_run(tmp_path / "near", task, examples, [*wrong[:6], *right[6:]])
    best, other = (
        score(task, examples, each)["accuracy"] for each in (right, [*wrong[:6], *right[6:]])
    )
    assert best > other
    page = page_of(poor, good, out=tmp_path / "apart.html")
    comparison = page.split('id="compare"')[1].split("<article")[0]
    assert re.findall(r'class="best">([^<]*)', comparison) == [f"{100 * best:.1f}"]
    assert "Bold: best beyond noise" in comparison
    page = page_of(near, good, out=tmp_path / "alike.html")
    comparison = page.split('id="compare"')[1].split("<article")[0]
    assert 'class="best"' not in comparison
    assert "None is best beyond noise" in comparison


def test_a_damaged_file_of_predictions_is_said(tmp_path: Path) -> None:
    folder = tuned_run(tmp_path / "run", *made("choose"))
    save_predictions(
        folder / PREDICTIONS,
        *made("choose", 5)[:2],
        [replace(each, index=9) for each in made("choose", 5)[2]],
    )
    with pytest.raises(DataError, match=r"dev_predictions\.jsonl cannot be scored: IndexError"):
        write_report([folder])
    save_predictions(folder / PREDICTIONS, *made("choose", 5))
    (folder / RESULT).write_text("{")
    with pytest.raises(DataError, match=r"result\.json is not JSON"):
        write_report([folder])
    lines = (folder / PREDICTIONS).read_text().splitlines()
    (folder / PREDICTIONS).write_text(lines[0] + "\n")
    with pytest.raises(DataError, match=r"dev_predictions\.jsonl has no examples"):
        write_report([folder])
    (folder / PREDICTIONS).write_text("\n".join([*lines[:3], "{"]))
    with pytest.raises(DataError, match=r"dev_predictions\.jsonl:4 is no line"):
        write_report([folder])
