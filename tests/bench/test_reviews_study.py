"""Reviews by length and label: a worked example, and which rows are read."""

from pathlib import Path

import pytest

from bench.studies.reviews import figures, read
from litebert.tasks.examples import TextExample
from litebert.tasks.predictions import LabelPrediction, Prediction


def one(words: int, label: str, predicted: str) -> tuple[TextExample, Prediction]:
    other = "positive" if predicted == "negative" else "negative"
    prediction = LabelPrediction(label=predicted, probabilities={predicted: 0.95, other: 0.05})
    return TextExample(key="1", first=" ".join(["good"] * words), label=label), prediction


def test_long_reviews_and_both_labels_are_counted_apart() -> None:
    rows = [
        one(2, "positive", "positive"),
        one(2, "negative", "negative"),
        one(9, "negative", "positive"),
        one(9, "positive", "positive"),
    ]
    examples, predictions = ([row[side] for row in rows] for side in (0, 1))
    result = figures(examples, predictions, words=5)  # type: ignore[arg-type]
    assert (result["accuracy"], result["majority"]) == (0.75, 0.5)
    assert result["by_length"] == {
        "up to 5 words": {"reviews": 2, "accuracy": 1.0},
        "over 5 words": {"reviews": 2, "accuracy": 0.5},
    }
    assert result["error_by_label"] == {"negative": 0.5, "positive": 0.0}
    assert result["calibration"]["error"] == pytest.approx(0.2)


def test_only_imdb_is_read_and_markup_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "reviews.csv"
    path.write_text("text,label,source\nfine<br />film,1,imdb\ndull,0,rt\n")
    (review,) = read(path, 10)
    assert (review.first, review.label) == ("fine film", "positive")
