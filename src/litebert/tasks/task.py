"""A task: what kind of question it is, its labels and its scores. Benchmarks are entries of a
table, one's own files make theirs from the data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from litebert.config import HeadKind
from litebert.tasks.examples import Kind, TaskExample

HEADS: dict[Kind, HeadKind] = {
    "classify": "classify",
    "pair": "classify",
    "regress": "regress",
    "choose": "choose",
    "answer": "span",
    "tag": "tag",
}


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is asked and how an answer is scored; no examples."""

    name: str
    """sst2, squad2, race …, or the kind for one's own files."""
    kind: Kind
    """The shape of its examples."""
    scores: tuple[str, ...]
    """Names of its scores; the first chooses the best checkpoint."""
    labels: tuple[str, ...] = ()
    """Of classify, pair and tag."""
    head: HeadKind
    """What answers: HEADS[kind], or joint_span for SQuAD 2."""
    has_null: bool = False
    """Whether a question may have no answer."""


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """A task with its examples."""

    task: Task
    splits: Mapping[str, Sequence[TaskExample]]
    """By name: train, dev, test; MNLI has dev and dev_mismatched. Only those that the files
    have."""
    notes: tuple[str, ...] = ()
    """What the user should know of the reading: columns recognised, rows left out, a split that was
    cut from train."""
