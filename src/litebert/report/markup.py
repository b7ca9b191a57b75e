"""Values into HTML, numbers as a person reads them. Everything that a run says passes through
here, since names and texts are not to be trusted.
"""

import html
import math
from collections.abc import Iterable
from typing import Any

from litebert.train.progress import duration

# A page shows them as nothing or as something else; a reader should see that something stood there.
_UNSEEN = dict.fromkeys(
    [*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd"
)
for _space in "\t\n\r":
    _UNSEEN[ord(_space)] = " "


def escape(value: object, limit: int = 400) -> str:
    """Any value as safe text of a page, cut where it is longer than `limit` characters."""
    plain = str(value)
    if len(plain) > limit:
        plain = plain[:limit] + "…"
    return html.escape(plain.translate(_UNSEEN))


def cell(value: object, kind: str = "td", **attributes: str) -> str:
    """A table's cell of plain text."""
    return f"<{kind}{_attributes(attributes)}>{escape(value)}</{kind}>"


def table(head: list[str], rows: list[list[str]], *, numbers: bool = True) -> str:
    """A table that scrolls within its box; `head` is plain text, `rows` hold finished cells."""
    top = "".join(cell(name, "th", scope="col") for name in head)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    kind = "scroll numbers" if numbers else "scroll"
    return f'<div class="{kind}" tabindex="0"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def fold(title: str, body: str, *, open: bool = False) -> str:
    """A section that opens and closes."""
    return f"<details{' open' if open else ''}><summary>{escape(title)}</summary>{body}</details>"


def display(value: Any) -> str:
    """A setting as a person writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, list):
        return ", ".join(map(display, value)) or "none"
    return str(value)


def _attributes(attributes: dict[str, str]) -> str:
    return "".join(
        f' {name.rstrip("_")}="{html.escape(value)}"' for name, value in attributes.items()
    )


_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def number(value: float) -> str:
    """Four digits: 3.142, 12,346, 1.2e-05."""
    if not math.isfinite(value):
        return "not finite"
    if abs(value) >= 1e15:
        return f"{value:.3e}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def count(value: float) -> str:
    """61.4 M, 12.5 k, 850."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return (
                f"{value / size:.3g} {unit}"
                if value < 999.5 * size
                else f"{value / size:,.0f} {unit}"
            )
    return f"{value:.4g}"


def spaced(name: str) -> str:
    """masked_loss as masked loss."""
    return name.replace("_", " ")


def measure(name: str, value: float) -> str:
    """A measured number by its name: an accuracy as a percentage, the rest as it is."""
    if is_share(name) and math.isfinite(value) and 0 <= value <= 1:
        return f"{100 * value:.1f} %"
    return number(value)


def is_share(name: str) -> bool:
    """Whether a measure counts right answers, from 0 to 1."""
    return name.rsplit("_", 1)[-1] in ("accuracy", "f1", "exact", "precision", "recall")


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round values (1, 2, 5 times a power of ten) within an interval."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten within an interval; with 2 and 5 times them where it is narrow."""
    decades = math.log10(high / low)
    sizes = (1, 2, 5) if decades <= 2.5 else (1,)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    every = max(1, math.ceil(len(powers) / 8))
    found = [size * 10.0**power for power in powers if power % every == 0 for size in sizes]
    return [tick for tick in found if low * 0.999 <= tick <= high * 1.001]


def axis_ticks(axis: str, high: float, about: int) -> list[tuple[float, str]]:
    """Values and labels of an axis that counts steps, tokens or seconds from 0."""
    if axis != "seconds":
        return [(tick, count(tick)) for tick in ticks(0, high, about)]
    size, unit = next((unit for unit in _UNITS if high >= 2 * unit[0]), _UNITS[-1])
    return [
        (tick * size, f"{tick:.4g} {unit}" if tick else "0")
        for tick in ticks(0, high / size, about)
    ]


def labels(values: Iterable[float], *, share: bool = False) -> list[str]:
    """Labels of a vertical axis."""
    if share:
        return [f"{100 * value:.4g} %" for value in values]
    return [count(value) if value >= 10_000 else f"{value:.4g}" for value in values]


def ago(seconds: float) -> str:
    return f"{seconds / 86_400:.0f} days" if seconds > 2 * 86_400 else duration(seconds)
