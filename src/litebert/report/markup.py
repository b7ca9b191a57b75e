"""Values into HTML, numbers as a person reads them. Everything that a run says passes through
here, since names and texts are not to be trusted.
"""

import html
import math
from typing import Any

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


def cell(value: object, kind: str = "") -> str:
    """A table's cell of plain text; `kind` is its class in page.css."""
    return f'<td class="{kind}">{escape(value)}</td>' if kind else f"<td>{escape(value)}</td>"


def row_head(value: object) -> str:
    """The first cell of a row, which names it."""
    return f'<th scope="row">{escape(value)}</th>'


def table(head: list[str], rows: list[list[str]], *, numbers: bool = True) -> str:
    """A table that scrolls within its box; `head` is plain text, `rows` hold finished cells."""
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    kind = "scroll numbers" if numbers else "scroll"
    html = f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="{kind}" tabindex="0">{html}</div>'


def fold(title: str, body: str) -> str:
    """A section that opens and closes."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


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
            digits = ".3g" if value < 999.5 * size else ",.0f"
            return f"{value / size:{digits}} {unit}"
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
