"""Embedded models, which come with the package: a name or a verb in; a checkpoint folder out.

Beside this file are index.json and one folder per model: an int8 or difference checkpoint, the
facts of its card as card.json, and the card as README.md. Where no model is named, the one that
claims the verb is used, else the first of the index that has it. tools/embed_model.py writes all
of it. No torch.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.checks import shorten
from litebert.errors import CheckpointError, ConfigError
from litebert.models.card import ModelCard

ROOT = Path(__file__).parent
INDEX = "index.json"
CARD = "card.json"
PAGE = "README.md"
_FORMAT, _VERSION = "litebert-models", 1
_GIVE_ONE = "give a folder with --model: a checkpoint, a run, or a Hugging Face folder"


@dataclass(frozen=True, kw_only=True)
class EmbeddedModel:
    """A model that comes with the package."""

    name: str
    verbs: tuple[str, ...]
    """What it can do: fill, embed, classify, …"""
    folder: Path
    aliases: tuple[str, ...] = ()
    """Other names that find it, such as that of its preset."""
    default_for: tuple[str, ...] = ()
    """Verbs that it has the first claim to, wherever it stands in the index."""

    @property
    def num_bytes(self) -> int:
        """Size of all its files."""
        return sum(path.stat().st_size for path in self.folder.iterdir())

    @property
    def page(self) -> Path:
        """Its card in Markdown."""
        return self.folder / PAGE

    def card(self) -> ModelCard:
        try:
            return ModelCard.from_dict(json.loads((self.folder / CARD).read_text(encoding="utf-8")))
        except (OSError, ValueError, ConfigError) as error:
            raise CheckpointError(
                f"the card of the embedded model {self.name} cannot be read: {error}; reinstall"
            ) from error


def embedded_models(root: Path | None = None) -> tuple[EmbeddedModel, ...]:
    """All embedded models, the preferred ones first."""
    root = root or ROOT
    try:
        data = json.loads((root / INDEX).read_text(encoding="utf-8"))
        if (data["format"], data["version"]) != (_FORMAT, _VERSION):
            raise ValueError(
                f"it is of format {shorten(data['format'])}, version {shorten(data['version'])}"
            )
        return tuple(
            EmbeddedModel(
                name=str(model["name"]),
                verbs=tuple(model["verbs"]),
                folder=root / str(model["name"]),
                aliases=tuple(map(str, model.get("aliases", ()))),
                default_for=tuple(map(str, model.get("default_for", ()))),
            )
            for model in data["models"]
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{root / INDEX} cannot be read: {error}; reinstall litebert"
        ) from error


def index_text(models: Sequence[EmbeddedModel]) -> str:
    """The text of index.json for these models."""
    data: dict[str, Any] = {"format": _FORMAT, "version": _VERSION}
    data["models"] = [
        {"name": model.name, "verbs": list(model.verbs)}
        | ({"aliases": list(model.aliases)} if model.aliases else {})
        | ({"default_for": list(model.default_for)} if model.default_for else {})
        for model in models
    ]
    return json.dumps(data, indent=2) + "\n"


def find_embedded(name: str) -> EmbeddedModel | None:
    """The embedded model of that name or alias, or None."""
    models = embedded_models()
    return next((model for model in models if name in (model.name, *model.aliases)), None)


def default_model(verb: str | None = None) -> EmbeddedModel:
    """The model used where none is named: the first; for a verb the one that claims it, else the
    first that has it."""
    models = embedded_models()
    if not models:
        raise ConfigError(f"there is no embedded model yet; {_GIVE_ONE}")
    for model in sorted(models, key=lambda model: verb not in model.default_for):  # stable
        if verb is None or verb in model.verbs:
            return model
    verbs = "; ".join(f"{model.name} can {' and '.join(model.verbs)}" for model in models)
    raise ConfigError(f"no embedded model can {verb} ({verbs}); {_GIVE_ONE}")
