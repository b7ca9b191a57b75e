"""A study as frozen data: a base recipe × changed settings × seeds, beside the paper's rows.

A name of the catalog or a TOML file in; a Study out. No torch.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from litebert.checks import (
    check_choice,
    check_known,
    check_number,
    check_whole,
    is_number,
    shorten,
)
from litebert.errors import ConfigError
from litebert.files import check_regular
from litebert.recipes import FinetuneRecipe, PretrainRecipe, named
from litebert.tasks.registry import BENCHMARKS

ScaleName = Literal["cpu", "gpu-hour", "paper"]
Kind = Literal["pretrain", "count", "speed"]
Chart = Literal["points", "curves", "distances", "exits"]
Method = Literal["encoder", "word2vec", "doc2vec", "glove", "causal"]
Probe = Literal["order", "gap", "rows", "distances", "blimp", "vectors"]
Together = Literal["seed", "all"]

MEASURES: dict[str, tuple[str, str]] = {
    "masked_loss": ("masked loss", "masked-token loss on held-out text, in nats"),
    "masked_accuracy": ("masked accuracy, %", "masked tokens of held-out text predicted"),
    "sop_accuracy": ("SOP accuracy, %", "sentence orders told by the model's own head"),
    "nsp_accuracy": ("NSP accuracy, %", "next sentences told by the model's own head"),
    "sop_probe": ("SOP probe, %", "sentence orders told by a linear probe of frozen states"),
    "nsp_probe": ("NSP probe, %", "next sentences told by a linear probe of frozen states"),
    "gap": ("gap", "masked loss on held-out minus on training text, 15 % masked, in nats"),
    "touched": ("rows touched, %", "part of the vocabulary that the input of one step holds"),
    "text_loss": ("loss on the text", "masked-token loss on the file of --text, in nats"),
    "text_accuracy": ("accuracy on the text, %", "masked tokens of that file predicted"),
    "blimp": ("BLiMP, %", "minimal pairs of grammar told, mean over paradigms"),
    "agreement": ("agreement, %", "the same, paradigms of subject–verb agreement alone"),
    "exit_full": ("all layers, %", "score of the last layer on dev, mean over tasks"),
    "exit_fixed": ("half: fixed depth, %", "score of the exit after half of the layers"),
    "exit_confidence": ("half: confidence, %", "score at half the mean depth, by confidence"),
    "exit_patience": ("half: patience, %", "score at half the mean depth, by patience"),
    "exit_cumulative": ("half: cumulative, %", "score at half the mean depth, by cumulative"),
    "frozen": ("frozen vectors, %", "mean over tasks of a linear model of frozen vectors"),
    "tokens": ("tokens, M", "tokens trained on, in millions"),
    "seconds": ("seconds", "time in training steps"),
    "smaller": ("× smaller", "parameters of the control divided by the row's"),
    "saved": ("saved, %", "part of the same model's unshared parameters that sharing saves"),
    "embedding": ("embedding, %", "share of the parameters in the embedding"),
    "gradient_bytes": ("gradients, MB", "what ranks exchange in a step, in float32"),
    "optimizer_bytes": ("optimizer, MB", "the optimizer's two moments, in float32"),
    "tokens_per_second": ("tokens/s", "training speed"),
    "speed": ("× speed", "training speed divided by the control's"),
    "two_ranks": ("2 ranks ÷ 1", "training speed with two ranks divided by that with one"),
}
"""What a run is measured by, beside scores of downstream tasks: head of the column, meaning."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a study's table."""

    name: str
    """What distinguishes the row, as the table prints it."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the scale's recipe, named as flags of `litebert pretrain` are; `encoder` holds
    encoder settings."""
    at: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Further changes at one scale, by its name."""
    start: str = ""
    """The row whose weights, of the same seed, this one starts from."""
    data: str = ""
    """more: trained on the shards of --more-data instead."""
    method: Method = "encoder"
    """How it is trained: encoder (litebert pretrain), or a baseline of the encoder's width:
    word2vec, doc2vec, glove, causal (a causal language model of the encoder's shape)."""
    members: tuple[str, ...] = ()
    """Rows whose fine-tuned models are averaged: nothing is trained."""
    together: Together = "seed"
    """Which of their models: those of one seed (an ensemble for each seed), or all."""
    paper: Mapping[str, float | str] = field(default_factory=dict)
    """The paper's cells of this row, by column."""

    @property
    def slug(self) -> str:
        """Its name in the names of its runs' folders."""
        return re.sub(r"[\W_]+", "-", self.name.lower()).strip("-") or "row"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What every row of a study has in common at one scale."""

    recipe: str = "affordable"
    """A named recipe."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Changes to it, as in a row."""
    seeds: int = 3
    """Runs of a row."""
    tasks: tuple[str, ...] = ()
    """Benchmarks that every run is fine-tuned on, where their train and dev are at hand."""
    finetune: Mapping[str, str | float] = field(default_factory=dict)
    """Settings of fine-tuning, named as flags of `litebert finetune` are: exits = "each"."""
    minutes: float | None = None
    """Train every run for this time instead: the number of tokens follows from its speed."""
    ranks: int = 1
    """Of a speed study: processes that a model is timed with once more."""
    pairs: int | None = None
    """Minimal pairs of each paradigm; all when left out."""
    note: str = ""
    """Which model this is, and what differs from the paper's."""

    def __post_init__(self) -> None:
        check_whole(self, "seeds", 1, 10**6)
        check_whole(self, "ranks", 1, 10**6)
        check_whole(self, "pairs", 1, 10**9, optional=True)
        check_number(self, "minutes", 0.001, 1e9, optional=True)
        for task in self.tasks:
            check_known("task", task, BENCHMARKS)
        FinetuneRecipe.check_settings(self.finetune)


@dataclass(frozen=True, kw_only=True)
class Study:
    """A table to make: rows × seeds at a scale."""

    name: str
    title: str
    question: str = ""
    """What it asks, in one sentence."""
    source: str = ""
    """The table or figure of the paper."""
    kind: Kind = "pretrain"
    """pretrain (train every row), count (count parameters) or speed (time a few steps)."""
    chart: Chart = "points"
    """points (a measure by row), curves (by tokens) or distances (of states between layers)."""
    measures: tuple[str, ...] = ("masked_loss", "masked_accuracy")
    """Columns of the table; the first one is drawn."""
    probes: tuple[Probe, ...] = ()
    """What is measured on the trained model, beside held-out text: order (linear probes), gap,
    rows, distances, blimp, vectors (tasks by a linear model of frozen vectors)."""
    interaction: tuple[str, ...] = ()
    """Rows a, b, c, d whose differences are compared: (a − b) − (c − d), of the first measure."""
    control: str = ""
    """The row that others are compared with; the first one where this is empty."""
    rows: tuple[Row, ...]
    scales: Mapping[str, Scale]
    """By name: cpu, gpu-hour, paper."""

    def __post_init__(self) -> None:
        check_choice(self, "kind", get_args(Kind))
        check_choice(self, "chart", get_args(Chart))
        names = [row.name for row in self.rows]
        if not names or len(set(names)) < len(names):
            raise ConfigError(
                f"study {self.name}: rows have names of their own, at least one; got {names}"
            )
        by_slug = {row.slug: row.name for row in self.rows}
        for row in self.rows:
            if by_slug[row.slug] != row.name:
                raise ConfigError(
                    f"study {self.name}: rows {row.name!r} and {by_slug[row.slug]!r} would have "
                    f"the same folder, {row.slug}-seed0; give one another name"
                )
        if self.control and self.control not in names:
            check_known("row", self.control, names)
        for measure in self.measures:
            check_known("measure", measure, MEASURES)
        for name in self.scales:
            check_known("scale", name, get_args(ScaleName))
        for probe in self.probes:
            check_known("probe", probe, get_args(Probe))
        self._check_rows(names)
        for name in self.scales:  # every recipe is checked before the first run
            for row in self.rows:
                self.recipe(row, name)

    def _check_rows(self, names: list[str]) -> None:
        """Rows name rows that there are, and none starts from itself or from a later one."""
        if len(self.interaction) not in (0, 4):
            raise ConfigError(f"study {self.name}: an interaction names four rows")
        for name in self.interaction:
            check_known("row", name, names)
        for number, row in enumerate(self.rows):
            check_choice(row, "method", get_args(Method))
            check_choice(row, "together", get_args(Together))
            check_choice(row, "data", ("", "more"))
            for other in (*row.members, *((row.start,) if row.start else ())):
                check_known("row", other, names)
                if other not in names[:number] or self.row(other).members:
                    raise ConfigError(
                        f"study {self.name}, row {row.name!r}: it needs the trained row {other!r}, "
                        "which comes before it"
                    )

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    @property
    def measured(self) -> tuple[Probe, ...]:
        """What is measured on the trained model, also for the chart."""
        if self.chart == "distances" and "distances" not in self.probes:
            return (*self.probes, "distances")
        return self.probes

    @property
    def reference(self) -> Row:
        """The row that others are compared with."""
        return next((row for row in self.rows if row.name == self.control), self.rows[0])

    def scale(self, name: str) -> Scale:
        if name not in self.scales:
            raise ConfigError(
                f"study {self.name} has no scale {name!r}; it has {', '.join(self.scales)}"
            )
        return self.scales[name]

    def recipe(self, row: Row, scale: str, *, seed: int = 0) -> PretrainRecipe:
        base = self.scale(scale)
        layers: list[Mapping[str, Any]] = [base.settings, row.settings, row.at.get(scale, {})]
        settings: dict[str, Any] = {"seed": seed}
        for changes in layers:
            own = changes.get("encoder", {})
            if not isinstance(own, Mapping):
                raise ConfigError(
                    f"study {self.name}, row {row.name!r}: encoder is a table of its settings; got "
                    f"{shorten(own)}"
                )
            settings |= {**changes, "encoder": {**settings.get("encoder", {}), **own}}
        try:
            return named(base.recipe).changed(PretrainRecipe.read_settings(settings))
        except ConfigError as error:
            raise ConfigError(f"study {self.name}, row {row.name!r}: {error}") from error


def with_tokens(study: Study, scale: str, tokens: int) -> Study:
    """The study with runs of another length: a row that has a length of its own keeps its ratio to
    the others. The note of the scale says so."""
    own = study.scale(scale)
    if own.minutes is not None:
        raise ConfigError(
            f"study {study.name} gives each run its time ({own.minutes:g} minutes), so --tokens "
            "has no meaning; leave it out"
        )
    recipe = named(own.recipe).changed(PretrainRecipe.read_settings(dict(own.settings)))
    usual = recipe.tokens_in(recipe.total_steps) if recipe.tokens is None else recipe.tokens

    def changed(settings: Mapping[str, Any]) -> dict[str, Any]:
        if "tokens" not in settings:
            return dict(settings)
        return {**settings, "tokens": max(round(settings["tokens"] * tokens / usual), 1)}

    rows = tuple(
        replace(
            row,
            settings=changed(row.settings),
            at={name: changed(each) if name == scale else each for name, each in row.at.items()},
        )
        if any("tokens" in each for each in (row.settings, row.at.get(scale, {})))
        else row
        for row in study.rows
    )
    settings = {name: value for name, value in own.settings.items() if name != "steps"}
    if recipe.optimizer.warmup >= 1:  # in steps: the same share of a run of another length
        settings["warmup"] = recipe.optimizer.warmup / recipe.total_steps
    note = f"{own.note} Here with {tokens / usual:.3g} × the tokens: {tokens:,} a run.".strip()
    shorter = replace(own, settings=settings | {"tokens": tokens}, note=note)
    return replace(study, rows=rows, scales={**study.scales, scale: shorter})


def load_study(path: Path | str) -> Study:
    """A study of one's own, from a TOML file."""
    try:
        check_regular(path)
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    return read_study({"name": Path(path).stem, "title": Path(path).stem} | data)


def read_study(data: Mapping[str, Any]) -> Study:
    """The inverse of `asdict`; an unknown field is refused with the nearest known one."""
    settings = dict(data) if isinstance(data, Mapping) else {}
    for name, kind in (("rows", list), ("scales", Mapping)):
        if not isinstance(settings.get(name), kind):
            raise ConfigError(f"a study has {name}: [[rows]] and [scales.cpu] in TOML")
    settings["rows"] = [Row(**_read("setting of a row", Row, row)) for row in settings["rows"]]
    settings["scales"] = {
        name: Scale(**_read("setting of a scale", Scale, scale))
        for name, scale in settings["scales"].items()
    }
    return Study(**_read("study setting", Study, settings))


def _read(what: str, kind: type, data: Any) -> dict[str, Any]:
    """The fields of a dataclass from JSON or TOML, each of its type; lists become tuples."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"a {what} is name = value; got {shorten(data)}")
    hints, values = get_type_hints(kind), {}
    for name, value in data.items():
        check_known(what, name, hints)
        values[name] = tuple(value) if isinstance(value, list) else value
        if not _fits(values[name], hints[name]):
            raise ConfigError(
                f"the {what} {name} is {_expected(hints[name])}; got {shorten(value)}"
            )
    if "name" in hints and "name" not in values:
        raise ConfigError(f"each row has a name; got {shorten(dict(data))}")
    return values


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; which literals there are, the dataclass checks."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or origin is Literal:
        return True
    if origin is UnionType:
        return any(_fits(value, each) for each in inner)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(each, inner[0]) for each in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(each, inner[1]) for each in value.values())
    if hint in (int, float):
        return is_number(value) and (hint is float or isinstance(value, int))
    return isinstance(value, hint)


def _expected(hint: Any) -> str:
    """A type in words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return " or ".join(_expected(each) for each in inner if each is not NoneType)
    if origin is tuple:
        return f"a list, each {_expected(inner[0])}"
    if origin is Mapping:
        return "a table" if inner[1] is Any else f"a table, each {_expected(inner[1])}"
    return {int: "a whole number", float: "a number"}.get(hint, "a text")
