"""A number that changes at stated steps of a run: the step and the length of the run in; the number
out. A growing batch, short sequences first, 3 layers then 6 then 12 (ALBERT's warm start, §A.1):
each is one `Stages`. A mask fraction that falls towards the end is `FractionStages`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Generic, Self, TypeVar

from litebert.checks import clip, is_number, shorten
from litebert.errors import ConfigError

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class _Staged(Generic[Number]):
    """A value for each stage."""

    pairs: tuple[tuple[int | float, Number], ...]
    """(start, value) pairs. A start is a step (whole number) or a fraction of the run (below 1);
    the first is 0."""

    example: ClassVar[tuple[str, str]]
    """A constant and stages as text, for messages."""
    _read: ClassVar[Callable[[str], Any]]
    """A value from its text; ValueError where it is none."""

    def __post_init__(self) -> None:
        if not self.pairs or self.pairs[0][0] != 0:
            raise ConfigError(
                f"the first stage starts at 0, as in {self.example[1]}; got "
                f"{str(self) or 'no stage'}"
            )
        for start, value in self.pairs:
            if not is_number(start) or not start >= 0 or (isinstance(start, float) and start >= 1):
                raise ConfigError(
                    "a stage starts at a step (5000) or at a fraction of the run (0.25); got "
                    f"{shorten(start)}"
                )
            self._check_value(value)
        if len({type(start) for start, _ in self.pairs[1:]}) > 1:
            raise ConfigError(
                f"stages start at steps or at fractions of the run, not at both; got "
                f"{clip(str(self))}"
            )
        if any(later <= earlier for (earlier, _), (later, _) in pairwise(self.pairs)):
            raise ConfigError(f"each stage starts after the one before; got {clip(str(self))}")

    @classmethod
    def constant(cls, value: Number) -> Self:
        return cls(((0, value),))

    @classmethod
    def parse(cls, text: str) -> Self:
        """From the form of flags and JSON: "128" or "0:128,0.5:512"; the inverse of `str`."""
        try:
            pairs = (
                [stage.split(":") for stage in text.split(",")] if ":" in text else [["0", text]]
            )
            return cls(tuple((_number(start), cls._read(value)) for start, value in pairs))
        except ValueError:
            constant, stages = cls.example
            raise ConfigError(
                f"stages are a number ({constant}) or start:value pairs ({stages}); got "
                f"{shorten(text)}"
            ) from None

    def __str__(self) -> str:
        if self.is_constant:
            return str(self.pairs[0][1])
        return ",".join(f"{start or 0!r}:{value}" for start, value in self.pairs)

    @property
    def is_constant(self) -> bool:
        return len(self.pairs) == 1 and self.pairs[0][0] == 0

    @property
    def values(self) -> tuple[Number, ...]:
        return tuple(value for _, value in self.pairs)

    def starts(self, steps: int) -> tuple[int, ...]:
        """The step at which each stage begins in a run of `steps` steps."""
        return tuple(
            round(start * steps) if isinstance(start, float) else start for start, _ in self.pairs
        )

    def at(self, step: int, steps: int) -> Number:
        """The value at `step` of a run of `steps` steps; where a short run folds two starts into
        one, the later rules."""
        return [
            value
            for start, value in zip(self.starts(steps), self.values, strict=True)
            if start <= step
        ][-1]

    @staticmethod
    def _check_value(value: Number) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Stages(_Staged[int]):
    """Whole numbers by stage: `Stages(((0, 3), (0.1, 6), (0.25, 12)))` is 3, from a tenth of the
    run 6, from a quarter 12."""

    example = ("128", "0:128,0.5:512")
    _read = int

    @staticmethod
    def _check_value(value: int) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(
                f"the value of a stage is a whole number from 1; got {shorten(value)}"
            )


@dataclass(frozen=True)
class FractionStages(_Staged[float]):
    """Fractions by stage: `FractionStages(((0, 0.35), (0.8, 0.15)))` is 0.35, in the last fifth of
    the run 0.15."""

    example = ("0.15", "0:0.35,0.8:0.15")
    _read = float

    @staticmethod
    def _check_value(value: float) -> None:
        if not is_number(value) or not 0 < value < 1:
            raise ConfigError(
                f"the value of a stage is a fraction from 0 to 1; got {shorten(value)}"
            )


def _number(text: str) -> int | float:
    return float(text) if "." in text or "e" in text.lower() else int(text)
