"""The models of a service: names and folders in; loaded predictors, by name and by verb, out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from litebert.errors import ConfigError
from litebert.infer.formats import guesses_to_dict, with_input
from litebert.infer.layers import layer_card, read_layers
from litebert.infer.verbs import Verb
from litebert.models.index import embedded_models
from litebert.serve.requests import RequestError

if TYPE_CHECKING:
    from litebert.infer.predictor import Predictor

Task = Verb | Literal["layers"]
"""What a request asks a model for: a verb, or what each layer does."""
_STEMS = ("final", "best")
"""Folders inside a run that name nothing."""


class Key(NamedTuple):
    """Items with the same key are computed together."""

    model: str
    verb: Task
    top: int = 0


@dataclass(frozen=True, kw_only=True)
class Source:
    """A model to serve."""

    name: str
    folder: str


def sources(models: Sequence[str]) -> list[Source]:
    """From `--model M` and `--model NAME=M`; without any, the embedded models."""
    if not models:
        return [Source(name=each.name, folder=str(each.folder)) for each in embedded_models()]
    chosen: list[Source] = []
    for text in models:
        name, equals, folder = text.partition("=")
        if not equals or "/" in name:
            path = Path(text)
            name = path.parent.name if path.name in _STEMS else path.name
            name, folder = name or text, text
        if not name or not folder:
            raise ConfigError(f"--model is a folder, a name, or NAME=FOLDER; got {text!r}")
        if name in (source.name for source in chosen):
            raise ConfigError(f"two models are called {name!r}; name them with --model NAME=FOLDER")
        chosen.append(Source(name=name, folder=folder))
    return chosen


class ServedModel:
    """A predictor under its name."""

    def __init__(self, name: str, predictor: "Predictor") -> None:
        self.name, self.predictor = name, predictor

    @property
    def verbs(self) -> tuple[Verb, ...]:
        return self.predictor.verbs

    def max_length(self, verb: Task) -> int:
        """Tokens that the verb reads of one input."""
        cards = self.predictor.cards
        card = layer_card(self.predictor) if verb == "layers" else cards.get(verb)
        return (
            self.predictor.engine.config.encoder.max_positions if card is None else card.max_length
        )

    @property
    def width(self) -> int:
        return self.predictor.engine.config.encoder.hidden_size

    @property
    def labels(self) -> list[str] | None:
        cards = self.predictor.cards.values()
        return next((list(card.task.labels) for card in cards if card.task.labels), None)

    def describe(self) -> dict[str, Any]:
        """Its entry in OpenAI's list of models."""
        engine = self.predictor.engine
        exported = getattr(engine, "exported", None)
        main: Verb = next((verb for verb in self.verbs if verb != "embed"), "embed")
        return {
            "id": self.name,
            "object": "model",
            "owned_by": "litebert",
            "verbs": list(self.verbs),
            "labels": self.labels,
            "max_length": self.max_length(main),
            "layers": len(engine.config.encoder.plan()),
            "exits": any(head.exits != "none" for head in engine.config.heads),
            "engine": engine.name,
            "int8": exported is not None and exported.header.precision == "int8",
        }

    def compute(self, key: Key, items: Sequence[Any]) -> list[Any]:
        """One result for each item: JSON, or for embed a vector."""
        if key.verb == "fill":
            filled = self.predictor.fill(list(items), top=key.top)
            return [
                {"text": text} | guesses_to_dict(guesses)
                for text, guesses in zip(items, filled, strict=True)
            ]
        if key.verb == "embed":
            vectors: np.ndarray = self.predictor.embed(list(items))
            return list(vectors)
        if key.verb == "layers":
            return [
                {"first": example.first, "second": example.second} | reading.to_dict()
                for example, reading in zip(items, read_layers(self.predictor, items), strict=True)
            ]
        predictions = self.predictor.predict(items, kind=key.verb)
        return [
            with_input(key.verb, example, prediction)
            for example, prediction in zip(items, predictions, strict=True)
        ]


class Models:
    """All models, in the order of the command line."""

    def __init__(self, served: Sequence[ServedModel]) -> None:
        self.served = {model.name: model for model in served}

    def choose(self, name: Any, verb: Verb) -> ServedModel:
        """The model of that name, or without one the first that can do it."""
        if name is None:
            for model in self.served.values():
                if verb in model.verbs:
                    return model
            raise RequestError(
                400, f"no model here can {verb}; {self._abilities()}", code="verb_not_supported"
            )
        if not isinstance(name, str):
            raise RequestError(400, "model is the name of a model", param="model")
        if name not in self.served:
            known = ", ".join(self.served)
            raise RequestError(
                404,
                f"there is no model {name[:80]!r} here; there is {known}",
                param="model",
                code="model_not_found",
            )
        if verb not in self.served[name].verbs:
            raise RequestError(
                400,
                f"the model {name} cannot {verb}; {self._abilities()}",
                param="model",
                code="verb_not_supported",
            )
        return self.served[name]

    def compute(self, key: Key, items: Sequence[Any]) -> list[Any]:
        return self.served[key.model].compute(key, items)

    def _abilities(self) -> str:
        each = [f"{model.name} can {' and '.join(model.verbs)}" for model in self.served.values()]
        return "; ".join(each)
