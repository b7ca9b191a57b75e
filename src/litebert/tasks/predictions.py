"""What a model says of an example: one class for each kind of task. Ensembles average these, scores
hold them to the truth."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelPrediction:
    """Of classify and pair."""

    label: str
    """The likeliest."""
    probabilities: dict[str, float]
    """Of every label; they add up to 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberPrediction:
    """Of regress."""

    value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ChoicePrediction:
    """Of choose."""

    index: int
    """The likeliest option, from 0."""
    probabilities: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A candidate for an answer."""

    text: str
    start: int
    """First character in the context."""
    end: int
    """Character after the last."""
    score: float
    """Sum of the log-probabilities of its start and its end; higher is likelier."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanPrediction:
    """Of answer: the best spans, and how much speaks for there being none."""

    spans: tuple[Span, ...]
    """The best candidates, the best first; at least one unless the context is empty."""
    null_score: float
    """Higher where an answer is less likely: the joint head's answerability logit, or the plain
    head's null span minus its best span. No answer is given where it exceeds the threshold."""
    null_threshold: float | None = None
    """Chosen on dev, kept with the checkpoint; None where every question has an answer (SQuAD
    1)."""

    @property
    def best(self) -> Span | None:
        """The answer; None for no answer."""
        if self.null_threshold is not None and self.null_score > self.null_threshold:
            return None
        return self.spans[0] if self.spans else None


@dataclass(frozen=True, kw_only=True, slots=True)
class TagPrediction:
    """Of tag: one for each word."""

    tags: tuple[str, ...]
    probabilities: tuple[float, ...]
    """Of each chosen tag."""


Prediction = LabelPrediction | NumberPrediction | ChoicePrediction | SpanPrediction | TagPrediction
