"""Predictions as files for the benchmarks' servers: GLUE's TSV and SQuAD's JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from litebert.errors import DataError
from litebert.files import write_file
from litebert.tasks.examples import TaskExample
from litebert.tasks.predictions import LabelPrediction, NumberPrediction, Prediction, SpanPrediction
from litebert.tasks.task import Task

GLUE_FILES: Mapping[tuple[str, str], tuple[str, int]] = {
    ("cola", "test"): ("CoLA.tsv", 1_063),
    ("sst2", "test"): ("SST-2.tsv", 1_821),
    ("mrpc", "test"): ("MRPC.tsv", 1_725),
    ("stsb", "test"): ("STS-B.tsv", 1_379),
    ("qqp", "test"): ("QQP.tsv", 390_965),
    ("mnli", "test"): ("MNLI-m.tsv", 9_796),
    ("mnli", "test_mismatched"): ("MNLI-mm.tsv", 9_847),
    ("qnli", "test"): ("QNLI.tsv", 5_463),
    ("rte", "test"): ("RTE.tsv", 3_000),
    ("wnli", "test"): ("WNLI.tsv", 146),
    ("diagnostic", "test"): ("AX.tsv", 1_104),
}
"""By task and split: the name of its file in a submission to GLUE, and how many rows the server
expects there."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """The files that were written."""

    files: tuple[Path, ...]
    notes: tuple[str, ...] = ()
    """Why the server may refuse them."""


def write_submission(
    task: Task,
    split: str,
    examples: Sequence[TaskExample],
    predictions: Sequence[Prediction],
    folder: Path | str,
) -> Submission:
    """Write the files of one split of GLUE or SQuAD into `folder`."""
    if len(examples) != len(predictions):
        raise DataError(
            f"there are {len(examples):,} examples of {split} and {len(predictions):,} "
            "predictions; each needs one"
        )
    pairs = list(zip(examples, predictions, strict=True))
    notes: tuple[str, ...] = ()
    if task.kind == "answer":
        texts = _squad_files(task, split, pairs)
    elif (task.name, split) in GLUE_FILES:
        name, rows = GLUE_FILES[task.name, split]
        lines = [f"{example.key}\t{_glue_value(prediction)}" for example, prediction in pairs]
        texts = {name: "\n".join(["index\tprediction", *lines]) + "\n"}
        if len(lines) != rows:
            notes = (f"{name} has {len(lines):,} rows, GLUE's server expects {rows:,}",)
    else:
        known = ", ".join(f"{name} {of}" for name, of in GLUE_FILES)
        raise DataError(
            f"no submission is defined for {split} of {task.name}, only for: {known}, and for SQuAD"
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = tuple(write_file(folder / name, text) for name, text in texts.items())
    return Submission(files=files, notes=notes)


def _glue_value(prediction: Prediction) -> str:
    """A label as GLUE's files spell it; a similarity inside its range of 0 to 5, to three
    digits."""
    if isinstance(prediction, LabelPrediction):
        return prediction.label
    assert isinstance(prediction, NumberPrediction)
    return f"{min(max(prediction.value, 0.0), 5.0):.3f}"


def _squad_files(
    task: Task, split: str, pairs: Sequence[tuple[TaskExample, Prediction]]
) -> dict[str, str]:
    """The answer by id, "" where there is none; for SQuAD 2 also how likely that is, as its
    evaluation reads it."""
    answers: dict[str, str] = {}
    nulls: dict[str, float] = {}
    for example, prediction in pairs:
        assert isinstance(prediction, SpanPrediction)
        answers[example.key] = prediction.best.text if prediction.best else ""
        # the score over its threshold, between 0 and 1: above a half there is no answer
        nulls[example.key] = 0.5 + 0.5 * math.tanh(
            (prediction.null_score - (prediction.null_threshold or 0.0)) / 2
        )
    texts = {f"{task.name}-{split}.json": json.dumps(answers, ensure_ascii=False) + "\n"}
    if task.has_null:
        texts[f"{task.name}-{split}-no-answer.json"] = json.dumps(nulls) + "\n"
    return texts
