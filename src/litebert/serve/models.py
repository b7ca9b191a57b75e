"""The models of a service: names and folders in; loaded predictors, by name and by verb, out."""

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from litebert.errors import ConfigError
from litebert.infer.continuous import can_continue
from litebert.infer.depthwise import shares_layers
from litebert.infer.formats import guesses_to_dict, with_input
from litebert.infer.layers import layer_card, read_layers
from litebert.infer.verbs import EngineChoice, Verb
from litebert.models.index import embedded_models
from litebert.serve.requests import RequestError
from litebert.serve.runners import Layered, Static
from litebert.serve.scheduler import Runner

if TYPE_CHECKING:
    from litebert.infer.predictor import Predictor

Task = Verb | Literal["layers"]
"""What a request asks a model for: a verb, or what each layer does."""
Batching = Literal["auto", "depth", "static"]
"""Layer by layer, batch after batch, or what suits the model."""
_STEMS = ("final", "best")
"""Folders inside a run that name nothing."""


class Key(NamedTuple):
    """Items with the same key are computed together."""

    model: str
    verb: Task
    top: int = 0


@dataclass(frozen=True, kw_only=True)
class Source:
    name: str
    folder: str


def sources(models: Sequence[str]) -> list[Source]:
    """From `--model M` and `--model NAME=M`; without any, the embedded models."""
    if not models:
        embedded = embedded_models()
        if not embedded:
            raise ConfigError("there is no embedded model yet; give a folder with --model")
        return [Source(name=each.name, folder=str(each.folder)) for each in embedded]
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


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How models are loaded, as the command line says."""

    sources: tuple[Source, ...]
    engine: EngineChoice = "auto"
    device: str = "auto"
    batch_tokens: int | None = None
    threads: int | None = None
    unverified: bool = False
    exit: str | None = None
    threshold: float | None = None
    batching: Batching = "auto"


def load_models(options: LoadOptions, note: Callable[[str], None] = lambda text: None) -> "Models":
    """All models; `note` is told what a user should know."""
    from litebert.infer.predictor import load

    served = []
    for source in options.sources:
        predictor = load(
            source.folder,
            engine=options.engine,
            device=options.device,
            batch_tokens=options.batch_tokens,
            threads=options.threads,
            unverified=options.unverified,
        )
        for each in predictor.notes:
            note(f"{source.name}: {each}")
        served.append(ServedModel(source.name, predictor))
    leave_early(served, options.exit, options.threshold)
    return Models(served, batching=options.batching)


class ServedModel:
    def __init__(self, name: str, predictor: "Predictor") -> None:
        self.name, self.predictor = name, predictor
        self.loaded_at = int(time.time())

    @property
    def verbs(self) -> tuple[Verb, ...]:
        return self.predictor.verbs

    def can(self, verb: Task) -> bool:
        return verb == "layers" or verb in self.verbs

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
    def sizes(self) -> tuple[int, ...]:
        """Of vectors, those that the model was trained for."""
        return tuple(sorted({*self.predictor.embed_card.dimensions, self.width}))

    @property
    def has_exits(self) -> bool:
        return any(head.exits != "none" for head in self.predictor.engine.config.heads)

    def describe(self) -> dict[str, Any]:
        """Its entry in OpenAI's list of models."""
        engine = self.predictor.engine
        exported = getattr(engine, "exported", None)
        main: Verb = next((verb for verb in self.verbs if verb != "embed"), "embed")
        labels = (list(card.task.labels) for card in self.predictor.cards.values())
        return {
            "id": self.name,
            "object": "model",
            "created": self.loaded_at,
            "owned_by": "litebert",
            "verbs": list(self.verbs),
            "labels": next(filter(None, labels), None),
            "max_length": self.max_length(main),
            "layers": len(engine.config.encoder.plan()),
            "exits": self.has_exits,
            "tuned_to_embed": self.predictor.is_tuned_to_embed,
            "engine": engine.name,
            "int8": exported is not None and exported.header.precision == "int8",
        }

    def is_layered(self, verb: Task, batching: Batching) -> bool:
        """Whether a verb's texts are computed layer by layer. By default that is so on a processor
        where layers share parameters: elsewhere texts at different depths would share no call."""
        engine = self.predictor.engine
        if verb == "layers" or batching == "static" or not can_continue(engine.config, verb):
            return False
        return batching == "depth" or (shares_layers(engine.config.encoder) and not engine.is_gpu)

    def compute(self, key: Key, items: Sequence[Any]) -> list[Any]:
        """One result for each item: JSON, or for embed a vector."""
        results: Any
        if key.verb == "fill":
            results = self.predictor.fill(list(items), top=key.top)
        elif key.verb == "embed":
            results = self.predictor.embed(list(items))
        elif key.verb == "layers":
            results = read_layers(self.predictor, items)
        else:
            results = self.predictor.predict(items, kind=key.verb)
        return [self.formed(key, item, each) for item, each in zip(items, results, strict=True)]

    def formed(self, key: Key, item: Any, result: Any) -> Any:
        """The Predictor's result as it is answered."""
        if key.verb == "fill":
            return {"text": item} | guesses_to_dict(result)
        if key.verb == "embed":
            return result
        if key.verb == "layers":
            return {"first": item.first, "second": item.second} | result.to_dict()
        return with_input(key.verb, item, result)


def leave_early(served: Sequence[ServedModel], exit: str | None, threshold: float | None) -> None:
    """Let texts leave the models that have exits early; ConfigError where none has."""
    if exit is None and threshold is None:
        return
    with_exits = [model for model in served if model.has_exits]
    for model in with_exits or served:
        model.predictor.leave_early(exit, threshold)


class Models:
    """All models, in the order of the command line."""

    def __init__(self, served: Sequence[ServedModel], *, batching: Batching = "auto") -> None:
        self.served = {model.name: model for model in served}
        self.batching = batching
        self._runners: dict[Hashable, Runner] = {}

    def choose(self, name: Any, verb: Task) -> ServedModel:
        """The model of that name, or without one the first that can do it. Any model can embed:
        one that is tuned for it goes first."""
        if name is None:
            able = [model for model in self.served.values() if model.can(verb)]
            if verb == "embed":
                able.sort(key=lambda model: not model.predictor.is_tuned_to_embed)
            if able:
                return able[0]
            raise RequestError(
                400, f"no model here can {verb}; {self._abilities()}", code="verb_not_supported"
            )
        if not isinstance(name, str):
            raise RequestError(400, "model is the name of a model", param="model")
        model = self.named(name)
        if not model.can(verb):
            raise RequestError(
                400,
                f"the model {name} cannot {verb}; {self._abilities()}",
                param="model",
                code="verb_not_supported",
            )
        return model

    def named(self, name: str) -> ServedModel:
        if name not in self.served:
            known = ", ".join(self.served)
            raise RequestError(
                404,
                f"there is no model {name[:80]!r} here; there is {known}",
                param="model",
                code="model_not_found",
            )
        return self.served[name]

    def compute(self, key: Key, items: Sequence[Any]) -> list[Any]:
        return self.served[key.model].compute(key, items)

    def runner(self, key: Key, batch_tokens: int | None = None) -> Runner:
        """What computes items of that key: one runner for all that a model computes layer by layer,
        else one for each key."""
        model = self.served[key.model]
        is_layered = model.is_layered(key.verb, self.batching)
        name: Hashable = key.model if is_layered else key
        if name not in self._runners:
            most = batch_tokens or model.predictor.engine.batch_tokens
            self._runners[name] = (
                Layered(model, max_tokens=batch_tokens)
                if is_layered
                else Static(partial(self.compute, key), max_tokens=most)
            )
        return self._runners[name]

    def _abilities(self) -> str:
        each = [f"{model.name} can {' and '.join(model.verbs)}" for model in self.served.values()]
        return "; ".join(each)
