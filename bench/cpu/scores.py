"""Scores on real files: the truth said as a prediction, the majority, a bag of words; ours beside
the peers'. Prints JSON.

    python -m bench.cpu.scores --glue glue --squad1 squad/dev-v1.1.json \\
        --squad1-train squad/shifts/new_wiki_v1.0.json --squad2 squad/dev-v2.0.json \\
        --race RACE [--out FILE]

Of each task: scores of the truth (100 everywhere, or the run fails), of both baselines with their
95 % intervals, and the largest difference of any score of the bag of words from scikit-learn
(labels), scipy (numbers) and torchmetrics (SQuAD 1), in points of 100. Where a task has dev only,
it is cut by title or pair: 80 % for the baselines to learn from, 20 % to score.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import scipy.stats
import sklearn.metrics
from torchmetrics.functional.text import squad

from bench.common.results import add_out, begin, publish
from litebert.tasks.examples import (
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
    Prediction,
    Span,
    SpanPrediction,
    TagPrediction,
)
from litebert.tasks.registry import open_task
from litebert.tasks.scores.answers import at_threshold, best_threshold
from litebert.tasks.scores.baselines import bag_of_words, majority
from litebert.tasks.scores.score import bootstrap, score
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.task import Task

WHOLE, DEV_ONLY = (
    ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"),
    TableOptions(split_dev=0.2),
)


def truth(example: TaskExample) -> Prediction:
    """What is true; of questions without an answer something is said too, for the null threshold to
    leave out."""
    if isinstance(example, ChoiceExample):
        assert example.label is not None
        return ChoicePrediction(index=example.label, probabilities=())
    if isinstance(example, AnswerExample):
        text = example.answers[0].text if example.answers else "something"
        span = Span(text=text, start=0, end=len(text), score=0.0)
        return SpanPrediction(spans=(span,), null_score=0.0 if example.answers else 1.0)
    if isinstance(example, TagExample):
        assert example.tags is not None
        return TagPrediction(tags=example.tags, probabilities=(1.0,) * len(example.tags))
    if isinstance(example.label, float):
        return NumberPrediction(value=example.label)
    return LabelPrediction(label=str(example.label), probabilities={})


def perfect(task: Task, dev: Sequence[TaskExample]) -> dict[str, float]:
    predictions = [truth(example) for example in dev]
    if task.has_null:
        spans = only(predictions, SpanPrediction)
        predictions = list(at_threshold(spans, best_threshold(only(dev, AnswerExample), spans)))
    scores = score(task, dev, predictions)
    assert all(abs(value - 1) < 1e-12 for value in scores.values()), (
        f"the truth of {task.name} scores {scores}"
    )
    return scores


def peers(
    task: Task, dev: Sequence[TaskExample], predictions: Sequence[Prediction]
) -> dict[str, float] | None:
    """The same scores by others; none where no peer has them."""
    if task.kind in ("classify", "pair"):
        true = [str(example.label) for example in only(dev, TextExample)]
        guess = [prediction.label for prediction in only(predictions, LabelPrediction)]
        scores = {
            "accuracy": sklearn.metrics.accuracy_score(true, guess),
            "matthews": sklearn.metrics.matthews_corrcoef(true, guess),
            "macro_f1": sklearn.metrics.f1_score(true, guess, average="macro"),
        }
        if len(task.labels) == 2:
            scores["f1"] = sklearn.metrics.f1_score(true, guess, pos_label=task.labels[1])
        return scores
    if task.kind == "regress":
        numbers = [float(example.label or 0) for example in only(dev, TextExample)]
        values = [prediction.value for prediction in only(predictions, NumberPrediction)]
        return {
            "pearson": scipy.stats.pearsonr(numbers, values)[0],
            "spearman": scipy.stats.spearmanr(numbers, values)[0],
        }
    if task.name == "squad1":
        questions, answers = only(dev, AnswerExample), only(predictions, SpanPrediction)
        guesses = [
            {"id": example.key, "prediction_text": prediction.best.text if prediction.best else ""}
            for example, prediction in zip(questions, answers, strict=True)
        ]
        targets = [
            {
                "id": each.key,
                "answers": {
                    "answer_start": [0] * len(each.answers or ()),
                    "text": [a.text for a in each.answers or ()],
                },
            }
            for each in questions
        ]
        measured = squad(guesses, targets)
        return {"exact": float(measured["exact_match"]) / 100, "f1": float(measured["f1"]) / 100}
    return None


def row(
    task: Task, train: Sequence[TaskExample], dev: Sequence[TaskExample], notes: Sequence[str]
) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "train": len(train),
        "dev": len(dev),
        "notes": list(notes),
        "truth": perfect(task, dev),
    }
    for name, baseline in (("majority", majority), ("bag_of_words", bag_of_words)):
        began = time.perf_counter()
        predictions = baseline(task, train, dev)
        seconds = time.perf_counter() - began
        ours = score(task, dev, predictions)
        figures[name] = {
            "scores": ours,
            "intervals": bootstrap(task, dev, predictions),
            "seconds": round(seconds, 1),
        }
    theirs = peers(task, dev, predictions)
    if theirs is not None:
        figures["points_from_peers"] = max(
            100 * abs(ours[name] - theirs[name]) for name in ours if name in theirs
        )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("glue", "squad1", "squad1-train", "squad2", "race"):
        parser.add_argument(f"--{name}")
    add_out(parser)
    flags = parser.parse_args()
    begin(flags.out)
    places = dict.fromkeys(WHOLE, flags.glue) | {
        "squad1": flags.squad1,
        "squad2": flags.squad2,
        "race": flags.race,
    }
    rows = {}
    for name, place in places.items():
        if place is None or (name == "qqp" and not list(Path(place).glob("QQP*"))):
            continue
        options = DEV_ONLY if name in ("mnli", "qnli", "squad2") else None
        splits = ("dev",) if name == "squad1" else ("train", "dev")
        read = open_task(name, place, options=options, splits=splits)
        train = (
            open_task(name, flags.squad1_train, splits=("train",))
            if name == "squad1" and flags.squad1_train
            else read
        )
        learned = train.splits.get("train", read.splits["dev"])
        rows[name] = row(read.task, learned, read.splits["dev"], read.notes)
        print(name, "done", file=sys.stderr, flush=True)
    publish(rows, flags.out)


if __name__ == "__main__":
    main()
