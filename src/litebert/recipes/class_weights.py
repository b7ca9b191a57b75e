"""How much the examples of each label count in the loss: a word or weights by label in; a checked
setting of the recipe out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from litebert.checks import is_number, shorten
from litebert.errors import ConfigError

_RULES = ("none", "balanced")


@dataclass(frozen=True)
class ClassWeights:
    """`none`, `balanced`, or a weight for some labels, the others having 1."""

    rule: str = "none"
    by_label: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if self.rule not in _RULES:
            raise ConfigError(
                f"class weights are none, balanced or LABEL=WEIGHT …; got {shorten(self.rule)}"
            )
        for label, weight in self.by_label:
            if not is_number(weight) or not 0 < weight < 1e6:
                raise ConfigError(
                    f"the weight of a label is a number above 0; got {shorten(weight)} for "
                    f"{shorten(label)}"
                )

    @classmethod
    def of(cls, value: object) -> Self:
        """From what a recipe's JSON or a Python call has: a word, or an object by label."""
        if isinstance(value, cls):
            return value
        if isinstance(value, Mapping):
            return cls(by_label=tuple((str(label), weight) for label, weight in value.items()))
        return cls(rule="none" if value is None else str(value))

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Self:
        """From a flag's values: balanced, or spam=3 ham=1."""
        if len(texts) == 1 and "=" not in texts[0]:
            return cls(rule=texts[0])
        weights = {}
        for text in texts:
            label, equals, weight = text.rpartition("=")
            try:
                weights[label] = float(weight)
            except ValueError:
                equals = ""
            if not equals:
                raise ConfigError(f"a class weight is written LABEL=WEIGHT; got {shorten(text)}")
        return cls.of(weights)

    def to_json(self) -> str | dict[str, float]:
        return dict(self.by_label) if self.by_label else self.rule

    def __bool__(self) -> bool:
        return bool(self.by_label) or self.rule != "none"

    def __str__(self) -> str:
        return " ".join(f"{label}={weight:g}" for label, weight in self.by_label) or self.rule
