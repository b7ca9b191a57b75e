"""What every recipe can do: changes by flat settings, JSON and back, a fingerprint, and the
difference of two."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

from litebert.checks import (
    check_choices,
    check_known,
    check_number,
    check_type,
    check_whole,
    clip,
    shorten,
)
from litebert.config import MAX_DROPOUT, current_settings, first_settings
from litebert.errors import ConfigError
from litebert.files import check_regular, parse_json, to_json
from litebert.recipes.class_weights import ClassWeights
from litebert.recipes.optimizer import LIMIT, OPTIMIZERS, OptimizerName, OptimizerSpec
from litebert.recipes.stages import FractionStages, Stages

RENAMED = {
    "rate": "learning_rate",
    "decay": "schedule",
    "rate_batch_size": "reference_batch_size",
}
"""Settings of 0.1.0 by their old names: still read, in files and as flags."""
RENAMED_ENCODER = {"position_init": "positions"}
"""The same of encoder settings; config/encoder.py reads their values."""

ADDED = {
    "one_segment": "drop",
    "cutting": "even",
    "random_specials": False,
    "mask_share": 0.8,
    "random_share": 0.1,
    "evaluate_mask_fraction": 0.15,
    "objective": "masked",
    "generator_size": None,
    "generator_layers": None,
    "generator_tie": "embeddings",
    "detection_weight": 50.0,
    "class_weights": "none",
    "exits": "none",
    "exit_distillation": 1.0,
    "exit_temperature": 2.0,
    "calibrate": False,
}
"""Settings that the first recipes did not have, with what every run did then."""


class Recipe(ABC):
    """Base of the frozen recipes: the settings that all of them have."""

    practical: frozenset[str] = frozenset(
        {
            "save_every",
            "keep_snapshots",
            "checkpoint_every",
            "max_skips",
            "max_rollbacks",
            "spike_factor",
        }
    )
    """Settings that a resumed run may change: they affect how it runs, not what it learns."""
    budgets: ClassVar[tuple[str, str]]
    """The two settings that give a run's length; one of them is none."""
    optimizer: OptimizerSpec
    steps: int | None
    save_every: int
    keep_snapshots: int
    max_skips: int
    max_rollbacks: int
    spike_factor: float

    def _check_common(self) -> None:
        """Refuse values that settings of every recipe cannot have."""
        check_choices(self)
        check_type(self, "optimizer", OptimizerSpec, "an OptimizerSpec")
        check_whole(self, "steps", 1, LIMIT, optional=True)
        check_whole(self, "seed", 0, 2**63 - 1)
        check_whole(self, "keep_snapshots", 1, 10_000)
        for name in ("save_every", "checkpoint_every", "max_skips", "max_rollbacks"):
            check_whole(self, name, 0, LIMIT)
        check_number(self, "spike_factor", 0, 1e9)

    def _check_warmup(self, steps: int) -> None:
        """Refuse a run of `steps` that would never reach its learning rate."""
        if self.optimizer.warmup_steps(steps) > steps:
            raise ConfigError(
                f"warm-up takes {self.optimizer.warmup} steps, the run has {steps}; shorten the "
                "warm-up, as with --warmup 0.1, or lengthen the run"
            )

    def to_dict(self) -> dict[str, Any]:
        """JSON types only; `from_dict` returns an equal recipe."""
        return _write(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(**_read("recipe", cls, data))

    @classmethod
    def check_settings(cls, settings: Mapping[str, Any]) -> None:
        """ConfigError for a setting that `changed` does not know."""
        own: Any = cls  # every recipe is a dataclass, which this base cannot say
        names = [each.name for each in (*fields(own), *fields(OptimizerSpec))]
        for name in settings:
            check_known("setting", name, [each for each in (*names, "encoder") if each != "name"])

    @classmethod
    def read_settings(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        """Settings in the types of JSON and TOML (stages as text, "none" for none) as `changed`
        takes them."""
        hints = {**get_type_hints(OptimizerSpec), **get_type_hints(cls)}
        settings = {}
        for name, value in _renamed(data, RENAMED).items():
            hint = hints.get(name)
            if value == "none" and NoneType in get_args(hint):
                value = None
            is_typed = hint is not None and name != "optimizer"
            settings[name] = _from_json(name, value, hint) if is_typed else value
        cls.check_settings(settings)
        return settings

    @abstractmethod
    def default_optimizer(self, name: OptimizerName) -> OptimizerSpec:
        """What `optimizer` stands for where it is not the recipe's own."""

    def changed(self, settings: Mapping[str, Any]) -> Self:
        """This recipe with other settings, named as flags are: those of the optimizer beside the
        others, `optimizer` its name, which brings its defaults. One budget replaces the other."""
        own = dict(settings)
        names = {each.name for each in fields(OptimizerSpec)} & own.keys()
        spec = {name: own.pop(name) for name in names}
        name = own.pop("optimizer", self.optimizer.name)
        base = self.optimizer if name == self.optimizer.name else self.default_optimizer(name)
        if any(own.get(budget) is not None for budget in self.budgets):
            own = dict.fromkeys(self.budgets) | own
        recipe: Any = self  # every recipe is a dataclass, which this base cannot say
        result: Self = replace(recipe, **own, optimizer=replace(base, **spec))
        return result

    @property
    def fingerprint(self) -> str:
        """sha256 of everything that affects what is learned. It outlives releases: settings are
        hashed by their first names, and later ones only where they differ from what runs did
        before."""
        settings = self.to_dict()
        essential = {
            name: value
            for name, value in settings.items()
            if name not in self.practical and not (name in ADDED and value == ADDED[name])
        }
        first = {new: old for old, new in RENAMED.items()}
        return hashlib.sha256(
            json.dumps(
                _renamed(essential, first, overrides=first_settings), sort_keys=True
            ).encode()
        ).hexdigest()

    def to_json(self) -> str:
        return to_json(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        try:
            data = parse_json(text)
        except ValueError as error:
            raise ConfigError(f"a recipe is one JSON object; this is not JSON: {error}") from error
        return cls.from_dict(_json_object("recipe", data))

    @classmethod
    def load(cls, path: Path | str, *, note: Callable[[str], None] = lambda text: None) -> Self:
        """A recipe from a file: a recipe alone, or the recipe.json of a run. `note` is called
        with the settings that the file spells as an earlier release did."""
        wanted = "a recipe file is what a run writes as recipe.json"
        try:
            check_regular(path)
            data = parse_json(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}; {wanted}") from error
        except ValueError as error:
            raise ConfigError(f"{path} is not JSON: {error}; {wanted}") from error
        settings = data.get("recipe", data) if isinstance(data, dict) else data
        if not isinstance(settings, dict):
            raise ConfigError(f"{path} holds no recipe; {wanted}")
        inner = [settings.get(name) for name in ("optimizer", "overrides")]
        names = {*settings}.union(*(each for each in inner if isinstance(each, dict)))
        renamed = [
            f"{old} is now {new}"
            for old, new in (RENAMED | RENAMED_ENCODER).items()
            if old in names
        ]
        if renamed:
            note(f"{path} is of an earlier release: {', '.join(renamed)}")
        return cls.from_dict(settings)


class EpochsRecipe(Recipe):
    """Base of the recipes whose length is in passes over their examples."""

    budgets = ("epochs", "steps")
    epochs: float | None
    batch_size: int
    max_length: int

    def _check_common(self) -> None:
        super()._check_common()
        check_number(self, "epochs", 0.001, 1e6, optional=True)
        for name in ("batch_size", "evaluations"):
            check_whole(self, name, 1, 2**31)
        check_whole(self, "max_length", 5, 2**20)
        check_whole(self, "microbatch_tokens", self.max_length, 2**31)
        check_number(self, "encoder_dropout", 0, MAX_DROPOUT)
        if (self.steps is None) == (self.epochs is None):
            raise ConfigError(
                f"a run has steps or epochs, the other none; got steps {self.steps}, epochs "
                f"{self.epochs}"
            )
        if self.steps is not None:
            self._check_warmup(self.steps)

    def default_optimizer(self, name: OptimizerName) -> OptimizerSpec:
        """The optimizer's own constants, with this recipe's learning rate and schedule."""
        own = {each: getattr(self.optimizer, each) for each in _SCHEDULED}
        return replace(OPTIMIZERS[name], **own)

    def total_steps(self, num_units: int) -> int:
        """Optimizer steps over that many texts, questions, windows or pairs; ConfigError where
        warm-up takes more."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        steps = max(round(self.epochs * -(-num_units // self.batch_size)), 1)
        self._check_warmup(steps)
        return steps


_SCHEDULED = (
    "learning_rate",
    "betas",
    "warmup",
    "schedule",
    "decay_power",
    "decay_end",
    "decay_fraction",
    "max_grad_norm",
)
"""What a recipe for examples keeps where it changes its optimizer."""


def difference(then: Recipe, now: Recipe) -> list[str]:
    """One readable line for each differing setting that affects what is learned; none if a run can
    resume."""
    before, after = (dict(_leaves(recipe.to_dict())) for recipe in (then, now))
    return [
        f"{name}: {_shown(before.get(name))} in the run, {_shown(after.get(name))} now"
        for name in before | after
        if name.split(".")[0] not in now.practical and before.get(name) != after.get(name)
    ]


def current_names(data: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a recipe file by the names of this release."""
    return _renamed(data, RENAMED)


def _renamed(
    data: Mapping[str, Any],
    names: Mapping[str, str],
    *,
    overrides: Callable[[Mapping[str, Any]], dict[str, Any]] = current_settings,
) -> dict[str, Any]:
    """With other names, also in the optimizer and, by `overrides`, in the encoder's settings; where
    both names are present, nothing is lost."""

    def inner(name: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        if name == "overrides":
            return overrides(value)
        return _renamed(value, names) if name == "optimizer" else value

    return {
        name if names.get(name, name) in data else names.get(name, name): inner(name, value)
        for name, value in data.items()
    }


def _write(settings: Any) -> dict[str, Any]:
    """The fields of a settings dataclass as JSON types."""
    hints = get_type_hints(type(settings))
    return {
        each.name: _to_json(getattr(settings, each.name), hints[each.name])
        for each in fields(settings)
    }


def _to_json(value: Any, hint: Any) -> Any:
    match value:
        case OptimizerSpec():
            return _write(value)
        case ClassWeights():
            return value.to_json()
        case FractionStages() if value.is_constant:
            return value.values[0]
        case Stages() | FractionStages():
            return str(value)
        case tuple():
            return dict(value) if _holds_pairs(hint) else list(value)
        case _:
            return value


def _read(what: str, settings: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a settings dataclass from JSON, by current names; unknown ones are
    refused."""
    names = [each.name for each in fields(settings)]
    values = _renamed(data, {old: new for old, new in RENAMED.items() if new in names})
    for name in values:
        check_known(f"{what} setting", name, names)
    hints = get_type_hints(settings)
    return {name: _from_json(name, value, hints[name]) for name, value in values.items()}


def _from_json(name: str, value: Any, hint: Any) -> Any:
    if hint is OptimizerSpec:
        return OptimizerSpec(**_read(name, OptimizerSpec, _json_object(name, value)))
    if hint is ClassWeights:
        return ClassWeights.of(value)
    for stages in (Stages, FractionStages):
        if stages in (hint, *get_args(hint)) and value is not None:
            return stages.parse(str(value))
    if _holds_pairs(hint):
        return tuple(_json_object(name, value).items())
    return tuple(value) if isinstance(value, list) else value


def _holds_pairs(hint: Any) -> bool:
    return get_origin(hint) is tuple and get_origin(get_args(hint)[0]) is tuple


def _json_object(what: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{what} is a JSON object; got {shorten(value)}")
    return value


def _leaves(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _shown(value: object) -> str:
    return "none" if value is None else clip(str(value))
