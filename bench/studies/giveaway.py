"""How far one gets at the order of two segments without reading them. Prints one JSON object.

    python -m bench.studies.giveaway --data DIR [DIR …]  # folders written by `litebert data build`

The features are the segments' lengths, the place of [SEP] and whether each segment begins and ends
at a sentence boundary. Classifiers are fitted on two thirds of the documents, over several epochs,
and scored on the others: chance is
0.5, and `deviation` is what chance alone makes of a score. As controls, cutting only the end of the
last sentence, seen with all features and by lengths alone.
"""

import argparse
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bench.common.results import add_out, begin, publish
from litebert.data.giveaway import expand, features, fit
from litebert.data.plan import is_heldout
from litebert.data.spec import ExampleSpec
from litebert.data.stream import Stream

LENGTHS = [0, 1, 2]
"""Columns of the features without the sentence boundaries."""


def score(inputs: np.ndarray, labels: np.ndarray, unseen: np.ndarray) -> dict[str, float]:
    """Held-out accuracy of three classifiers; sum and difference of the lengths help the trees."""
    a, b = inputs[:, 0], inputs[:, 1]
    wide = np.column_stack([inputs, a - b, a + b])
    boosted = HistGradientBoostingClassifier(
        max_iter=100, learning_rate=0.05, min_samples_leaf=200, early_stopping=False, random_state=0
    )
    scores = {}
    for name, model in (
        ("logistic_regression", make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))),
        ("gradient_boosting", boosted),
    ):
        model.fit(wide[~unseen], labels[~unseen])
        scores[name] = float(model.score(wide[unseen], labels[unseen]))
    weights = fit(inputs[~unseen], labels[~unseen])
    scores["numpy_regression"] = float(
        np.mean((expand(inputs[unseen]) @ weights > 0) == labels[unseen])
    )
    return scores


def measure(folder: str, max_length: int, cutting: Any, epochs: int, limit: int) -> dict[str, Any]:
    stream = Stream.open(folder, ExampleSpec(max_length=max_length, cutting=cutting), split="all")
    parts = [features(stream, epoch=epoch, limit=limit) for epoch in range(epochs)]
    inputs, labels, documents = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    unseen = is_heldout(documents, 1 / 3)
    figures: dict[str, Any] = {
        "examples": len(labels),
        "swapped": float(labels.mean()),
        "full": float(np.mean(inputs[:, 0] + inputs[:, 1] > 1 - 1e-9)),
        "filled": float(np.mean(inputs[:, 0] + inputs[:, 1])),
        "deviation": float(0.5 / np.sqrt(unseen.sum())),
        "all_features": score(inputs, labels, unseen),
    }
    if cutting == "last":
        figures["lengths_alone"] = score(inputs[:, LENGTHS], labels, unseen)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, nargs="+")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument(
        "--limit", type=int, default=100_000, help="examples of each epoch, at most"
    )
    add_out(parser)
    arguments = parser.parse_args()
    begin(arguments.out)
    report = {
        folder: {
            cutting: {
                str(max_length): measure(
                    folder, max_length, cutting, arguments.epochs, arguments.limit
                )
                for max_length in (128, 512)
            }
            for cutting in ("even", "last")
        }
        for folder in arguments.data
    }
    publish({"epochs": arguments.epochs, "limit": arguments.limit, "data": report}, arguments.out)


if __name__ == "__main__":
    main()
