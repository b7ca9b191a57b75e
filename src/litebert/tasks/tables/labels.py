"""The labels of own rows: which there are, and whether a row has one or several.

A task is multi-label (classify and pair) if some row has a list of labels that is not exactly one,
or if the user names a separator. Without one, text cells are split at ; or | only where every label
so found also stands alone in another row, or is known from the model.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from litebert.checks import list_names, shorten
from litebert.config import HeadKind
from litebert.data.bad_rows import BadRowError
from litebert.errors import DataError
from litebert.tasks.examples import Kind, TagExample, TaskExample, TextExample
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.task import LABELED

_SEPARATORS = (";", "|")
_MANY = 50  # rows from which on a label of its own for every row means a wrong column


class Labels:
    """Collects the labels of train, and checks those of all rows.

    `head` is that of the model to be scored, None where one is to be trained.
    """

    def __init__(self, kind: Kind, options: TableOptions, head: HeadKind | None = None) -> None:
        self.kind, self.names, self.notes = kind, options.labels, list[str]()
        self._separator = options.label_separator
        self._is_multilabel: bool | None = None
        """None until it is known."""
        if kind not in ("classify", "pair"):
            self._is_multilabel = False
        elif head is not None:
            self._is_multilabel = head == "multilabel"
        elif self._separator not in ("auto", "none"):
            self._is_multilabel = True

    @property
    def is_multilabel(self) -> bool:
        return bool(self._is_multilabel)

    def read(self, example: TaskExample) -> TaskExample:
        """The example with its labels separated; BadRowError for a label that a model could not
        have learned."""
        if isinstance(example, TextExample):
            example = self._as_decided(self._split(example))
        names = self.names or ()
        for label in _labels_of(example) if names else ():
            if label not in names:
                raise BadRowError(
                    f"the label {shorten(label)} is unknown; known are: {list_names(names)}"
                )
        return example

    def learn(self, examples: Sequence[TaskExample], where: str) -> list[TaskExample]:
        """Decide from the first labeled split what the labels are; its examples with their labels
        separated."""
        texts = [example for example in examples if isinstance(example, TextExample)]
        if self._is_multilabel is None:
            if self._separator == "auto" and self.names is None:
                self._separator = self._find_separator(texts)
            texts = [self._split(example) for example in texts]
            several = [each for each in texts if isinstance(each.label, tuple)]
            self._is_multilabel = any(len(each.labels()) != 1 for each in several)
        if texts:
            examples = [self._as_decided(self._split(example)) for example in texts]
        if self.is_multilabel:
            count = sum(len(each.labels()) > 1 for each in texts)
            split = f", split at {shorten(self._separator)}" if self._is_split else ""
            self.notes.append(
                f"{count:,} of {len(texts):,} rows have several labels{split}: every label is "
                "predicted independently (multi-label)"
            )
        if self.names is None:
            self.names = self._find_names(examples, where)
        return list(examples)

    @property
    def _is_split(self) -> bool:
        return self._separator not in ("auto", "none")

    def _split(self, example: TextExample) -> TextExample:
        label = example.label
        if not isinstance(label, str) or self._is_multilabel is False:
            return example
        if self._is_split and self._separator in label:
            return replace(example, label=_pieces(label, self._separator))
        if self._separator == "auto" and self.names and label not in self.names:
            for separator in _SEPARATORS:
                if set(pieces := _pieces(label, separator)) <= set(self.names):
                    return replace(example, label=pieces)
        return example

    def _as_decided(self, example: TextExample) -> TextExample:
        """With a tuple of labels in a multi-label task, else with one label."""
        label = example.label
        if self._is_multilabel and isinstance(label, str):
            return replace(example, label=(label,))
        if self._is_multilabel is False and isinstance(label, tuple):
            if len(label) != 1:
                raise BadRowError(
                    f"the row has {len(label)} labels, and the rows before it, or the model, have "
                    "one each"
                )
            return replace(example, label=label[0])
        return example

    def _find_separator(self, examples: Sequence[TextExample]) -> str:
        """The separator of several labels in one cell, or none."""
        cells = {example.label for example in examples if isinstance(example.label, str)}
        for separator in _SEPARATORS:
            joined = {cell for cell in cells if separator in cell}
            pieces = {piece for cell in joined for piece in _pieces(cell, separator)}
            alone = pieces & (cells - joined)
            if joined and pieces == alone:
                return separator
            if alone:
                missing = min(pieces - alone)
                self.notes.append(
                    f"labels such as {shorten(min(joined))} are read as they are, since "
                    f"{shorten(missing)} never stands alone; --label-separator "
                    f"{shorten(separator)} splits them"
                )
        return "none"

    def _find_names(self, examples: Sequence[TaskExample], where: str) -> tuple[str, ...]:
        """All labels, numbers by size and words by the alphabet; DataError where nothing can be
        learned."""
        labels = [label for example in examples for label in _labels_of(example)]
        different = set(labels)
        what = "number" if self.kind == "regress" else "label"
        if self.is_multilabel:
            if len({frozenset(_labels_of(example)) for example in examples}) == 1:
                raise DataError(
                    f"{where}: all rows have the same labels; different ones are needed to learn"
                )
        elif len(different) == 1:
            raise DataError(
                f"{where}: the only {what} is {shorten(labels[0])}, in {len(labels):,} places; two "
                "or more are needed to learn"
            )
        if self.kind not in LABELED:
            return ()
        if self.kind != "tag" and len(different) == len(labels) >= _MANY:
            raise DataError(
                f"{where}: all {len(labels):,} rows have labels of their own, such as "
                f"{shorten(labels[0])}; name the label's column"
            )
        return tuple(sorted(map(str, different), key=_order))


def _labels_of(example: TaskExample) -> Iterator[str | float]:
    if isinstance(example, TextExample):
        if isinstance(example.label, tuple):
            yield from example.label
        elif example.label is not None:
            yield example.label
    elif isinstance(example, TagExample):
        yield from example.tags or ()


def _pieces(cell: str, separator: str) -> tuple[str, ...]:
    """The labels of a cell, each once."""
    return tuple(dict.fromkeys(piece for name in cell.split(separator) if (piece := name.strip())))


def _order(label: str) -> tuple[int, float, str]:
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    return (1, 0.0, label) if math.isnan(number) else (0, number, label)
