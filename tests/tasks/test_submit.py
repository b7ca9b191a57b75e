"""What is handed in: GLUE's file names, header, spelling and row order; SQuAD's answers by id."""

import json
from pathlib import Path

import pytest

from litebert.errors import DataError
from litebert.tasks.benchmarks.glue import GLUE
from litebert.tasks.benchmarks.submit import GLUE_FILES, write_submission
from litebert.tasks.examples import AnswerExample, TaskExample, TextExample
from litebert.tasks.predictions import (
    LabelPrediction,
    NumberPrediction,
    Prediction,
    Span,
    SpanPrediction,
)
from litebert.tasks.registry import BENCHMARKS, open_task
from litebert.testing import tiny_task

OFFICIAL = "AX CoLA MNLI-m MNLI-mm MRPC QNLI QQP RTE SST-2 STS-B WNLI"


def label(name: str) -> LabelPrediction:
    return LabelPrediction(label=name, probabilities={name: 1.0})


def span(text: str, null_score: float, threshold: float | None) -> SpanPrediction:
    actual = Span(text=text, start=0, end=len(text), score=0.0)
    return SpanPrediction(spans=(actual,), null_score=null_score, null_threshold=threshold)


@pytest.mark.parametrize("name", GLUE)
def test_the_test_split_is_handed_in_row_by_row(tmp_path: Path, name: str) -> None:
    data = open_task(name, tiny_task(tmp_path / "data", name))
    examples = data.splits["test"]
    one: Prediction = NumberPrediction(value=2.5) if name == "stsb" else label(data.task.labels[-1])
    written = write_submission(data.task, "test", examples, [one] * len(examples), tmp_path / "out")
    (file,) = written.files
    value = "2.500" if name == "stsb" else data.task.labels[-1]
    assert file.read_text() == "index\tprediction\n" + "".join(
        f"{number}\t{value}\n" for number in range(len(examples))
    )
    assert "rows, GLUE's server expects" in written.notes[0]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [file.name]


def test_all_files_of_a_submission_have_their_names() -> None:
    assert sorted(name.removesuffix(".tsv") for name, _ in GLUE_FILES.values()) == OFFICIAL.split()
    assert {name for name, _ in GLUE_FILES} == set(GLUE)


def test_a_full_file_has_nothing_to_note(tmp_path: Path) -> None:
    examples = [TextExample(key=str(number), first="a", second="b") for number in range(146)]
    assert (
        write_submission(GLUE["wnli"].task, "test", examples, [label("1")] * 146, tmp_path).notes
        == ()
    )


def test_keys_are_the_files_own_and_similarities_stay_in_range(tmp_path: Path) -> None:
    examples = [TextExample(key=key, first="a", second="b") for key in ("7", "3", "5")]
    values = [NumberPrediction(value=value) for value in (-0.2, 5.3, 1.23456)]
    (file,) = write_submission(GLUE["stsb"].task, "test", examples, values, tmp_path).files
    assert file.read_text() == "index\tprediction\n7\t0.000\n3\t5.000\n5\t1.235\n"


def test_mismatched_mnli_has_a_file_of_its_own(tmp_path: Path) -> None:
    example = TextExample(key="0", first="a", second="b")
    for split, name in (("test", "MNLI-m.tsv"), ("test_mismatched", "MNLI-mm.tsv")):
        (file,) = write_submission(
            GLUE["mnli"].task, split, [example], [label("neutral")], tmp_path
        ).files
        assert (file.name, file.read_text()) == (name, "index\tprediction\n0\tneutral\n")


def test_squad_is_answers_by_id_and_how_likely_there_is_none(tmp_path: Path) -> None:
    examples = [AnswerExample(key=key, question="?", context="été") for key in ("a", "b", "c")]
    predictions = [span("été", -9.0, -1.0), span("été", 2.0, -1.0), span("été", -1.0, -1.0)]
    answers, nulls = write_submission(
        BENCHMARKS["squad2"].task, "dev", examples, predictions, tmp_path
    ).files
    assert answers.name == "squad2-dev.json"
    assert json.loads(answers.read_text(encoding="utf-8")) == {"a": "été", "b": "", "c": "été"}
    chances = json.loads(nulls.read_text())
    assert chances["a"] < chances["c"] == 0.5 < chances["b"]
    assert chances["b"] == pytest.approx(1 / (1 + 2.718281828459045**-3))


def test_squad_1_always_answers(tmp_path: Path) -> None:
    example = AnswerExample(key="a", question="?", context="x")
    (file,) = write_submission(
        BENCHMARKS["squad1"].task, "dev", [example], [span("x", 1e9, None)], tmp_path
    ).files
    assert json.loads(file.read_text()) == {"a": "x"}


def test_what_cannot_be_handed_in(tmp_path: Path) -> None:
    examples: list[TaskExample] = [TextExample(key="0", first="a")]
    with pytest.raises(
        DataError, match="there are 1 examples of test and 0 predictions; each needs one"
    ):
        write_submission(GLUE["cola"].task, "test", examples, [], tmp_path)
    with pytest.raises(
        DataError, match="no submission is defined for dev of cola, only for: cola test, "
    ):
        write_submission(GLUE["cola"].task, "dev", examples, [label("1")], tmp_path)
