"""The truth, said as a prediction, is worth 100 in every score of every task, read from its own
files."""

from pathlib import Path

import pytest

from litebert.tasks.examples import (
    AnswerExample,
    ChoiceExample,
    TagExample,
    TaskExample,
    TextExample,
)
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    NumberPrediction,
    Prediction,
    Span,
    SpanPrediction,
    TagPrediction,
    load_predictions,
    save_predictions,
)
from litebert.tasks.registry import BENCHMARKS, OWN, open_task
from litebert.tasks.scores.answers import at_threshold, best_threshold
from litebert.tasks.scores.score import score
from litebert.testing import tiny_task


def perfect(example: TaskExample) -> Prediction:
    """What is true. Of questions without an answer something is said too: the null threshold has to
    leave it out."""
    if isinstance(example, TextExample):
        if isinstance(example.label, float):
            return NumberPrediction(value=example.label)
        return LabelPrediction(label=str(example.label), probabilities={})
    if isinstance(example, ChoiceExample):
        assert example.label is not None
        return ChoicePrediction(index=example.label, probabilities=())
    if isinstance(example, AnswerExample):
        text = example.answers[0].text if example.answers else "something"
        span = Span(text=text, start=0, end=len(text), score=0.0)
        return SpanPrediction(spans=(span,), null_score=len(text) / 1000 - bool(example.answers))
    assert isinstance(example, TagExample)
    assert example.tags is not None
    return TagPrediction(tags=example.tags, probabilities=(1.0,) * len(example.tags))


@pytest.mark.parametrize("name", [name for name in (*BENCHMARKS, *OWN) if name != "diagnostic"])
def test_perfect_predictions_score_100(name: str, tmp_path: Path) -> None:
    """The diagnostic set has no labels."""
    read = open_task(name, tiny_task(tmp_path, name), splits=("dev",))
    examples = read.splits["dev"]
    predictions: list[Prediction] = [perfect(example) for example in examples]
    if read.task.has_null:
        questions = [example for example in examples if isinstance(example, AnswerExample)]
        spans = [prediction for prediction in predictions if isinstance(prediction, SpanPrediction)]
        predictions = list(at_threshold(spans, best_threshold(questions, spans)))
    actual = score(read.task, examples, predictions)
    assert actual == pytest.approx(
        dict.fromkeys(actual, 1.0)
        | ({"mean_squared_error": 0.0} if "mean_squared_error" in actual else {})
    )
    save_predictions(tmp_path / "kept.jsonl", read.task, examples, predictions)
    assert score(*load_predictions(tmp_path / "kept.jsonl")) == actual
