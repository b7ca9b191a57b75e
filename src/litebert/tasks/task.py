"""A task: the kind of input, its labels and scores; and the cards that fine-tuned models carry.

Benchmarks define their tasks; own files get theirs from the data. A card is stored as task.json
beside the weights and read strictly: a folder may come from anywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, get_args

from litebert.checks import (
    check_choice,
    check_known,
    check_number,
    check_type,
    check_whole,
    is_number,
    shorten,
)
from litebert.config import SIZE_LIMITS, HeadKind, ModelConfig, Pooling
from litebert.errors import ConfigError
from litebert.tasks.examples import Kind, TaskExample

HEADS: dict[Kind, HeadKind] = {
    "classify": "classify",
    "pair": "classify",
    "regress": "regress",
    "choose": "choose",
    "answer": "span",
    "tag": "tag",
}
_OTHER_HEADS: dict[Kind, HeadKind] = {
    "classify": "multilabel",
    "pair": "multilabel",
    "answer": "joint_span",
}
LABELED: tuple[Kind, ...] = ("classify", "pair", "tag")
"""Kinds whose predictions are names from a list."""
_MAX_POSITIONS = SIZE_LIMITS["max_positions"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is predicted and how it is scored; no examples."""

    name: str
    """sst2, squad2, race …, or the kind for own files."""
    kind: Kind
    """The shape of its examples."""
    scores: tuple[str, ...]
    """Names of its scores; the first chooses the best checkpoint."""
    labels: tuple[str, ...] = ()
    """Of classify, pair and tag."""
    head: HeadKind
    """The head that predicts: HEADS[kind]; joint_span for SQuAD 2; multilabel where an example may
    have several labels."""
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
    """For the user: columns recognized, rows skipped, a split that was cut from train."""
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of own tables, by role."""
    stratified: bool = False
    """Whether a split was cut from train with its share of every label."""
    cut: Mapping[str, float] = field(default_factory=dict)
    """By name the options of a cut that are not the default (TableOptions.cut)."""


@dataclass(frozen=True, kw_only=True)
class TaskCard:
    """A task and how its examples become inputs."""

    task: Task
    max_length: int
    """Tokens of an input, with special tokens; longer inputs are truncated, or read in windows
    (answer, tag)."""
    stride: int = 128
    """Tokens from the start of one window to the next; at most half a window, so that neighbors
    overlap."""
    max_question: int = 64
    """Tokens of a question that are read (answer)."""
    max_answer: int = 30
    """Tokens of the longest answer (answer)."""
    beam: int = 5
    """Best starts that are followed, and best ends for each (the joint span head)."""
    null_threshold: float | None = None
    """No answer is given where the null score is higher; None: always answer."""
    label_threshold: float = 0.5
    """Labels with at least this probability are predicted (multilabel)."""
    temperature: float = 1.0
    """Logits are divided by it before the softmax, so that probabilities are those of being right
    (classify, pair with one label); the answers are the same at any temperature."""
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The columns of the table that the model was fine-tuned on, by role: text, label …; other
    tables are read by them where they have them."""
    stratified: bool = False
    """Whether dev was cut from the table with train's share of every label. Earlier checkpoints do
    not say so, and their dev is cut again as it was."""
    cut: Mapping[str, float] = field(default_factory=dict)
    """The other options of that cut, where they are not the default: dev_fraction, cut_seed …"""
    exits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By criterion of early exit its threshold, and what it was calibrated by
    (tasks/decode/exits.py)."""
    exit_tolerance: float = 0.0
    """Distance within which a number counts as unchanged, for early exit of regress."""

    def __post_init__(self) -> None:
        check_type(self, "task", Task, "a task")
        _check_task(self.task)
        check_whole(self, "max_length", 8, _MAX_POSITIONS)
        for name in ("stride", "max_question", "max_answer", "beam"):
            check_whole(self, name, 1, _MAX_POSITIONS)
        check_number(self, "null_threshold", -1e6, 1e6, optional=True)
        check_number(self, "label_threshold", 0, 1)
        check_number(self, "temperature", 0.01, 100)
        check_number(self, "exit_tolerance", 0, 1e30)
        check_type(self, "stratified", bool, "true or false")
        for role, names in self.columns.items():
            if not isinstance(role, str) or not all(isinstance(name, str) for name in names):
                raise ConfigError(
                    f"columns are lists of names by role; got {shorten(self.columns)}"
                )
        _check_cut(self.cut)
        _check_exits(self.exits)

    def check_fits(self, config: ModelConfig) -> None:
        """Refuse a model that cannot predict for this task."""
        task = self.task
        head = next((head for head in config.heads if head.kind == task.head), None)
        if head is None:
            heads = ", ".join(head.kind for head in config.heads) or "none"
            raise ConfigError(
                f"{task.name} is answered by a {task.head} head, the model has: {heads}; fine-tune "
                "it for the task"
            )
        if head.labels != task.labels:
            raise ConfigError(
                f"the labels of {task.name} are {shown(task.labels)}, the model's are "
                f"{shown(head.labels)}; they do not belong together"
            )
        if self.max_length > config.encoder.max_positions:
            raise ConfigError(
                f"max_length is {self.max_length}, the model reads at most "
                f"{config.encoder.max_positions} tokens; lower it"
            )

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        data["task"] |= {name: list(data["task"][name]) for name in ("labels", "scores")}
        data["columns"] = {role: list(names) for role, names in self.columns.items()}
        # earlier versions do not know these, and need not where they say nothing
        if self.task.head != "multilabel":
            del data["label_threshold"]
        if self.temperature == 1:
            del data["temperature"]
        for name in ("columns", "stratified", "cut", "exits", "exit_tolerance"):
            if not data[name]:
                del data[name]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "TaskCard":
        _check_keys(cls, data)
        task = data["task"]
        if not isinstance(task, Mapping):
            raise ConfigError(f"task is an object that describes a task; got {shorten(task)}")
        _check_keys(Task, task)
        lists = {name: task[name] for name in ("labels", "scores") if name in task}
        for name, names in lists.items():
            if not isinstance(names, list | tuple) or not all(
                isinstance(one, str) for one in names
            ):
                raise ConfigError(f"{name} is a list of strings; got {shorten(names)}")
        tuples = {name: tuple(names) for name, names in lists.items()}
        columns = data.get("columns", {})
        if not isinstance(columns, Mapping) or not all(
            isinstance(names, list | tuple) for names in columns.values()
        ):
            raise ConfigError(f"columns are lists of names by role; got {shorten(columns)}")
        columns = {role: tuple(names) for role, names in columns.items()}
        return cls(**{**data, "columns": columns, "task": Task(**{**task, **tuples})})


@dataclass(frozen=True, kw_only=True)
class EmbedCard:
    """What `embed` does with a model tuned for embeddings, unless the user says otherwise."""

    pooling: Pooling = "mean"
    normalize: bool = True
    dimensions: tuple[int, ...] = ()
    """Sizes of vectors, beside the full one, that were trained (Matryoshka)."""

    def __post_init__(self) -> None:
        check_choice(self, "pooling", get_args(Pooling))
        check_type(self, "normalize", bool, "true or false")
        if any(type(size) is not int or size < 1 for size in self.dimensions):
            raise ConfigError(
                f"dimensions are sizes of vectors from 1; got {shorten(self.dimensions)}"
            )

    def check_fits(self, config: ModelConfig) -> None:
        """Refuse sizes that the model's vectors do not have."""
        size = config.encoder.hidden_size
        if any(each > size for each in self.dimensions):
            raise ConfigError(
                f"vectors of this model have {size} numbers, the card names the sizes "
                f"{', '.join(map(str, self.dimensions))}; they do not belong together"
            )

    def check_dimensions(self, dimensions: int, size: int) -> None:
        """Refuse a size that was not trained."""
        if dimensions != size and dimensions not in self.dimensions:
            trained = ", ".join(map(str, sorted({*self.dimensions, size})))
            raise ConfigError(
                f"this model was not trained for vectors of {dimensions}; it has: {trained}; train "
                "others with litebert finetune embed --matryoshka SIZE…"
            )

    def to_dict(self) -> dict[str, Any]:
        return {"task": {"name": "embed"}} | asdict(self) | {"dimensions": list(self.dimensions)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "EmbedCard":
        settings = {name: value for name, value in data.items() if name != "task"}
        for name in settings:
            check_known("EmbedCard setting", name, [each.name for each in fields(cls)])
        dimensions = settings.get("dimensions", ())
        if not isinstance(dimensions, list | tuple):
            raise ConfigError(f"dimensions is a list of sizes; got {shorten(dimensions)}")
        return cls(**settings | {"dimensions": tuple(dimensions)})


def is_embed_card(task: Mapping[str, Any] | None) -> bool:
    """Whether a task.json is of a model tuned for embeddings."""
    return isinstance(task, Mapping) and task.get("task") == {"name": "embed"}


def shown(labels: tuple[str, ...]) -> str:
    """Labels for a message; not all of them where they are many."""
    some = ", ".join(map(repr, labels[:8]))
    return f"{some} and {len(labels) - 8} more" if len(labels) > 8 else some or "none"


def _check_cut(cut: Mapping[str, float]) -> None:
    check = isinstance(cut, Mapping) and all(map(is_number, cut.values()))
    if not check or not set(cut) <= {"dev_fraction", "test_fraction", "split_dev", "cut_seed"}:
        raise ConfigError(f"cut is numbers by option, such as dev_fraction; got {shorten(cut)}")


def _check_exits(exits: Mapping[str, Mapping[str, float]]) -> None:
    good = isinstance(exits, Mapping) and all(
        isinstance(name, str)
        and isinstance(numbers, Mapping)
        and all(type(number) in (int, float) for number in numbers.values())
        for name, numbers in exits.items()
    )
    if not good:
        raise ConfigError(f"exits are numbers by criterion of early exit; got {shorten(exits)}")


def _check_task(task: Task) -> None:
    """Refuse a task that contradicts itself."""
    check_type(task, "name", str, "a string")
    check_choice(task, "kind", get_args(Kind))
    check_choice(task, "head", get_args(HeadKind))
    check_type(task, "has_null", bool, "true or false")
    if task.head not in (HEADS[task.kind], _OTHER_HEADS.get(task.kind)):
        raise ConfigError(
            f"a task of kind {task.kind} is answered by a {HEADS[task.kind]} head; got {task.head}"
        )
    if bool(task.labels) != (task.kind in LABELED):
        expected = "needs labels" if task.kind in LABELED else "has no labels"
        raise ConfigError(f"a task of kind {task.kind} {expected}; got {len(task.labels)}")
    if len(set(task.labels)) < len(task.labels):
        raise ConfigError(f"labels are all different; got {shown(task.labels)}")


def _check_keys(cls: type, data: Mapping[str, Any]) -> None:
    known = [each.name for each in fields(cls)]
    for key in data:
        check_known(f"{cls.__name__} setting", key, known)
    required = ("task", "max_length") if cls is TaskCard else ("name", "kind", "scores", "head")
    missing = [name for name in required if name not in data]
    if missing:
        raise ConfigError(
            f"{cls.__name__} needs {', '.join(required)}; {', '.join(missing)} is missing"
        )
