"""Which curves a report draws: the names found in runs in; panels, in the order a doubting reader
asks for them, out."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from litebert.report.run import Run
from litebert.report.scale import is_share

SPEED = "tokens_per_second"
"""A column made here, from tokens and seconds."""
STAGED = ("sequence_length", "batch_size", "depth")
PLANNED = frozenset({"rate", *STAGED})
"""Columns that the recipe decides."""
MOST = 24
"""Panels of one run at most, whatever its records hold."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One chart."""

    title: str
    trained: str | None = None
    """Column of the step records."""
    held: tuple[str, ...] = ()
    """Names in the evaluations, drawn over it."""
    log: bool = False
    """Whether the vertical axis counts in powers of ten."""
    zero: bool = False
    """Whether the vertical axis begins at 0."""
    guide: tuple[float, str] | None = None
    """A value worth comparing with, and its name."""

    @property
    def share(self) -> bool:
        return is_share(self.trained or self.held[0])


CHANCE = (0.5, "chance")

KNOWN = (
    Panel(title="Masked-token loss", trained="masked_loss", held=("masked_loss",)),
    Panel(title="Loss", trained="loss", held=("loss",)),
    Panel(title="Score", held=("score",)),
    Panel(
        title="Masked-token accuracy",
        trained="masked_accuracy",
        held=("masked_accuracy",),
        zero=True,
    ),
    Panel(title="Accuracy", trained="accuracy", held=("accuracy",)),
    Panel(title="F1", held=("f1",)),
    Panel(title="Exact match", held=("exact",)),
    Panel(title="Matthews' correlation", held=("matthews",)),
    Panel(title="Pearson's correlation", held=("pearson",)),
    Panel(title="Spearman's correlation", held=("spearman",)),
    Panel(
        title="Order accuracy",
        trained="order_accuracy",
        held=("sop_accuracy", "nsp_accuracy"),
        guide=CHANCE,
    ),
    Panel(
        title="Order loss",
        trained="order_loss",
        held=("order_loss", "sop_loss", "nsp_loss"),
        guide=(math.log(2), "chance, ln 2"),
    ),
    Panel(title="Learning rate", trained="rate", zero=True),
    Panel(title="Gradient norm, before clipping", trained="norm", log=True),
    Panel(title="Tokens per second", trained=SPEED, zero=True),
    Panel(title="Perplexity", held=("perplexity",), log=True),
)

COUNTED = frozenset({"step", "epoch", "tokens", "seconds"})
"""Columns that are axes, not curves."""


def choose(runs: Iterable[Run]) -> list[Panel]:
    """The panels that have something to show in any of the runs; those of unknown names last."""
    columns, names = _columns(runs), _names(runs)
    found = []
    for panel in KNOWN:
        trained = panel.trained if panel.trained in columns else None
        held = tuple(name for name in panel.held if name in names)
        if trained or held:
            found.append(replace(panel, trained=trained, held=held))
        columns.discard(panel.trained or "")
        names.difference_update(panel.held)
    if [panel.title for panel in found[:2]] == ["Masked-token loss", "Loss"]:
        found.insert(len(found), replace(found.pop(1), title="Sum of the losses"))
    for name in sorted(columns | names):
        held = (name,) if name in names else ()
        found.append(
            Panel(title=_title(name), trained=name if name in columns else None, held=held)
        )
    return found[:MOST]


def single(panels: Iterable[Panel]) -> list[Panel]:
    """For a comparison: one measure a panel, since colors tell runs apart there."""
    found = []
    for panel in panels:
        if len(panel.held) < 2:
            found.append(panel)
        else:
            found += [
                replace(panel, title=_title(name), trained=None, held=(name,))
                for name in panel.held
            ]
    return found


def _columns(runs: Iterable[Run]) -> set[str]:
    """Columns that change in some run: a constant is a setting, and stands in the recipe."""
    found = set()
    for run in runs:
        if run.total("seconds") > 0 and run.total("tokens") > 0:
            found.add(SPEED)
        for name, column in run.columns.items():
            finite = [value for value in column if math.isfinite(value)]
            changes = (
                bool(lasting_changes(column))
                if name in STAGED
                else bool(finite) and min(finite) < max(finite)
            )
            if name not in COUNTED and finite and (name in _KNOWN_COLUMNS or changes):
                found.add(name)
    return found


def lasting_changes(column: Sequence[float]) -> list[int]:
    """Records from which a column of stages has a new value to stay.

    A batch that is smaller because an epoch ends is no stage, nor are batches of texts that are
    each as long as they are.
    """
    changes = [
        i
        for i in range(1, len(column))
        if column[i] != column[i - 1] and math.isfinite(column[i] + column[i - 1])
    ]
    if len(changes) > len(column) / 10 + 1:
        return []
    return [
        i
        for i in changes
        if column[i + 1 : i + 2] == column[i : i + 1] and column[max(i - 2, 0)] == column[i - 1]
    ]


def _names(runs: Iterable[Run]) -> set[str]:
    finite = {
        name
        for run in runs
        for each in run.evaluations
        for name, value in each.values.items()
        if math.isfinite(value)
    }
    return {
        name for name in finite - COUNTED if name not in STAGED and not name.endswith("_tokens")
    }


_KNOWN_COLUMNS = {panel.trained for panel in KNOWN}


def _title(name: str) -> str:
    words = name.replace("_", " ")
    return {"sop": "SOP", "nsp": "NSP"}.get(words[:3], words[:1].upper() + words[1:3]) + words[3:]
