"""A study as frozen data: a base recipe × changed settings × seeds, beside the paper's rows.

A name of the catalog or a TOML file in; a Study out. No torch.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from litebert.checks import check_choice, check_known
from litebert.errors import ConfigError
from litebert.files import check_regular
from litebert.recipes import PretrainRecipe, named

ScaleName = Literal["cpu", "gpu-hour", "paper"]
Kind = Literal["pretrain", "count", "speed"]
Chart = Literal["points", "curves", "distances"]

MEASURES: dict[str, tuple[str, str]] = {
    "masked_loss": ("masked loss", "masked-token loss on held-out text, in nats"),
    "masked_accuracy": ("masked accuracy, %", "masked tokens of held-out text predicted"),
    "sop_accuracy": ("SOP accuracy, %", "sentence orders told"),
    "nsp_accuracy": ("NSP accuracy, %", "next sentences told"),
    "gap": ("gap", "held-out minus training loss, over the last twentieth of the run, in nats"),
    "seconds": ("seconds", "time in training steps"),
    "smaller": ("× smaller", "parameters of the control divided by the row's"),
    "embedding": ("embedding, %", "share of the parameters in the embedding"),
    "update_bytes": ("update, MB", "gradients and optimizer moments of a step in float32"),
    "tokens_per_second": ("tokens/s", "training speed"),
    "speed": ("× speed", "training speed divided by the control's"),
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
    paper: Mapping[str, float | str] = field(default_factory=dict)
    """The paper's cells of this row, by column."""


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
    """Benchmarks that every run is fine-tuned on, where their files are at hand."""
    note: str = ""
    """Which model this is, and what differs from the paper's."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """A table to make: rows × seeds at a scale."""

    name: str
    """As on the command line."""
    title: str
    """Headline of its table."""
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
    control: str = ""
    """The row that others are compared with; the first one where this is empty."""
    rows: tuple[Row, ...]
    """The rows of the table."""
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
        if self.control and self.control not in names:
            check_known("row", self.control, names)
        for measure in self.measures:
            check_known("measure", measure, MEASURES)
        for name in self.scales:
            check_known("scale", name, get_args(ScaleName))
        for name in self.scales:  # every recipe is checked before the first run
            for row in self.rows:
                self.recipe(row, name)

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
        """The recipe of one run."""
        base = self.scale(scale)
        layers: list[Mapping[str, Any]] = [base.settings, row.settings, row.at.get(scale, {})]
        settings: dict[str, Any] = {"seed": seed}
        for changes in layers:
            settings |= {
                **changes,
                "encoder": {**settings.get("encoder", {}), **changes.get("encoder", {})},
            }
        try:
            return named(base.recipe).changed(PretrainRecipe.read_settings(settings))
        except ConfigError as error:
            raise ConfigError(f"study {self.name}, row {row.name!r}: {error}") from error


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
    """The inverse of `write_study`; an unknown field is refused with the nearest known one."""
    settings = dict(_known("study setting", Study, data))
    for name, kind in (("rows", list), ("scales", Mapping)):
        if not isinstance(settings.get(name), kind):
            raise ConfigError(f"a study has {name}: [[rows]] and [scales.cpu] in TOML")
    rows = tuple(Row(**_known("setting of a row", Row, row)) for row in settings.pop("rows"))
    scales = {
        name: Scale(**_tuples(_known("setting of a scale", Scale, scale)))
        for name, scale in settings.pop("scales").items()
    }
    return Study(rows=rows, scales=scales, **_tuples(settings))


def write_study(study: Study) -> dict[str, Any]:
    """JSON types only."""
    own = {each.name: getattr(study, each.name) for each in fields(study)}
    return own | {
        "rows": [dict(vars(row)) for row in study.rows],
        "scales": {name: dict(vars(scale)) for name, scale in study.scales.items()},
    }


def _known(what: str, kind: type, data: Any) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise ConfigError(f"a {what} is name = value; got {data!r}")
    names = [each.name for each in fields(kind)]
    for name in data:
        check_known(what, name, names)
    return dict(data)


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
    }
