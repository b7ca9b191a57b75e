"""The task that one's own examples make: labels found in the data, scores that fit. Examples in,
Task out."""

import math
from collections.abc import Iterator, Mapping, Sequence

from litebert.config import HeadKind
from litebert.errors import DataError
from litebert.tasks.examples import AnswerExample, Kind, TagExample, TaskExample, TextExample
from litebert.tasks.tables.bad_rows import BadRowError
from litebert.tasks.task import HEADS, Task

SCORES: Mapping[Kind, tuple[str, ...]] = {
    "classify": ("accuracy", "macro_f1", "matthews"),
    "pair": ("accuracy", "macro_f1", "matthews"),
    "regress": ("pearson", "spearman", "mean_squared_error"),
    "choose": ("accuracy",),
    "answer": ("f1", "exact"),
    "tag": ("accuracy",),
}
ENTITIES = ("f1", "precision", "recall", "accuracy")
"""Of tags in the scheme of B-, I- and O."""
LABELLED: tuple[Kind, ...] = ("classify", "pair", "tag")
MANY = 50
"""Rows from which on a different label for every row is taken for a wrong column."""


def make_task(
    kind: Kind, labels: tuple[str, ...], splits: Mapping[str, Sequence[TaskExample]]
) -> Task:
    """What is asked of these examples."""
    examples = (example for split in splits.values() for example in split)
    has_null = any(
        isinstance(example, AnswerExample) and example.answers == () for example in examples
    )
    head: HeadKind = "joint_span" if has_null else HEADS[kind]
    entities = kind == "tag" and any(label.startswith(("B-", "I-")) for label in labels)
    return Task(
        name=kind,
        kind=kind,
        scores=ENTITIES if entities else SCORES[kind],
        labels=labels,
        head=head,
        has_null=has_null,
    )


def find_labels(kind: Kind, examples: Sequence[TaskExample], where: str) -> tuple[str, ...]:
    """All labels of the examples, numbers by their size and words by the alphabet; DataError where
    nothing can be learned."""
    truths = [truth for example in examples for truth in _truths(example)]
    found = set(truths)
    if len(found) == 1:
        what = "number" if kind == "regress" else "label"
        raise DataError(
            f"{where}: the only {what} is {truths[0]!r}, in {len(truths):,} places; two or more "
            "are needed to learn"
        )
    if kind not in LABELLED:
        return ()
    if kind != "tag" and len(found) == len(truths) >= MANY:
        raise DataError(
            f"{where}: all {len(truths):,} rows have labels of their own, such as {truths[0]!r}; "
            "name the label's column"
        )
    return tuple(sorted(map(str, found), key=_order))


def expect_known(example: TaskExample, labels: Sequence[str]) -> None:
    """BadRowError for a label that a model could not have learned."""
    for truth in _truths(example) if labels else ():
        if truth not in labels:
            shown = ", ".join(labels[:20]) + (", …" if len(labels) > 20 else "")
            raise BadRowError(f"the label {truth!r} is unknown; known are: {shown}")


def _truths(example: TaskExample) -> Iterator[str | float]:
    if isinstance(example, TextExample) and example.label is not None:
        yield example.label
    elif isinstance(example, TagExample):
        yield from example.tags or ()


def _order(label: str) -> tuple[int, float, str]:
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    return (1, 0.0, label) if math.isnan(number) else (0, number, label)
