"""Answers as lines of a file: JSON objects, or the rows of a table. In: what was asked and
answered. Out: bytes.
 A table has a column for each plain number or name of an answer: probabilities of every label have
one each, vectors have none.
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from litebert.errors import ConfigError
from litebert.infer.verbs import Verb

KINDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}
TABLED: dict[Verb, tuple[str, ...]] = {
    "classify": ("label", "probability"),
    "pair": ("label", "probability"),
    "regress": ("value",),
    "choose": ("index", "probability"),
    "answer": ("text", "start", "end", "score", "null_score"),
    "tag": ("tags",),
}
"""Columns of a table, by verb; the labels' own probabilities come behind."""

NAMED: dict[Verb, tuple[str, ...]] = {
    "fill": ("masks",),
    "embed": ("vector",),
    **{verb: (*names, "probabilities") for verb, names in TABLED.items()},
}
"""Names that answers use."""


class Lines:
    """Turns answers into the bytes of a file of one kind."""

    def __init__(
        self, path: Path | str, verb: Verb, *, asked: Sequence[str], labels: Sequence[str] = ()
    ) -> None:
        """`asked` names what stands before an answer: where its row is, and columns that are kept.

        A kept column whose name is taken, as an answer's label takes that of the true one, is
        called input:label.
        """
        kind = KINDS.get(Path(path).suffix.lower())
        if kind is None:
            raise ConfigError(f"--out is a file that ends in {', '.join(KINDS)}; got {path}")
        if kind != "jsonl" and verb not in TABLED:
            raise ConfigError(
                f"what {verb} gives does not fit into a table; write it to a .jsonl file"
            )
        self.kind = kind
        shares = (
            [f"probability:{label}" for label in labels] if verb in ("classify", "pair") else []
        )
        taken = dict.fromkeys((*NAMED[verb], *shares))
        self._asked = tuple(_free(name, taken) for name in asked)
        self.columns = (*self._asked, *TABLED.get(verb, ()), *shares)

    def header(self) -> bytes:
        """What comes before the first row."""
        return b"" if self.kind == "jsonl" else self._table([self.columns])

    def rows(self, asked: Iterable[Sequence[Any]], answers: Iterable[dict[str, Any]]) -> bytes:
        """A line for each answer, behind what was asked."""
        pairs = [
            (dict(zip(self._asked, each, strict=True)), answer)
            for each, answer in zip(asked, answers, strict=True)
        ]
        if self.kind == "jsonl":
            return b"".join(_json(row | answer) for row, answer in pairs)
        return self._table(
            [[_cell(each) for each in (row | _flat(answer)).values()] for row, answer in pairs]
        )

    def _table(self, rows: Iterable[Sequence[str]]) -> bytes:
        if (
            self.kind == "tsv"
        ):  # nothing is quoted there, so that a tab or line end inside a text becomes a space
            return b"".join(
                "\t".join(" ".join(cell.split()) for cell in row).encode() + b"\n" for row in rows
            )
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        return text.getvalue().encode()


def _free(name: str, taken: dict[str, None]) -> str:
    """The name, or what it is called beside others of that name; taken from now on."""
    while name in taken:
        name = f"input:{name}"
    taken[name] = None
    return name


def _flat(answer: dict[str, Any]) -> dict[str, Any]:
    """The parts of an answer that have a column, in the columns' order."""
    shares = answer.get("probabilities")
    if "tags" in answer:
        return {"tags": " ".join(answer["tags"])}
    if isinstance(shares, dict):
        each = {f"probability:{label}": share for label, share in shares.items()}
        return {"label": answer["label"], "probability": shares[answer["label"]], **each}
    if shares is not None:
        return {"index": answer["index"], "probability": shares[answer["index"]]}
    return answer


def _json(row: dict[str, Any]) -> bytes:
    return (
        json.dumps(row, ensure_ascii=False, default=str).encode() + b"\n"
    )  # default: dates and the like that are kept


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
