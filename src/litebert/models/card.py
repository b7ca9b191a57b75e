"""The card of an embedded model: facts as plain data in; a Markdown page out.

The page follows from the facts alone, so that no number in it is typed by hand. An author states
data, license, recipe, scores and limits; the rest is read from the model and its run. `litebert
models` lists the same facts.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from litebert.checks import check_known, check_type, check_whole, is_number, list_names, shorten
from litebert.errors import ConfigError

AUTHOR_FACTS = ("summary", "license", "data", "recipe", "scores", "limits", "failures")
"""Facts that the author states; the others are read from the model and its run."""


@dataclass(frozen=True, kw_only=True)
class DataFact:
    """A data set that the model was trained on."""

    name: str
    license: str
    note: str = ""
    """How much of it, and how it was prepared."""

    def __post_init__(self) -> None:
        _check_texts(self, "name", "license", "note")


@dataclass(frozen=True, kw_only=True)
class ScoreFact:
    """A measured number."""

    task: str
    score: str
    """Its name: accuracy, f1 …"""
    value: float
    split: str
    note: str = ""
    """Such as the number of seeds."""

    def __post_init__(self) -> None:
        _check_texts(self, "task", "score", "split", "note")
        if not is_number(self.value):
            raise ConfigError(
                f"the value of a score is a number; got {shorten(self.value)} for {self.task}"
            )


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """The facts about a model."""

    name: str
    verbs: tuple[str, ...]
    """What it can do: fill, embed, classify, …"""
    parameters: int
    shape: Mapping[str, Any]
    """The encoder's settings."""
    summary: str
    """What it is, in a sentence or two."""
    license: str
    data: tuple[DataFact, ...]
    recipe: Mapping[str, Any]
    """How it was trained, by name."""
    scores: tuple[ScoreFact, ...]
    limits: tuple[str, ...]
    """What it is not good for."""
    failures: tuple[str, ...] = ()
    """Examples of what it gets wrong."""
    run: Mapping[str, Any] | None = None
    """The run's own files: recipe, environment and status."""

    def __post_init__(self) -> None:
        _check_texts(self, "name", "summary", "license")
        check_whole(self, "parameters", 1, 10**12)
        for name in ("shape", "recipe"):
            check_type(self, name, Mapping, "an object of names and values")
        for name in ("data", "limits", "recipe", "license", "summary"):
            if not getattr(self, name):
                raise ConfigError(
                    f"a card says something of {name}; got {shorten(getattr(self, name))}"
                )
        if not all(isinstance(text, str) for text in (*self.limits, *self.verbs, *self.failures)):
            raise ConfigError("limits, verbs and failures are lists of texts")

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        if not self.failures:
            del data["failures"]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ModelCard":
        _check_keys(cls, data, optional=("run", "failures"))
        lists = {name: data[name] for name in ("verbs", "data", "scores", "limits")}
        lists["failures"] = data.get("failures", ())
        for name, value in lists.items():
            if not isinstance(value, list | tuple):
                raise ConfigError(f"{name} is a list; got {shorten(value)}")
        return cls(
            **{
                **data,
                "verbs": tuple(lists["verbs"]),
                "limits": tuple(lists["limits"]),
                "failures": tuple(lists["failures"]),
                "data": tuple(_fact(DataFact, fact) for fact in lists["data"]),
                "scores": tuple(_fact(ScoreFact, fact) for fact in lists["scores"]),
            }
        )

    def page(self) -> str:
        """The card in Markdown."""
        facts = [
            ("can", ", ".join(self.verbs)),
            ("parameters", f"{self.parameters:,}"),
            ("license", self.license),
        ]
        facts += [(name.replace("_", " "), _shown(value)) for name, value in self.shape.items()]
        parts = [
            f"# {self.name}",
            self.summary,
            _table(("", ""), facts),
            "## Data",
            _items(
                f"{fact.name} ({fact.license}){': ' + fact.note if fact.note else ''}"
                for fact in self.data
            ),
            "## Recipe",
            _items(
                f"{name.replace('_', ' ')}: {_shown(value)}" for name, value in self.recipe.items()
            ),
            "## Scores",
            _table(
                ("task", "score", "value", "split", ""),
                [
                    (fact.task, fact.score, f"{fact.value:g}", fact.split, fact.note)
                    for fact in self.scores
                ],
            )
            if self.scores
            else "None were measured.",
            "## Limits",
            _items(self.limits),
        ]
        if self.failures:
            parts += ["## Failures", _items(self.failures)]
        if self.run is not None:
            record = json.dumps(dict(self.run), indent=1, ensure_ascii=False)
            parts += ["## Record of the run", f"```json\n{record}\n```"]
        return (
            "\n\n".join(
                [
                    *parts,
                    "Generated from card.json by tools/embed_model.py; "
                    "edit the facts, not this page.",
                ]
            )
            + "\n"
        )


def _fact(cls: type[Any], data: Any) -> Any:
    if not isinstance(data, Mapping):
        raise ConfigError(f"a {cls.__name__} is an object; got {shorten(data)}")
    _check_keys(cls, data, optional=("note",))
    return cls(**data)


def _check_keys(cls: type[Any], data: Mapping[str, Any], *, optional: Sequence[str]) -> None:
    known = [field.name for field in fields(cls)]
    for key in data:
        check_known(f"{cls.__name__} fact", key, known)
    missing = [name for name in known if name not in data and name not in optional]
    if missing:
        raise ConfigError(
            f"{cls.__name__} needs {', '.join(missing)} as well; got "
            f"{list_names(data) or 'nothing'}"
        )


def _check_texts(owner: object, *names: str) -> None:
    for name in names:
        check_type(owner, name, str, "a text")


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _items(texts: Iterable[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )
