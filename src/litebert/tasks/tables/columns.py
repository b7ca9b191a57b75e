"""Which column holds what: named by the user, or recognised by the names that people give their
columns.
 In: the kind of task, a table's columns, the user's options. Out: Columns, and a sentence that says
what was recognised.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from litebert.errors import ConfigError, DataError
from litebert.tasks.examples import Kind
from litebert.tasks.tables.options import TableOptions

PARTS = (
    "text",
    "second",
    "label",
    "context",
    "question",
    "options",
    "answer",
    "answer_start",
    "words",
    "tags",
)
ALWAYS = {"slice": ("slice",), "key": ("id", "key", "guid")}
"""Parts that any kind may have."""

_ONE = "text sentence review comment content body document tweet message utterance headline title question prompt first"
_FIRST = "sentence1 text1 premise question1 first text_a sentence_a #1_string query question text"
_SECOND = "sentence2 text2 hypothesis question2 second text_b sentence_b #2_string passage sentence answer"
_LABEL = "label labels gold_label class category target sentiment intent topic gold is_duplicate quality stars rating score y"
_CONTEXT = "context article passage paragraph story document ctx text"
NAMES: Mapping[Kind, Mapping[str, str]] = {
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
"""For each kind its parts and the names they are known by, the likelier first; a column serves one
part only."""
OPTIONAL: Mapping[Kind, tuple[str, ...]] = {
    "classify": (),
    "pair": (),
    "regress": ("second",),
    "choose": ("context", "question"),
    "answer": ("answer_start",),
    "tag": (),
}
TRUTH: Mapping[Kind, str] = {
    "classify": "label",
    "pair": "label",
    "regress": "label",
    "choose": "label",
    "answer": "answer",
    "tag": "tags",
}
"""The part that is to be learned: a test split may be without it."""
_SERIES = re.compile(r"(?:option|choice|ending|answer|candidate)?_?([a-z]|\d+)")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Names of the columns that hold each part; None for a part that the table does not have."""

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


def find_columns(
    kind: Kind,
    names: Sequence[str],
    options: TableOptions | None = None,
    *,
    where: str = "",
    labelled: bool = False,
) -> tuple[Columns, str]:
    """The columns of a table whose columns are `names`, and what was recognised, in words; "" where
    the user named all.

    `labelled`: the part that is to be learned has to be there.
    """
    options = options or TableOptions()
    known = NAMES[kind]
    given = {
        part: value for part in (*PARTS, *ALWAYS) if (value := getattr(options, part)) is not None
    }
    for part in given:
        if part not in known and part not in ALWAYS:
            raise ConfigError(f"{kind} has no column for {part}; it has: {', '.join(known)}")
    found: dict[str, tuple[str, ...]] = {}
    for part, value in given.items():
        columns_of = (value,) if isinstance(value, str) else tuple(value)
        if (
            not labelled
            and part in (TRUTH[kind], "answer_start")
            and not set(columns_of) & set(names)
        ):
            continue  # named for train, and not there where nothing is to be learned
        for name in columns_of:
            _expect(name, part, names, where)
        found[part] = columns_of
    needed = [
        part for part in known if part not in OPTIONAL[kind] and (labelled or part != TRUTH[kind])
    ]
    guessed = {
        part: name
        for part, name in _recognise(kind, names, found, needed).items()
        if part not in given
    }
    for part in needed:
        if part not in found and part not in guessed:
            raise DataError(_missing(kind, part, names, where))
    if kind == "choose" and not {"context", "question"} & (found.keys() | guessed.keys()):
        raise DataError(_missing(kind, "question", names, where))
    chosen = found | guessed
    columns = Columns(
        options=chosen.get("options", ()),
        **{part: value[0] for part, value in chosen.items() if part != "options"},
    )
    told = ", ".join(
        f"{part} is {', '.join(map(repr, guessed[part]))}"
        for part in (*known, *ALWAYS)
        if part in guessed
    )
    return columns, f"{_at(where)}columns recognised: {told}" if told else ""


def _recognise(
    kind: Kind, names: Sequence[str], found: Mapping[str, tuple[str, ...]], needed: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """The parts that the user did not name, each by the likeliest name among the columns that are
    left."""
    plain = {_plain(name): name for name in reversed(names)}  # of two that look alike, the first
    free = {
        look: name
        for look, name in plain.items()
        if not any(name in used for used in found.values())
    }
    guessed: dict[str, tuple[str, ...]] = {}
    for part, known in {
        **NAMES[kind],
        **{part: " ".join(looks) for part, looks in ALWAYS.items()},
    }.items():
        if part in found:
            continue
        look = next((look for look in known.split() if look in free), None)
        if look is not None:
            guessed[part] = (free.pop(look),)
        elif part == "options" and (series := _series(free)):
            guessed[part] = tuple(free.pop(look) for look in series)
    rest = [part for part in needed if part not in found and part not in guessed]
    if len(rest) == 1 and len(free) == 1:
        guessed[rest[0]] = tuple(free.values())  # one part is missing and one column is left
    return guessed


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


def _plain(name: str) -> str:
    return re.sub(r"[\s\-.]+", "_", name.strip().lower())


def _expect(name: str, part: str, names: Sequence[str], where: str) -> None:
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        raise DataError(f"{_at(where)}there is no column {name!r} for {part}; {meant}{_has(names)}")


def _missing(kind: Kind, part: str, names: Sequence[str], where: str) -> str:
    flag = f"--{part.replace('_', '-')}"
    looks = ", ".join(NAMES[kind][part].split()[:6])
    return (
        f"{_at(where)}no column is recognised as the {part} of {kind} (by names such as {looks}); "
        f"{_has(names)}; "
        f"say which one it is with {flag} NAME, or give the table a header line"
    )


def _has(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:20])
    return f"the table has: {shown}{', …' if len(names) > 20 else ''}"


def _at(where: str) -> str:
    return f"{where}: " if where else ""
