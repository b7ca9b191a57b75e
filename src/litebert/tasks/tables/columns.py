"""Which column holds what: named by the user, or recognized by the names that columns usually have.

In: the kind of task, a table's columns, the user's TableOptions. Out: Columns, and a sentence that
tells what was recognized.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from litebert.checks import check_choice, check_number, check_whole, list_names, shorten
from litebert.data.bad_rows import BadRowPolicy
from litebert.errors import ConfigError, DataError
from litebert.tasks.examples import Kind
from litebert.tasks.tables.encoding import check_encoding

Level = Literal["all", "middle", "high"]


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How task files are read. Columns left at None are recognized by their names, and the choice
    is stated in the notes."""

    text: str | None = None
    """Column of the text, or of a pair's first text."""
    second: str | None = None
    """Column of a pair's second text."""
    label: str | None = None
    """Column of the label; of the number for regress; of the right option for choose (a letter, a
    number from 0, or itself)."""
    context: str | None = None
    """Column of the context that a question is about: choose, answer."""
    question: str | None = None
    """Column of the question: choose, answer."""
    options: tuple[str, ...] | None = None
    """Columns of the options of choose: one for each, or a single one that holds a list."""
    answer: str | None = None
    """Column of the answer's text, or of SQuAD's answers object; empty where a question has
    none."""
    answer_start: str | None = None
    """Column of the answer's first character in the context; without it, the first
    occurrence of the answer."""
    words: str | None = None
    """Column of the words to tag: a list, or a text with white space between."""
    tags: str | None = None
    """Column of the tags, as many as words."""
    slice: str | None = None
    """Column that scores are broken down by."""
    key: str | None = None
    """Column that names a row in the predictions; without it, the row's number from 0."""
    label_separator: str = "auto"
    """What separates several labels in a cell of classify or pair: a text such as ";", none, or
    auto, which splits at ; or | where all labels so found also stand alone. Lists need none."""
    labels: tuple[str, ...] | None = None
    """All labels, in order; without it, those found in train. A checkpoint's own labels go here
    when it is scored."""
    bad_rows: BadRowPolicy = "error"
    """What to do with a row that cannot be used: stop, skip it, or skip it and store a copy."""
    quarantine: str | None = None
    """File that quarantined rows are copied to; without it finetune writes quarantine.jsonl into
    its folder."""
    max_bad_rows: float = 0.1
    """Largest fraction of rows that may be left out; more, if they are ten or more, is an error."""
    encoding: str = "auto"
    """Encoding of text files, such as cp1252 or utf-16; auto is UTF-8 or what the file's first
    bytes say, else a guess that is printed."""
    dev_fraction: float = 0.1
    """Fraction of own rows that becomes dev where there is no file for dev. Evaluation takes the
    model's fraction and seed."""
    test_fraction: float = 0.0
    """Fraction of own rows that becomes test where there is no file for test."""
    split_dev: float | None = None
    """Fraction of a benchmark's dev for scoring where it has no train split; the rest becomes
    train."""
    cut_seed: int = 0
    """Seed of the cuts of splits."""
    stratify: bool = True
    """Give dev and test, where they are cut from own rows, train's share of every label."""
    level: Level = "all"
    """Level of RACE: middle school, high school, or both."""

    def cut(self) -> dict[str, Any]:
        """What decides on cuts, where it is not the default; a fine-tuned model remembers it."""
        chosen = {name: getattr(self, name) for name in CUT}
        return {name: chosen[name] for name in CUT if chosen[name] != getattr(TableOptions, name)}

    def cut_as(self, remembered: Mapping[str, Any]) -> "TableOptions":
        """These options with the remembered cut, except where they have their own."""
        mine = self.cut()
        return replace(self, **{name: remembered[name] for name in remembered if name not in mine})

    def __post_init__(self) -> None:
        check_choice(self, "bad_rows", ("error", "skip", "quarantine"))
        check_choice(self, "level", ("all", "middle", "high"))
        check_number(self, "dev_fraction", 0, 0.9)
        check_number(self, "max_bad_rows", 0, 1)
        check_encoding(self.encoding)
        check_number(self, "test_fraction", 0, 0.9)
        check_number(self, "split_dev", 0.01, 0.9, optional=True)
        check_whole(self, "cut_seed", 0, 2**63)
        if self.dev_fraction + self.test_fraction > 0.95:
            raise ConfigError(
                f"dev_fraction {self.dev_fraction:g} and test_fraction {self.test_fraction:g} "
                "leave less than 5 % to train on"
            )
        if not self.label_separator.strip():
            raise ConfigError('label_separator is a text such as ";", none or auto; got a blank')
        if self.labels is not None and len(set(self.labels)) != len(self.labels):
            raise ConfigError(f"labels are named twice; got {list_names(self.labels)}")


CUT = ("dev_fraction", "test_fraction", "split_dev", "cut_seed")
"""Options that decide which rows are dev."""
_ALWAYS = {"slice": "slice", "key": "id key guid"}  # roles of any kind
_ONE = (
    "text sentence review comment content body document tweet message utterance headline title "
    "question prompt first"
)
_FIRST = "sentence1 text1 premise question1 first text_a sentence_a #1_string query question text"
_SECOND = (
    "sentence2 text2 hypothesis question2 second text_b sentence_b #2_string passage sentence "
    "answer"
)
_LABEL = (
    "label labels gold_label class category target sentiment intent topic gold is_duplicate "
    "quality stars rating score y"
)
_CONTEXT = "context article passage paragraph story document ctx text"
_NAMES: Mapping[Kind, Mapping[str, str]] = {
    "classify": {"label": _LABEL, "text": _ONE},
    "pair": {"label": _LABEL, "text": _FIRST, "second": _SECOND},
    "regress": {
        "label": "score value rating stars similarity number y label target",
        "text": f"{_FIRST} {_ONE}",
        "second": "sentence2 text2 hypothesis question2 second text_b sentence_b #2_string",
    },
    "choose": {
        "options": "options choices endings candidates",
        "label": "label answer correct gold correct_answer answer_index answerkey target",
        "question": "question query stem",
        "context": _CONTEXT,
    },
    "answer": {
        "question": "question query",
        "answer": "answers answer answer_text span",
        "answer_start": "answer_start start",
        "context": _CONTEXT,
    },
    "tag": {
        "tags": "tags ner_tags pos_tags tag ner pos labels label",
        "words": "words tokens text sentence",
    },
}
"""For each kind its roles and the names of their columns, the likelier first; a column has one role
only."""
_OPTIONAL: Mapping[Kind, tuple[str, ...]] = {
    "regress": ("second",),
    "choose": ("context", "question"),
    "answer": ("answer_start",),
}
TRUTH: Mapping[Kind, str] = {
    "classify": "label",
    "pair": "label",
    "regress": "label",
    "choose": "label",
    "answer": "answer",
    "tag": "tags",
}
"""The role of the target: a test split may be without it."""
_SERIES = re.compile(r"(?:option|choice|ending|answer|candidate)?_?([a-z]|\d{1,9})")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The column of each role; None for a role that the table does not have."""

    text: str | None = None
    second: str | None = None
    label: str | None = None
    context: str | None = None
    question: str | None = None
    options: tuple[str, ...] = ()
    answer: str | None = None
    answer_start: str | None = None
    words: str | None = None
    tags: str | None = None
    slice: str | None = None
    key: str | None = None

    def by_role(self) -> dict[str, tuple[str, ...]]:
        """The columns that there are, of the roles that a model is trained on."""
        return {
            role: (value,) if isinstance(value, str) else tuple(value)
            for role, value in vars(self).items()
            if value and role not in _ALWAYS
        }


def find_columns(
    kind: Kind,
    names: Sequence[str],
    options: TableOptions | None = None,
    *,
    where: str = "",
    labeled: bool = False,
    remembered: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[Columns, str]:
    """The columns of a table whose columns are `names`, and what was recognized, in words; "" where
    the user named all.

    `labeled`: the target's column has to be there. `remembered` are the columns that a model was
    fine-tuned on, by role: where they are there, and the user names no other, they are taken.
    """
    options = options or TableOptions()
    usual = _NAMES[kind]
    named_by_user = {
        each.name: value
        for each in fields(Columns)
        if (value := getattr(options, each.name)) is not None
    }
    for role in named_by_user:
        if role not in usual and role not in _ALWAYS:
            raise ConfigError(f"{kind} has no column for {role}; it has: {', '.join(usual)}")
    named: dict[str, tuple[str, ...]] = {}
    for role, value in named_by_user.items():
        chosen = (value,) if isinstance(value, str) else tuple(value)
        is_target = role in (TRUTH[kind], "answer_start")
        if not labeled and is_target and not set(chosen) & set(names):
            continue  # named for train, and not there where nothing is to be learned
        for name in chosen:
            expect_column(name, role, names, where)
        named[role] = chosen
    known = {
        role: columns
        for role, columns in (remembered or {}).items()
        if role in usual
        and role not in named_by_user
        and set(columns) <= set(names)
        and not any(set(columns) & set(taken) for taken in named.values())
    }
    named |= known
    needed = [
        role
        for role in usual
        if role not in _OPTIONAL.get(kind, ()) and (labeled or role != TRUTH[kind])
    ]
    recognized = {
        role: columns
        for role, columns in _recognize(kind, names, named, needed).items()
        if role not in named_by_user
    }
    both = named | recognized
    for role in needed:
        if role not in both:
            raise DataError(_missing(kind, role, names, where))
    if kind == "choose" and not {"context", "question"} & both.keys():
        raise DataError(_missing(kind, "question", names, where))
    columns = Columns(
        options=both.get("options", ()),
        **{role: value[0] for role, value in both.items() if role != "options"},
    )
    sources = {"as in training": known, "recognized": recognized}
    note = "; ".join(
        f"columns {how}: {_describe(chosen, (*usual, *_ALWAYS))}"
        for how, chosen in sources.items()
        if chosen
    )
    return columns, f"{_at(where)}{note}" if note else ""


def _describe(columns: Mapping[str, tuple[str, ...]], roles: Sequence[str]) -> str:
    return ", ".join(
        f"{role} is {list_names(columns[role], show=repr)}" for role in roles if role in columns
    )


def _recognize(
    kind: Kind, names: Sequence[str], named: Mapping[str, tuple[str, ...]], needed: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """The roles that the user did not name, each by the likeliest name among the columns left."""
    plain = {
        plain_name(name): name for name in reversed(names)
    }  # of two that look alike, the first
    free = {
        look: name
        for look, name in plain.items()
        if not any(name in used for used in named.values())
    }
    recognized: dict[str, tuple[str, ...]] = {}
    for role, looks in {**_NAMES[kind], **_ALWAYS}.items():
        if role in named:
            continue
        look = next((look for look in looks.split() if look in free), None)
        if look is not None:
            recognized[role] = (free.pop(look),)
        elif role == "options" and (series := _series(free)):
            recognized[role] = tuple(free.pop(look) for look in series)
    rest = [role for role in needed if role not in named and role not in recognized]
    if len(rest) == 1 and len(free) == 1:
        recognized[rest[0]] = tuple(free.values())  # one role is missing and one column is left
    return recognized


def _series(free: Mapping[str, str]) -> list[str]:
    """Columns such as option_a, option_b, … or ending0, ending1, …: two or more of one stem, in
    order."""
    stems: dict[str, list[tuple[int | str, str]]] = {}
    for look in free:
        if match := _SERIES.fullmatch(look):
            end = match.group(1)
            stem = f"{look[: match.start(1)]}{'0' if end.isdigit() else 'a'}"
            stems.setdefault(stem, []).append((int(end) if end.isdigit() else end, look))
    runs = [sorted(entries) for entries in stems.values()]
    runs = [run for run in runs if len(run) > 1 and run[0][0] in (0, 1, "a")]
    return [look for _, look in max(runs, key=len)] if runs else []


def plain_name(name: str) -> str:
    """A column's name by which it is recognized: "Sentence A" -> sentence_a."""
    return re.sub(r"[\s\-.]+", "_", name.strip().lower())


def expect_column(name: str, role: str, names: Sequence[str], where: str) -> None:
    """DataError where the table has no such column."""
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1)
        meant = f"did you mean {shorten(close[0])}? " if close else ""
        raise DataError(
            f"{_at(where)}there is no column {shorten(name)} for {role}; {meant}{_has(names)}"
        )


def _missing(kind: Kind, role: str, names: Sequence[str], where: str) -> str:
    flag = f"--{role.replace('_', '-')}"
    looks = ", ".join(_NAMES[kind][role].split()[:6])
    return (
        f"{_at(where)}no column is recognized as the {role} of {kind} (by names such as {looks}); "
        f"{_has(names)}; say which one it is with {flag} NAME, or give the table a header line"
    )


def _has(names: Sequence[str]) -> str:
    return f"the table has: {list_names(names, show=repr)}"


def _at(where: str) -> str:
    return f"{where}: " if where else ""
