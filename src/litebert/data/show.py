"""Examples for a person to read. In: a batch and the texts of all tokens. Out: for each row, the
tokens of its segments with what was masked, the order in words, and a rendering for the terminal.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from rich.text import Text

from litebert.data.batch import Batch
from litebert.recipes.pretrain import Order
from litebert.terminal import escape

Kind = Literal["", "mask", "random", "kept"]

_UNDERLINE = "▁"
_COLORS = ("cyan", "yellow")
"""Of segment a and segment b."""
LEGEND = "⟦replaced by [MASK]⟧  ⟦masked→random token shown⟧  ⟨masked, shown as it is⟩"
_ORDERS: dict[Order, tuple[str, str]] = {
    "sop": ("in order: b follows a in the text", "swapped: the text has b before a"),
    "nsp": ("next: b follows a in its document", "random: b comes from another document"),
    "none": ("as in the text; order is not predicted",) * 2,
}


@dataclass(frozen=True, kw_only=True)
class _Token:
    """A token of the text: what the model sees, what stood there, and how it was masked."""

    text: str
    original: str
    kind: Kind


@dataclass(frozen=True, kw_only=True)
class ShownExample:
    """One row of a batch."""

    number: int
    """In the epoch's plan."""
    label: int
    order: str
    """The order, in words."""
    segments: tuple[tuple[_Token, ...], tuple[_Token, ...]]

    @property
    def num_masked(self) -> int:
        return sum(token.kind != "" for segment in self.segments for token in segment)

    @property
    def num_tokens(self) -> int:
        """With [CLS] and [SEP]."""
        return 1 + sum(len(segment) + 1 for segment in self.segments if segment)

    def to_dict(self) -> dict[str, Any]:
        """JSON's own types: the original text of both segments, and each masked token."""
        return {
            "number": self.number,
            "tokens": self.num_tokens,
            "order_label": self.label,
            "order": self.order,
            "a": _join(self.segments[0]).strip(),
            "b": _join(self.segments[1]).strip(),
            "hidden": [
                {
                    "segment": name,
                    "place": position,
                    "was": token.original,
                    "is": token.text,
                    "how": token.kind,
                }
                for name, segment in zip("ab", self.segments, strict=True)
                for position, token in enumerate(segment)
                if token.kind
            ],
        }

    def render(self) -> Text:
        """Two segments in two colors; masked tokens are marked by brackets, too."""
        text = Text()
        text.append(f"example {self.number}", style="bold")
        text.append(f" · {self.num_tokens} tokens, {self.num_masked} masked · {self.order}\n")
        text.append("[CLS]", style="dim")
        for segment, color in zip(self.segments, _COLORS, strict=True):
            for kind, run in groupby(segment, key=lambda token: token.kind):
                _append(text, kind, list(run), color)
            if segment:
                text.append(" [SEP]", style="dim")
        return text


def _append(text: Text, kind: Kind, run: list[_Token], color: str) -> None:
    if kind == "":
        text.append(escape(_join(run)), style=color)
        return
    for tokens in [[token] for token in run] if kind == "random" else [run]:
        words = escape(_join(tokens))
        gap, words = (" ", words[1:]) if words.startswith(" ") else ("", words)
        words = words or "␣"  # SentencePiece has a token for the space alone
        text.append(gap)
        if kind == "mask":
            text.append(f"⟦{words}⟧", style=f"bold reverse {color}")
        elif kind == "random":
            now = escape(tokens[0].text.removeprefix(_UNDERLINE))
            text.append(f"⟦{words}→{now}⟧", style="bold white on red")
        else:
            text.append(f"⟨{words}⟩", style=f"bold underline {color}")


def _join(tokens: Iterable[_Token]) -> str:
    """The text of tokens: the underline of SentencePiece stands for a space."""
    return "".join(token.original for token in tokens).replace(_UNDERLINE, " ")


def describe(
    batch: Batch, tokens: Sequence[str], *, mask_id: int, order: Order
) -> list[ShownExample]:
    """Every row of a batch, ready to be shown."""
    originals = batch.token_ids.copy()
    originals.reshape(-1)[batch.masked_positions] = batch.masked_labels
    masked = set(batch.masked_positions.tolist())
    seq = batch.token_ids.shape[1]
    examples = []
    for row in range(len(batch)):
        segments: tuple[list[_Token], list[_Token]] = ([], [])
        for column in range(int(batch.mask[row].sum())):
            now, was = int(batch.token_ids[row, column]), int(originals[row, column])
            kind: Kind = ""
            if row * seq + column in masked:
                kind = "mask" if now == mask_id else "kept" if now == was else "random"
            segments[int(batch.segment_ids[row, column])].append(
                _Token(text=tokens[now], original=tokens[was], kind=kind)
            )
        a, b = segments
        label = int(batch.order_labels[row])
        examples.append(
            ShownExample(
                number=int(batch.indices[row]),
                label=label,
                order=_ORDERS[order][label],
                segments=(tuple(a[1:-1]), tuple(b[:-1])),  # without [CLS] and [SEP]
            )
        )
    return examples
