"""The Predictor: a loaded model and its verbs. Texts in, predictions out. No torch: the engine
computes.

Every verb takes one input, a list or an iterator, and returns the same form in the same order; an
iterator is read one window ahead of its results. An input longer than the model reads is cut at its
end, of a pair the longer text first; answer and tag read long texts in overlapping windows instead.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args, overload

import numpy as np
from jaxtyping import Float

from litebert.errors import CheckpointError, ConfigError
from litebert.infer.streaming import is_text, is_texts, map_windows, to_form, to_rows
from litebert.infer.verbs import (
    Guess,
    Pooling,
    Precision,
    Verb,
    answer_example,
    check_text,
    check_verb,
    choice_example,
    num_characters,
    supported_verbs,
    tag_example,
    task_cards,
    text_example,
)
from litebert.tasks.examples import Kind, TaskExample
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    MultiLabelPrediction,
    Prediction,
    Span,
    TagPrediction,
)
from litebert.tasks.task import TaskCard

if TYPE_CHECKING:
    from litebert.infer.engine import TorchEngine
    from litebert.model.model import Model

Texts = list[str] | tuple[str, ...]
Words = list[str] | list[list[str]] | list[tuple[str, ...]] | tuple[str | Sequence[str], ...]
Vector = Float[np.ndarray, " hidden"]
Vectors = Float[np.ndarray, "texts hidden"]
Labelled = LabelPrediction | MultiLabelPrediction
"""Of one text or pair, by the model's head."""
Guesses = list[list[Guess]]
"""Of one text: for each [MASK], in order, its best tokens, the likeliest first."""


class Predictor:
    """A model with its tokenizer, ready to predict. `litebert.load` makes one from a folder."""

    def __init__(
        self,
        engine: "TorchEngine",
        *,
        task: Mapping[str, Any] | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        """`task` is the task.json of a fine-tuned checkpoint."""
        self.engine = engine
        self.tokenizer = engine.tokenizer
        try:
            self.card = None if task is None else TaskCard.from_dict(dict(task))
            """What the model was fine-tuned for; None where that is not known."""
            self.cards = task_cards(engine.config, self.card)
            """For each task verb that the model supports, how texts become its inputs."""
        except ConfigError as error:
            raise CheckpointError(
                f"the task.json beside the model cannot be used: {error}"
            ) from error
        self.notes = notes
        """What a user should know about how the model was loaded."""

    @property
    def model(self) -> "Model":
        """The torch module."""
        return self.engine.model

    @property
    def verbs(self) -> tuple[Verb, ...]:
        """What this model can do."""
        return supported_verbs(self.engine.config, self.cards)

    @cached_property
    def fingerprint(self) -> str:
        """A sha256 of everything that predictions depend on: weights, config, vocabulary, task."""
        card = None if self.card is None else self.card.to_dict()
        facts = [self.engine.config.to_dict(), card, self.tokenizer.fingerprint]
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        self.engine.hash_weights(digest)
        return digest.hexdigest()

    @overload
    def fill(self, texts: str, *, top: int = 5) -> Guesses: ...
    @overload
    def fill(self, texts: Texts, *, top: int = 5) -> list[Guesses]: ...
    @overload
    def fill(self, texts: Iterator[str], *, top: int = 5) -> Iterator[Guesses]: ...
    def fill(self, texts: Any, *, top: int = 5) -> Any:
        """For each text a list with one entry per [MASK]: the `top` likeliest tokens with their
        probabilities. A mask beyond the model's longest input is an error."""
        if top < 1:
            raise ConfigError(f"top is at least 1; got {top}")
        return self._map_texts("fill", texts, lambda window: self.engine.fill(window, top=top))

    @overload
    def embed(
        self, texts: str, *, pooling: Pooling = "mean", normalize: bool = False
    ) -> Vector: ...
    @overload
    def embed(
        self, texts: Texts, *, pooling: Pooling = "mean", normalize: bool = False
    ) -> Vectors: ...
    @overload
    def embed(
        self, texts: Iterator[str], *, pooling: Pooling = "mean", normalize: bool = False
    ) -> Iterator[Vector]: ...
    def embed(self, texts: Any, *, pooling: Pooling = "mean", normalize: bool = False) -> Any:
        """One vector per text: the mean of the last states, or the last state of [CLS]. A list
        gives an array with one row per text."""
        if pooling not in get_args(Pooling):
            raise ConfigError(f"pooling is one of {', '.join(get_args(Pooling))}; got {pooling!r}")
        vectors = self._map_texts(
            "embed",
            texts,
            lambda window: list(self.engine.embed(window, pooling=pooling, normalize=normalize)),
        )
        if not isinstance(vectors, list):
            return vectors
        empty = np.zeros((0, self.engine.config.encoder.hidden_size), np.float32)
        return np.stack(vectors) if vectors else empty

    @overload
    def classify(self, texts: str) -> Labelled: ...
    @overload
    def classify(self, texts: Texts) -> list[Labelled]: ...
    @overload
    def classify(self, texts: Iterator[str]) -> Iterator[Labelled]: ...
    def classify(self, texts: Any) -> Any:
        """The label of a text and every label's probability; of a multi-label model the labels with
        a probability of at least its threshold, 0.5 by default."""
        return self._map_examples("classify", text_example, {"texts": (texts, is_text)})

    @overload
    def pair(self, first: str, second: str) -> Labelled: ...
    @overload
    def pair(self, first: Texts, second: Texts) -> list[Labelled]: ...
    @overload
    def pair(self, first: Iterator[str], second: Iterator[str]) -> Iterator[Labelled]: ...
    def pair(self, first: Any, second: Any) -> Any:
        """The label of a pair of texts, and every label's probability."""
        return self._map_examples(
            "pair", text_example, {"first": (first, is_text), "second": (second, is_text)}
        )

    @overload
    def regress(self, first: str, second: str | None = None) -> float: ...
    @overload
    def regress(self, first: Texts, second: Texts | None = None) -> list[float]: ...
    @overload
    def regress(
        self, first: Iterator[str], second: Iterator[str] | None = None
    ) -> Iterator[float]: ...
    def regress(self, first: Any, second: Any = None) -> Any:
        """A number for a text, or for a pair of them."""
        fields = {"first": (first, is_text)} | (
            {} if second is None else {"second": (second, is_text)}
        )
        return self._map_examples(
            "regress", text_example, fields, lambda prediction: prediction.value
        )

    @overload
    def choose(self, *, context: str, question: str, options: Texts) -> ChoicePrediction: ...
    @overload
    def choose(
        self, *, context: Texts, question: Texts, options: Sequence[Texts]
    ) -> list[ChoicePrediction]: ...
    @overload
    def choose(
        self, *, context: Iterator[str], question: Iterator[str], options: Iterator[Texts]
    ) -> Iterator[ChoicePrediction]: ...
    def choose(self, *, context: Any, question: Any, options: Any) -> Any:
        """Which option is right, from 0, and every option's probability."""
        fields = {
            "context": (context, is_text),
            "question": (question, is_text),
            "options": (options, is_texts),
        }
        return self._map_examples("choose", choice_example, fields)

    @overload
    def answer(self, *, question: str, context: str) -> Span | None: ...
    @overload
    def answer(self, *, question: Texts, context: Texts) -> list[Span | None]: ...
    @overload
    def answer(
        self, *, question: Iterator[str], context: Iterator[str]
    ) -> Iterator[Span | None]: ...
    def answer(self, *, question: Any, context: Any) -> Any:
        """The span of the context that answers, with its text, characters and score; None for
        no answer."""
        fields = {"question": (question, is_text), "context": (context, is_text)}
        return self._map_examples(
            "answer", answer_example, fields, lambda prediction: prediction.best
        )

    @overload
    def tag(self, texts: str) -> TagPrediction: ...
    @overload
    def tag(self, texts: Words) -> list[TagPrediction]: ...
    @overload
    def tag(self, texts: Iterator[str] | Iterator[Sequence[str]]) -> Iterator[TagPrediction]: ...
    def tag(self, texts: Any) -> Any:
        """A tag for every word, and its probability. Each text is split at white space, or given
        as a list of words."""
        return self._map_examples("tag", tag_example, {"texts": (texts, is_text)})

    def predict(
        self, examples: Iterable[TaskExample], *, kind: Kind | None = None
    ) -> Iterator[Prediction]:
        """The complete prediction for each example, in order; an answer's other candidates too.
        `kind` is the verb of the task, by default the first that the model supports."""
        verb: Verb | None = next(iter(self.cards), None) if kind is None else kind
        if verb is None:
            raise ConfigError(
                f"this model has no head for a task; it can {' and '.join(self.verbs)}"
            )
        check_verb(verb, self.verbs, self.card)
        card = self.cards[verb]
        return map_windows(
            examples,
            num_characters,
            lambda window: self.engine.predict(card, window),
            max_items=self.engine.window_items,
        )

    def _map_texts(
        self, verb: Verb, texts: Any, predict: Callable[[list[str]], Sequence[Any]]
    ) -> Any:
        """A verb of texts alone: fill and embed."""
        check_verb(verb, self.verbs, self.card)
        form, rows = to_rows({"texts": (texts, is_text)})
        checked = (check_text(verb, text) for (text,) in rows)
        results = map_windows(checked, len, predict, max_items=self.engine.window_items)
        return to_form(form, results)

    def _map_examples(
        self,
        kind: Kind,
        to_example: Callable[..., TaskExample],
        fields: Mapping[str, tuple[Any, Callable[[Any], bool]]],
        result: Callable[[Any], Any] = lambda prediction: prediction,
    ) -> Any:
        """A verb of a task: fields to examples, and `result` of each prediction."""
        form, rows = to_rows(fields)
        predictions = self.predict((to_example(*row) for row in rows), kind=kind)
        return to_form(form, (result(prediction) for prediction in predictions))


def load(
    folder: str | os.PathLike[str] | None = None,
    *,
    device: str = "auto",
    batch_tokens: int | None = None,
    dtype: Precision = "auto",
    compile: bool = False,
    kernels: str = "on",
    unverified: bool = False,
) -> Predictor:
    """A Predictor from a litebert checkpoint, a run folder (its final or best checkpoint), a
    Hugging Face folder, Google's checkpoint or the name of an embedded model; None loads the
    default one.

    `device` is cpu, cuda, cuda:1 … or auto. `batch_tokens` is the largest batch in tokens; None
    chooses by device. `dtype` is float32, bfloat16 or auto: bfloat16 on a GPU that supports it.
    `compile` takes half a minute and pays from several thousand texts on. `kernels` may be off, or
    switch families off: "attention=off,norm=off". `unverified` loads a model whose manifest.json is
    missing or does not match its files.
    """
    from litebert.infer.engine import TorchEngine
    from litebert.loading import load_checkpoint
    from litebert.models.index import default_model

    checkpoint, notes = load_checkpoint(
        default_model().folder if folder is None else os.fspath(folder), unverified=unverified
    )
    engine = TorchEngine(
        checkpoint,
        device=device,
        batch_tokens=batch_tokens,
        dtype=dtype,
        compile=compile,
        kernels=kernels,
    )
    return Predictor(engine, task=checkpoint.task, notes=notes)
