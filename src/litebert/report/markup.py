"""Text into HTML: everything that a run says passes through here, since names and texts are not to
be trusted."""

import html
from typing import Any

# A page shows them as nothing or as something else; a reader should see that something stood there.
_UNSEEN = dict.fromkeys(
    [*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd"
)
for _kept in "\t\n\r":
    _UNSEEN[ord(_kept)] = " "


def text(value: object, limit: int = 400) -> str:
    """Any value as safe text of a page, cut where it is longer than `limit` characters."""
    plain = str(value)
    if len(plain) > limit:
        plain = plain[:limit] + "…"
    return html.escape(plain.translate(_UNSEEN))


def cell(value: object, kind: str = "td", **attributes: str) -> str:
    """A table's cell of plain text."""
    return f"<{kind}{_attributes(attributes)}>{text(value)}</{kind}>"


def table(head: list[str], rows: list[list[str]], *, numbers: bool = True) -> str:
    """A table that scrolls within its box; `head` is plain text, `rows` hold finished cells."""
    top = "".join(cell(name, "th", scope="col") for name in head)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    kind = "scroll numbers" if numbers else "scroll"
    return f'<div class="{kind}" tabindex="0"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def fold(title: str, body: str, *, open: bool = False) -> str:
    """A part that opens and closes."""
    return f"<details{' open' if open else ''}><summary>{text(title)}</summary>{body}</details>"


def shown(value: Any) -> str:
    """A setting as a person writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, list):
        return ", ".join(map(shown, value)) or "none"
    return str(value)


def _attributes(attributes: dict[str, str]) -> str:
    return "".join(
        f' {name.rstrip("_")}="{html.escape(value)}"' for name, value in attributes.items()
    )
