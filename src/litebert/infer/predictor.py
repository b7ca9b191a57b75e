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
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args, overload

import numpy as np

from litebert.checks import shorten
from litebert.config import Pooling
from litebert.errors import CheckpointError, ConfigError
from litebert.infer.streaming import is_text, is_texts, map_windows, to_form, to_rows
from litebert.infer.verbs import (
    DType,
    EngineChoice,
    Guesses,
    Verb,
    answer_example,
    check_guesses,
    check_text,
    check_vectors,
    check_verb,
    choice_example,
    num_characters,
    supported_verbs,
    tag_example,
    task_cards,
    text_example,
)
from litebert.shapes import Float
from litebert.tasks.examples import Kind, TaskExample
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    MultiLabelPrediction,
    Prediction,
    Span,
    TagPrediction,
    check_numbers,
)
from litebert.tasks.task import EmbedCard, TaskCard, is_embed_card

if TYPE_CHECKING:
    from litebert.infer.engine import Engine, EngineName
    from litebert.infer.torch_engine import TorchEngine
    from litebert.model.model import Model

Texts = list[str] | tuple[str, ...]
Words = list[str] | list[list[str]] | list[tuple[str, ...]] | tuple[str | Sequence[str], ...]
Vector = Float[np.ndarray, " hidden"]
Vectors = Float[np.ndarray, "texts hidden"]
Labeled = LabelPrediction | MultiLabelPrediction
"""Of one text or pair, by the model's head."""
_GENERATOR_NOTE = (
    "the model was pretrained by replaced-token detection: its generator fills masks, its encoder "
    "does everything else"
)


class Predictor:
    """A model with its tokenizer, ready to predict. `litebert.load` makes one from a folder."""

    def __init__(
        self,
        engine: "Engine",
        *,
        task: Mapping[str, Any] | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        """`task` is the task.json of a fine-tuned checkpoint."""
        self.engine = engine
        self.tokenizer = engine.tokenizer
        try:
            self.is_tuned_to_embed = tuned = is_embed_card(task)
            self.card = None if task is None or tuned else TaskCard.from_dict(dict(task))
            """What the model was fine-tuned for; None where that is not known."""
            self.embed_card = (
                EmbedCard.from_dict(dict(task)) if task and tuned else EmbedCard(normalize=False)
            )
            """How its vectors are made unless the user says otherwise."""
            self.embed_card.check_fits(engine.config)
            self.cards = task_cards(engine.config, self.card)
            """For each task verb that the model supports, how texts become its inputs."""
        except ConfigError as error:
            raise CheckpointError(
                f"the task.json beside the model cannot be used: {error}"
            ) from error
        self.notes = notes
        """What a user should know about how the model was loaded."""

    def leave_early(self, exit: str | None, threshold: float | None = None) -> None:
        """Let texts leave by a criterion from now on; None for never. Without a threshold the
        calibrated one holds."""
        self.__dict__.pop("fingerprint", None)
        if exit is None:
            if threshold is not None:
                raise ConfigError(
                    f"a threshold is of an exit, and none is given; got threshold {threshold}"
                )
            self.engine.exit_rule = None
            return
        from litebert.infer.exits import make_rule

        self.engine.exit_rule = make_rule(self.engine.config, self.card, exit, threshold)

    @property
    def model(self) -> "Model":
        """The torch module; ConfigError where another engine computes."""
        return self.torch_engine.model

    @property
    def torch_engine(self) -> "TorchEngine":
        """The engine, if it is torch: only that one gives losses and the module itself."""
        if self.engine.name != "torch":
            raise ConfigError(
                f"the engine {self.engine.name} has no torch module; load the checkpoint with "
                'engine="torch"'
            )
        return cast("TorchEngine", self.engine)

    @property
    def verbs(self) -> tuple[Verb, ...]:
        """What this model can do."""
        return supported_verbs(self.engine.config, self.cards)

    def check_verb(self, verb: Verb) -> None:
        """ConfigError for what this model cannot do; the message says what it can."""
        check_verb(verb, self.verbs, self.card, lacks_generator=self.engine.lacks_generator)

    @cached_property
    def fingerprint(self) -> str:
        """A sha256 of everything that predictions depend on: weights, config, vocabulary, task."""
        card = None if self.card is None else self.card.to_dict()
        facts = [self.engine.config.to_dict(), card, self.tokenizer.fingerprint]
        if self.embed_card != EmbedCard(normalize=False):
            facts.append(self.embed_card.to_dict())
        if self.engine.exit_rule is not None:
            facts.append(asdict(self.engine.exit_rule))
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
        if type(top) is not int or top < 1:
            raise ConfigError(f"top is a whole number from 1; got {shorten(top)}")

        def compute(window: list[str]) -> list[Guesses]:
            return [check_guesses(each) for each in self.engine.fill(window, top=top)]

        return self._map_texts("fill", texts, compute)

    def embedding(
        self, pooling: Pooling | None = None, normalize: bool | None = None
    ) -> tuple[Pooling, bool]:
        """Pooling and normalization: what is asked for, else as the model was trained."""
        if pooling is not None and pooling not in get_args(Pooling):
            raise ConfigError(
                f"pooling is one of {', '.join(get_args(Pooling))}; got {shorten(pooling)}"
            )
        card = self.embed_card
        return (
            card.pooling if pooling is None else pooling,
            card.normalize if normalize is None else normalize,
        )

    @overload
    def embed(
        self,
        texts: str,
        *,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
    ) -> Vector: ...
    @overload
    def embed(
        self,
        texts: Texts,
        *,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
    ) -> Vectors: ...
    @overload
    def embed(
        self,
        texts: Iterator[str],
        *,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
    ) -> Iterator[Vector]: ...
    def embed(
        self,
        texts: Any,
        *,
        pooling: Pooling | None = None,
        normalize: bool | None = None,
        dimensions: int | None = None,
    ) -> Any:
        """One vector per text: the mean of the last states, or the last state of [CLS]. A list
        gives an array with one row per text.

        By default as the model was tuned (litebert finetune embed), else the mean as it is.
        `dimensions` keeps the first so many numbers, a size that the model was trained for, before
        vectors are normalized.
        """
        pooling, normalize = self.embedding(pooling, normalize)
        size = self.engine.config.encoder.hidden_size
        if dimensions is not None:
            self.embed_card.check_dimensions(dimensions, size)
            size = dimensions

        def compute(window: list[str]) -> list[np.ndarray]:
            vectors = self.engine.embed(
                window, pooling=pooling, normalize=normalize and dimensions is None
            )[:, :size]
            if normalize and dimensions is not None:
                vectors = vectors / np.maximum(
                    np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12
                )
            return list(check_vectors(vectors))

        vectors = self._map_texts("embed", texts, compute)
        if not isinstance(vectors, list):
            return vectors
        return np.stack(vectors) if vectors else np.zeros((0, size), np.float32)

    @overload
    def classify(self, texts: str) -> Labeled: ...
    @overload
    def classify(self, texts: Texts) -> list[Labeled]: ...
    @overload
    def classify(self, texts: Iterator[str]) -> Iterator[Labeled]: ...
    def classify(self, texts: Any) -> Any:
        """The label of a text and every label's probability; of a multi-label model the labels with
        a probability of at least its threshold, 0.5 by default."""
        return self._map_examples("classify", text_example, {"texts": (texts, is_text)})

    @overload
    def pair(self, first: str, second: str) -> Labeled: ...
    @overload
    def pair(self, first: Texts, second: Texts) -> list[Labeled]: ...
    @overload
    def pair(self, first: Iterator[str], second: Iterator[str]) -> Iterator[Labeled]: ...
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
        self.check_verb(verb)
        card = self.cards[verb]
        return map_windows(
            examples,
            num_characters,
            lambda window: check_numbers(self.engine.predict(card, window)),
            max_items=self.engine.window_items,
        )

    def _map_texts(
        self, verb: Verb, texts: Any, predict: Callable[[list[str]], Sequence[Any]]
    ) -> Any:
        """A verb of texts alone: fill and embed."""
        self.check_verb(verb)
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
    engine: EngineChoice = "auto",
    device: str = "auto",
    batch_tokens: int | None = None,
    dtype: DType = "auto",
    compile: bool = False,
    kernels: str = "on",
    threads: int | None = None,
    exit: str | None = None,
    threshold: float | None = None,
    unverified: bool = False,
) -> Predictor:
    """A Predictor from a litebert checkpoint, a run folder (its final or best checkpoint), a
    Hugging Face folder, Google's checkpoint or the name of an embedded model; None loads the
    default one.

    A folder that `litebert export` wrote loads too, and answers without torch.

    `engine` is torch, onnx, openvino or auto: an exported folder's own; of an embedded model the
    fastest installed; else torch. A checkpoint is exported for onnx or openvino on first use, into
    a cache (infer/export_cache.py), and `notes` say so. `device` is
    cpu, cuda, cuda:1 … or auto. `batch_tokens` is the largest batch in tokens; None
    chooses by device. `dtype` is float32, bfloat16 or auto: bfloat16 on a GPU that supports it.
    `compile` takes a quarter of a minute first, and was no faster than litebert's kernels.
    `kernels` may be off, or switch families off: "attention=off,norm=off". `threads` compute on a
    CPU while a verb runs: by default OMP_NUM_THREADS, else as many as cores are free now. `exit`
    lets texts leave a model that was fine-tuned with exits early: by patience, confidence or
    cumulative probability, from `threshold` on; None for the calibrated one. Predictions then have
    a depth. `unverified` loads a model whose manifest.json is missing or does not match its files.
    """
    from litebert.infer.engines import (
        check_engine_name,
        check_torch_alone,
        choose_engine,
        open_export,
    )
    from litebert.infer.exported import GENERATOR_NOTE, is_export
    from litebert.loading import find_checkpoint
    from litebert.models.index import default_model

    check_engine_name(engine)
    model: Any = default_model().folder if folder is None else folder
    source = os.fspath(model) if isinstance(model, str | os.PathLike) else model
    if not isinstance(source, str):
        raise ConfigError(f"a model is the path of a folder or a name; got {shorten(folder)}")
    path = find_checkpoint(source)
    name, _ = choose_engine(engine, device=device, dtype=dtype, compile=compile, kernels=kernels)
    has_graphs = is_export(path)
    if has_graphs or name != "torch":
        check_torch_alone(device=device, dtype=dtype, compile=compile, kernels=kernels)
    exported, notes = (path, ()) if has_graphs else _cached(path, engine, name, unverified)
    if exported is not None:
        opened = open_export(
            exported,
            engine=engine,
            batch_tokens=batch_tokens,
            threads=threads,
            unverified=unverified or exported != path,  # a cached one was verified just now
        )
        if opened.lacks_generator:
            notes += (GENERATOR_NOTE,)
        predictor = Predictor(opened, task=opened.exported.task, notes=notes)
        predictor.leave_early(exit, threshold)
        return predictor
    from litebert.infer.torch_engine import TorchEngine
    from litebert.loading import load_checkpoint

    checkpoint, loading_notes = load_checkpoint(path, unverified=unverified)
    notes += loading_notes
    computing = TorchEngine(
        checkpoint,
        device=device,
        batch_tokens=batch_tokens,
        dtype=dtype,
        compile=compile,
        kernels=kernels,
        threads=threads,
    )
    if checkpoint.model.config.generator is not None:
        notes += (_GENERATOR_NOTE,)
    predictor = Predictor(computing, task=checkpoint.task, notes=notes)
    predictor.leave_early(exit, threshold)
    return predictor


def _cached(
    path: Path, engine: EngineChoice, name: "EngineName", unverified: bool
) -> tuple[Path | None, tuple[str, ...]]:
    """The export of a checkpoint for an engine that needs one; None where torch computes. Without
    being asked only embedded models are exported: nobody's own weights are copied to a cache."""
    from litebert.models.index import ROOT

    if name == "torch" or (engine == "auto" and path.parent != ROOT):
        return None, ()
    from litebert.infer.export_cache import cached_export

    try:
        return cached_export(path, name, unverified=unverified)
    except ConfigError as error:
        if engine != "auto":
            raise
        return None, (f"computed by torch, which starts more slowly: {error}",)
