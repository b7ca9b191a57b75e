"""What every recipe can do: its settings as JSON and back, a fingerprint, and the difference of
two. No torch here."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, Self

from litebert.checks import check_known
from litebert.errors import ConfigError
from litebert.recipes.optimizer import OptimizerSpec


class Recipe(ABC):
    """Base of the frozen recipes, which have these settings among theirs and say how `to_dict` and
    `from_dict` go."""

    practical: frozenset[str] = frozenset()
    """Settings that a resumed run may change: they say how a run is done and watched, not what it
    learns."""
    budgets: ClassVar[tuple[str, str]]
    """The two settings that say how long a run is; one of them is none."""
    optimizer: OptimizerSpec
    save_every: int
    keep_snapshots: int
    max_skips: int
    max_rollbacks: int
    spike_factor: float

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """JSON's own types only; `from_dict` gives an equal recipe back."""

    @classmethod
    @abstractmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self: ...

    def changed(self, settings: Mapping[str, Any]) -> Self:
        """This recipe with other settings, as flags state them: the optimizer's stand beside the
        rest, `optimizer` is its name, and one budget replaces the other."""
        own = dict(settings)
        spec = {
            each.name: own.pop(each.name)
            for each in fields(OptimizerSpec)
            if each.name in own and each.name != "name"
        }
        if "optimizer" in own:
            spec["name"] = own.pop("optimizer")
        if any(own.get(name) is not None for name in self.budgets):
            own = dict.fromkeys(self.budgets) | own
        recipe: Any = self  # every recipe is a dataclass, which the type of this one does not say
        result: Self = replace(recipe, **own, optimizer=replace(self.optimizer, **spec))
        return result

    @property
    def fingerprint(self) -> str:
        """sha256 of everything that decides what is learned; practical settings are left out."""
        essential = {
            name: value for name, value in self.to_dict().items() if name not in self.practical
        }
        return hashlib.sha256(json.dumps(essential, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        try:
            data = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"a recipe is one JSON object; this is not JSON: {error}") from error
        return cls.from_dict(json_object("recipe", data))


def difference(then: Recipe, now: Recipe) -> list[str]:
    """One readable line for each setting that decides what is learned and differs: none when a run
    can go on."""
    before, after = (dict(_leaves(recipe.to_dict())) for recipe in (then, now))
    return [
        f"{name}: {_shown(before.get(name))} in the run, {_shown(after.get(name))} now"
        for name in before | after
        if name.split(".")[0] not in now.practical and before.get(name) != after.get(name)
    ]


def plain_settings(settings: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, tuples as lists and an optimizer as an object."""
    return {setting.name: _plain(getattr(settings, setting.name)) for setting in fields(settings)}


def known_settings(what: str, cls: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `data`, whose names must all be fields of `cls`; its optimizer, where there is one,
    is read."""
    names = [setting.name for setting in fields(cls)]
    for name in data:
        check_known(f"{what} setting", name, names)
    values = dict(data)
    if "optimizer" in values:
        values["optimizer"] = _optimizer(json_object("optimizer", values["optimizer"]))
    return values


def json_object(what: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{what} is a JSON object; got {value!r}")
    return value


def _optimizer(data: dict[str, Any]) -> OptimizerSpec:
    spec = known_settings("optimizer", OptimizerSpec, data)
    for name in ("betas", "norm_clamp"):
        if isinstance(spec.get(name), list):
            spec[name] = tuple(spec[name])
    return OptimizerSpec(**spec)


def _plain(value: Any) -> Any:
    if isinstance(value, OptimizerSpec):
        return plain_settings(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _leaves(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _shown(value: object) -> str:
    return "none" if value is None else str(value)
