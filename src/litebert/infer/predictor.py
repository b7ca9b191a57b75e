"""The Predictor: a loaded model asked in plain words. Texts in, predictions out (architecture.md's
Python page).
 Every verb takes one, a list or an iterator, and answers in the same form and order; an iterator is
read as the answers are taken, a little ahead. What is longer than the model reads is cut at its
end, of a pair the longer text first; answer and tag read long texts in overlapping windows instead.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, overload

import numpy as np
import torch
from jaxtyping import Float

from litebert.errors import CheckpointError, ConfigError
from litebert.infer.ahead import GPU_ITEMS, answered, in_form, is_text, is_texts, rows
from litebert.infer.embed import check_pooling, embed_texts
from litebert.infer.fill import Guess, fill_texts
from litebert.infer.verbs import (
    Pooling,
    Verb,
    answer_example,
    cards,
    characters,
    check_verb,
    checked_text,
    choice_example,
    known_verbs,
    tag_example,
    text_example,
)
from litebert.kernels.compile import compile_for_inference
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.card import TaskCard
from litebert.tasks.examples import Kind, TaskExample
from litebert.tasks.heads import apply
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    Prediction,
    Span,
    TagPrediction,
)
from litebert.text.tokenizer import Tokenizer

Arithmetic = Literal["auto", "float32", "bfloat16"]
"""Of the layers: auto takes bfloat16 on a GPU that is made for it, float32 elsewhere."""
Many = list[str] | tuple[str, ...]
Tagged = list[str] | list[list[str]] | list[tuple[str, ...]] | tuple[str | Sequence[str], ...]
Vector = Float[np.ndarray, " hidden"]
Vectors = Float[np.ndarray, "texts hidden"]
Guesses = list[list[Guess]]
"""Of one text: for each [MASK], in order, its best tokens, the likeliest first."""
Item = TypeVar("Item")


class Predictor:
    """A model with its tokenizer, on a device. `litebert.load` makes one from a folder."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: torch.device | str = "cpu",
        batch_tokens: int | None = None,
        dtype: Arithmetic = "auto",
        compile: bool = False,
        notes: tuple[str, ...] = (),
    ) -> None:
        if checkpoint.tokenizer is None:
            raise CheckpointError(
                "the model has no tokenizer beside it; copy its spiece.model into the folder to "
                "ask it texts"
            )
        self.device = torch.device(device)
        self.batch_tokens = batch_tokens or apply.BATCH_TOKENS.get(
            self.device.type, apply.MOST_TOKENS
        )
        """Tokens of a batch, padding among them."""
        self.model = checkpoint.model.to(self.device, find_dtype(dtype, self.device)).eval()
        if compile:
            compile_for_inference(self.model, lambda message: print(message, file=sys.stderr))
        self.window = GPU_ITEMS if self.device.type == "cuda" else None
        self.tokenizer: Tokenizer = checkpoint.tokenizer
        try:
            self.card = None if checkpoint.task is None else TaskCard.from_dict(checkpoint.task)
            """What the model was fine-tuned for; None where that is not known."""
            self.cards = cards(self.model.config, self.card)
            """For each task verb that the model knows, how texts become its inputs."""
        except ConfigError as error:
            raise CheckpointError(
                f"the task.json beside the model cannot be used: {error}"
            ) from error
        self.notes = notes
        """What a user should know of the model's loading."""
        if self.tokenizer.vocab_size > (size := self.model.config.encoder.vocab_size):
            raise CheckpointError(
                f"the tokenizer has {self.tokenizer.vocab_size} pieces, the model {size}; they do "
                "not match"
            )

    @property
    def verbs(self) -> tuple[Verb, ...]:
        """What this model can do."""
        return known_verbs(self.model.config, self.cards)

    @cached_property
    def fingerprint(self) -> str:
        """A sha256 of all that predictions follow from: weights, config, vocabulary and task."""
        card = None if self.card is None else self.card.to_dict()
        told = [self.model.config.to_dict(), card, self.tokenizer.fingerprint]
        digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    @overload
    def fill(self, texts: str, *, top: int = 5) -> Guesses: ...
    @overload
    def fill(self, texts: Many, *, top: int = 5) -> list[Guesses]: ...
    @overload
    def fill(self, texts: Iterator[str], *, top: int = 5) -> Iterator[Guesses]: ...
    def fill(self, texts: Any, *, top: int = 5) -> Any:
        """For each text a list with one entry per [MASK]: the `top` likeliest tokens with their
        probabilities. A mask beyond the model's longest input is an error."""
        if top < 1:
            raise ConfigError(f"top is at least 1; got {top}")

        def guesses(window: list[str]) -> list[Guesses]:
            return fill_texts(
                self.model,
                self.tokenizer,
                window,
                top=top,
                batch_tokens=self.batch_tokens,
                device=self.device,
            )

        return self._said("fill", texts, guesses)

    @overload
    def embed(
        self, texts: str, *, pooling: Pooling = "mean", normalize: bool = False
    ) -> Vector: ...
    @overload
    def embed(
        self, texts: Many, *, pooling: Pooling = "mean", normalize: bool = False
    ) -> Vectors: ...
    @overload
    def embed(
        self, texts: Iterator[str], *, pooling: Pooling = "mean", normalize: bool = False
    ) -> Iterator[Vector]: ...
    def embed(self, texts: Any, *, pooling: Pooling = "mean", normalize: bool = False) -> Any:
        """A vector for each text: the mean of the last states, or the state of [CLS]; one row a
        text."""
        check_pooling(pooling)

        def vectors(window: list[str]) -> Sequence[Vector]:
            return list(
                embed_texts(
                    self.model,
                    self.tokenizer,
                    window,
                    pooling=pooling,
                    normalize=normalize,
                    batch_tokens=self.batch_tokens,
                    device=self.device,
                )
            )

        found = self._said("embed", texts, vectors)
        if isinstance(found, list):
            return (
                np.stack(found)
                if found
                else np.zeros((0, self.model.config.encoder.hidden_size), np.float32)
            )
        return found

    @overload
    def classify(self, texts: str) -> LabelPrediction: ...
    @overload
    def classify(self, texts: Many) -> list[LabelPrediction]: ...
    @overload
    def classify(self, texts: Iterator[str]) -> Iterator[LabelPrediction]: ...
    def classify(self, texts: Any) -> Any:
        """The label of a text, and every label's probability."""
        return self._asked("classify", text_example, {"texts": (texts, is_text)})

    @overload
    def pair(self, first: str, second: str) -> LabelPrediction: ...
    @overload
    def pair(self, first: Many, second: Many) -> list[LabelPrediction]: ...
    @overload
    def pair(self, first: Iterator[str], second: Iterator[str]) -> Iterator[LabelPrediction]: ...
    def pair(self, first: Any, second: Any) -> Any:
        """The label of a pair of texts, and every label's probability."""
        return self._asked(
            "pair", text_example, {"first": (first, is_text), "second": (second, is_text)}
        )

    @overload
    def regress(self, first: str, second: str | None = None) -> float: ...
    @overload
    def regress(self, first: Many, second: Many | None = None) -> list[float]: ...
    @overload
    def regress(
        self, first: Iterator[str], second: Iterator[str] | None = None
    ) -> Iterator[float]: ...
    def regress(self, first: Any, second: Any = None) -> Any:
        """A number for a text, or for a pair of them."""
        fields = {"first": (first, is_text)} | (
            {} if second is None else {"second": (second, is_text)}
        )
        return self._asked("regress", text_example, fields, lambda said: said.value)

    @overload
    def choose(self, *, context: str, question: str, options: Many) -> ChoicePrediction: ...
    @overload
    def choose(
        self, *, context: Many, question: Many, options: Sequence[Many]
    ) -> list[ChoicePrediction]: ...
    @overload
    def choose(
        self, *, context: Iterator[str], question: Iterator[str], options: Iterator[Many]
    ) -> Iterator[ChoicePrediction]: ...
    def choose(self, *, context: Any, question: Any, options: Any) -> Any:
        """Which option is right, from 0, and every option's probability."""
        fields = {
            "context": (context, is_text),
            "question": (question, is_text),
            "options": (options, is_texts),
        }
        return self._asked("choose", choice_example, fields)

    @overload
    def answer(self, *, question: str, context: str) -> Span | None: ...
    @overload
    def answer(self, *, question: Many, context: Many) -> list[Span | None]: ...
    @overload
    def answer(
        self, *, question: Iterator[str], context: Iterator[str]
    ) -> Iterator[Span | None]: ...
    def answer(self, *, question: Any, context: Any) -> Any:
        """The span of the context that answers, with its text, place and score; None for no
        answer."""
        fields = {"question": (question, is_text), "context": (context, is_text)}
        return self._asked("answer", answer_example, fields, lambda said: said.best)

    @overload
    def tag(self, texts: str) -> TagPrediction: ...
    @overload
    def tag(self, texts: Tagged) -> list[TagPrediction]: ...
    @overload
    def tag(self, texts: Iterator[str] | Iterator[Sequence[str]]) -> Iterator[TagPrediction]: ...
    def tag(self, texts: Any) -> Any:
        """A tag for every word of a text, and its probability. A text is split at white space, or
        given as its words."""
        return self._asked("tag", tag_example, {"texts": (texts, is_text)})

    def predict(
        self, examples: Iterable[TaskExample], *, kind: Kind | None = None
    ) -> Iterator[Prediction]:
        """The whole prediction for each example, in order: the other spans of an answer too. Kinds
        are verbs."""
        verb: Verb | None = next(iter(self.cards), None) if kind is None else kind
        if verb is None:
            raise ConfigError(
                f"this model has no head for a task; it can {' and '.join(self.verbs)}"
            )
        check_verb(verb, self.verbs, self.card)
        card = self.cards[verb]

        def predictions(window: list[TaskExample]) -> Sequence[Prediction]:
            return apply.predict(
                self.model,
                card,
                window,
                self.tokenizer,
                device=self.device,
                batch_tokens=self.batch_tokens,
            )

        return answered(examples, characters, _without_gradients(predictions), most=self.window)

    def _asked(
        self,
        kind: Kind,
        example: Callable[..., TaskExample],
        fields: Mapping[str, tuple[Any, Callable[[Any], bool]]],
        take: Callable[[Any], Any] = lambda said: said,
    ) -> Any:
        """A task verb: fields to examples, predictions to what the verb gives."""
        form, questions = rows(fields)
        predictions = self.predict((example(*question) for question in questions), kind=kind)
        return in_form(form, (take(said) for said in predictions))

    def _said(self, verb: Verb, texts: Any, answer: Callable[[list[str]], Sequence[Any]]) -> Any:
        """A verb about texts alone."""
        check_verb(verb, self.verbs, self.card)
        form, questions = rows({"texts": (texts, is_text)})
        checked = (checked_text(verb, text) for (text,) in questions)
        return in_form(form, answered(checked, len, _without_gradients(answer), most=self.window))


def load(
    folder: Path | str | None = None,
    *,
    device: str = "auto",
    batch_tokens: int | None = None,
    dtype: Arithmetic = "auto",
    compile: bool = False,
) -> Predictor:
    """A Predictor from a litebert checkpoint, a run folder (its final or best checkpoint), a Hugging
    Face folder, Google's checkpoint or the name of an embedded model; None loads the default one.

    `device` is cpu, cuda, cuda:1 … or auto. `batch_tokens` is the largest batch in tokens; None
    chooses by device. `dtype` is float32, bfloat16 or auto: bfloat16 on a GPU that supports it.
    `compile` takes half a minute and pays from several thousand texts on.
    """
    from litebert.loading import load_checkpoint
    from litebert.models.index import default_model

    target = _find_device(device)
    if batch_tokens is not None and batch_tokens < 1:
        raise ConfigError(f"batch_tokens is at least 1; got {batch_tokens}")
    checkpoint, notes = load_checkpoint(default_model().folder if folder is None else folder)
    return Predictor(
        checkpoint,
        device=target,
        batch_tokens=batch_tokens,
        dtype=dtype,
        compile=compile,
        notes=notes,
    )


def _find_device(name: str) -> torch.device:
    """The device of that name; ConfigError where this machine has none."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"there is no device {name!r} here: {str(error).splitlines()[0]}; see litebert doctor"
        ) from error
    return device


def find_dtype(name: Arithmetic, device: torch.device) -> torch.dtype:
    """The arithmetic that is meant by a name on a device."""
    if name not in get_args(Arithmetic):
        raise ConfigError(f"dtype is one of {', '.join(get_args(Arithmetic))}; got {name!r}")
    is_made_for_it = device.type == "cuda" and torch.cuda.is_bf16_supported(
        including_emulation=False
    )
    return (
        torch.bfloat16
        if name == "bfloat16" or (name == "auto" and is_made_for_it)
        else torch.float32
    )


def _without_gradients(
    answer: Callable[[list[Item]], Sequence[Any]],
) -> Callable[[list[Item]], Sequence[Any]]:
    """Around each window and not around the stream: between two answers the caller's own code
    runs."""

    def inside(window: list[Item]) -> Sequence[Any]:
        with torch.inference_mode():
            return answer(window)

    return inside
