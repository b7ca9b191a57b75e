"""Rows of related texts in; units of texts out, by what a table's columns say of them.

A unit is what is drawn and never divided: an anchor, its positive, and hard negatives after it; a
pair and its score; a text; or a text and its teacher's vector.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import numpy as np

from litebert.checks import list_names, shorten
from litebert.data.bad_rows import BadRowError, BadRows, Location
from litebert.errors import DataError
from litebert.packing import row_bounds
from litebert.shapes import Float, Int
from litebert.tasks.tables.columns import TableOptions, expect_column, plain_name
from litebert.tasks.tables.rows import Row

Relation = Literal["contrast", "score", "teacher"]
"""What is known of a unit's texts: which belong together, how alike two are, or their vectors."""
_FIRST = "anchor query question premise sentence1 text1 text_a sentence_a question1 first #1_string"
_SECOND = (
    "positive pos answer passage hypothesis sentence2 text2 text_b sentence_b question2 second "
    "#2_string document"
)
_NEGATIVE = re.compile(r"(hard_)?neg(ative)?s?(_?\d+)?")
_SCORE, _LABEL = "score similarity relatedness", "label gold_label"
_ALONE = "text sentence"
_NLI = ("entailment", "neutral", "contradiction")
_NO_LABEL = ("-", "")
"""What SNLI writes where annotators did not agree."""
Table = tuple[str, list[str], Iterator[tuple[Location, Row]]]
"""The name, columns and rows of a table."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Units:
    """Units as numbers of texts, one after another."""

    relation: Relation
    texts: Sequence[str]
    """Every text once."""
    numbers: Int[np.ndarray, " mentions"]
    """Of each unit the texts, in order."""
    bounds: Int[np.ndarray, " units_plus_one"]
    """Where each unit begins in `numbers`, and the end of the last."""
    scores: Float[np.ndarray, " units"] | None = None
    """Of scored pairs, from 0 to 1."""
    vectors: Float[np.ndarray, "units size"] | None = None
    """Of a teacher."""

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def is_alone(self) -> bool:
        """Whether positives are the anchors themselves, read twice (SimCSE)."""
        return self.relation == "contrast" and bool(
            (self.numbers[self.bounds[:-1]] == self.numbers[self.bounds[:-1] + 1]).all()
        )

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(self.relation.encode())
        for text in self.texts:
            digest.update(text.encode(errors="surrogatepass") + b"\0")
        for array in (self.numbers, self.bounds, self.scores, self.vectors):
            digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


@dataclass(kw_only=True)
class _Builder:
    """Numbers texts, equal ones once."""

    numbers: dict[str, int] = field(default_factory=dict)
    units: list[list[int]] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    def add(self, *texts: str) -> None:
        self.units.append([self.numbers.setdefault(text, len(self.numbers)) for text in texts])

    def build(self, relation: Relation, **more: Any) -> Units:
        sizes = np.array([len(unit) for unit in self.units], np.int64)
        return Units(
            relation=relation,
            texts=list(self.numbers),
            numbers=np.array([number for unit in self.units for number in unit], np.int64),
            bounds=row_bounds(sizes),
            **more,
        )


@dataclass(frozen=True, kw_only=True)
class _Roles:
    """Which column holds what."""

    first: str
    second: str | None = None
    negatives: tuple[str, ...] = ()
    label: str | None = None
    score: str | None = None

    @classmethod
    def of(cls, names: Sequence[str], options: TableOptions, where: str) -> "_Roles":
        looks = {plain_name(name): name for name in reversed(names)}

        def find(role: str, wanted: str | None, usual: str) -> str | None:
            if wanted is not None:
                expect_column(wanted, role, names, where)
            return wanted or next((looks[look] for look in usual.split() if look in looks), None)

        second = find("second", options.second, _SECOND)
        first = find("text", options.text, _FIRST if second else f"{_ALONE} {_FIRST}")
        if first is None and len(names) == 1:
            first, second = names[0], None
        if first is None or first == second:
            raise DataError(
                f"{where}: the columns are not recognized; expected anchor and positive (and "
                "negative), premise, hypothesis and label, text_a, text_b and score, or text "
                f"alone; the table has: {list_names(names, show=repr)}; name them with --text, "
                "--second and --label"
            )
        if second is None:
            return cls(first=first)
        score = find("label", options.label, _SCORE)
        if score is not None and options.label is None:
            return cls(first=first, second=second, score=score)
        return cls(
            first=first,
            second=second,
            negatives=tuple(
                name
                for look, name in looks.items()
                if _NEGATIVE.fullmatch(look) and name not in (first, second)
            )[::-1],
            label=find("label", options.label, _LABEL),
        )

    def describe(self) -> str:
        negatives = f", negative is {list_names(self.negatives, show=repr)}"
        return (
            f"columns recognized: text is {shorten(self.first)}"
            + (f", second is {shorten(self.second)}" if self.second else ", read twice (SimCSE)")
            + (negatives if self.negatives else "")
            + (f", label is {shorten(self.label)}" if self.label else "")
            + (f", score is {shorten(self.score)}" if self.score else "")
        )


def read_units(
    tables: Iterable[Table], options: TableOptions, bad: BadRows, *, source: object
) -> tuple[Units, tuple[str, ...]]:
    """The units of tables with the same columns, and notes; `source` is the first, for errors."""
    builder, notes, premises = _Builder(), list[str](), _Premises()
    known: _Roles | None = None
    for where, names, rows in tables:
        roles = _Roles.of(names, options, where)
        if known is None:
            notes.append(f"{where}: {roles.describe()}")
        elif known != roles:
            raise DataError(f"{where}: its columns are not those of {source}")
        known = roles
        for location, row in rows:
            try:
                _read_row(row, roles, builder, premises)
            except BadRowError as error:
                bad.add(location, str(error), row)
    assert known is not None
    if known.label is not None:
        notes.append(premises.fill(builder, str(source)))
    if not builder.units:
        raise DataError(f"{source}: there is no row to train on; the first bad row: {bad.first}")
    if known.score is None:
        return builder.build("contrast"), tuple(notes)
    scores = np.array(builder.scores)
    low, high = scores.min(), scores.max()
    if low == high:
        raise DataError(f"{source}: all scores are {low:g}; nothing is to be learned of them")
    notes.append(f"scores from {low:g} to {high:g} are cosines from 0 to 1")
    return builder.build("score", scores=(scores - low) / (high - low)), tuple(notes)


def _read_row(row: Row, roles: _Roles, builder: _Builder, premises: "_Premises") -> None:
    first = _text(row, roles.first)
    if roles.second is None:
        builder.add(first, first)
        return
    second = _text(row, roles.second)
    if roles.label is not None:
        premises.add(first, second, row.get(roles.label))
    elif roles.score is not None:
        try:
            score = float(row.get(roles.score, ""))
        except (TypeError, ValueError, OverflowError):
            score = float("nan")
        if not np.isfinite(score):
            raise BadRowError(
                f"{roles.score} is {shorten(row.get(roles.score))}, expected a number"
            )
        builder.add(first, second)
        builder.scores.append(score)
    else:
        negatives = [row.get(name) for name in roles.negatives]
        each = chain.from_iterable(one if isinstance(one, list) else [one] for one in negatives)
        texts = [one for one in each if isinstance(one, str) and one.strip()]
        builder.add(first, second, *texts)


class _Premises:
    """NLI rows by their premise."""

    def __init__(self) -> None:
        self.entailed: dict[str, list[str]] = {}
        self.contradicted: dict[str, list[str]] = {}
        self.labels = Counter[str]()

    def add(self, premise: str, hypothesis: str, label: Any) -> None:
        label = str(label or "").strip().lower()
        if label not in (*_NLI, *_NO_LABEL):
            raise BadRowError(
                f"the label is {shorten(label)}, expected {', '.join(_NLI)}; numbers that say how "
                "alike two texts are go into a column called score"
            )
        self.labels[label] += 1
        by_label = {"entailment": self.entailed, "contradiction": self.contradicted}
        if label in by_label:
            by_label[label].setdefault(premise, []).append(hypothesis)

    def fill(self, builder: _Builder, where: str) -> str:
        """A unit for each entailed hypothesis, with one contradiction of its premise where there is
        one; a note about them."""
        hard = 0
        for premise, hypotheses in self.entailed.items():
            against = self.contradicted.get(premise, [])
            for number, hypothesis in enumerate(hypotheses):
                negatives = [against[number % len(against)]] if against else []
                hard += len(negatives)
                builder.add(premise, hypothesis, *negatives)
        return (
            f"{where}: {len(builder.units):,} pairs of {self.labels.total():,} NLI rows, {hard:,} "
            "with a hard negative"
        )


def _text(row: Row, column: str) -> str:
    value = row.get(column)
    if not isinstance(value, str) or not value.strip():
        raise BadRowError(f"{column} is empty, expected a text")
    return value
