"""Rows of a file as questions to a model: a path and what is asked in; examples, one after another,
out. For litebert predict.
 Nothing is held but the present row. What was asked before is read again and compared by its sum,
and not handed out again.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from litebert.errors import ConfigError, DataError
from litebert.infer.fill import masked_row, unused_character
from litebert.infer.predictor import Predictor
from litebert.infer.verbs import Pooling, Verb
from litebert.tasks.examples import Kind, TaskExample, TextExample
from litebert.tasks.tables.bad_rows import BadRowError, BadRows, Place
from litebert.tasks.tables.columns import Columns, find_columns
from litebert.tasks.tables.lines import compression_of
from litebert.tasks.tables.options import TableOptions
from litebert.tasks.tables.row_example import row_to_example
from litebert.tasks.tables.rows import read_rows
from litebert.tasks.tables.table import PEEK

SHAPES: dict[Verb, Kind] = {
    "fill": "classify",
    "embed": "classify",
    "classify": "classify",
    "pair": "pair",
    "regress": "regress",
    "choose": "choose",
    "answer": "answer",
    "tag": "tag",
}
"""What a row has to hold, as a kind of task: to fill and to embed, a text."""
UNREAD: dict[str, Any] = dict.fromkeys(("label", "answer", "answer_start", "tags", "slice", "key"))
"""Parts that are not read: what is to be predicted may stand there wrong, or not at all."""


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """What is asked of every row."""

    verb: Verb | None = None
    """What to do; None for what the model was fine-tuned for."""
    table: TableOptions = field(default_factory=TableOptions)
    """Which columns to read, and what to do with bad rows."""
    keep: tuple[str, ...] = ()
    """Columns of the input that go into the output as well."""
    top: int = 5
    """Guesses for each mask (fill)."""
    pooling: Pooling = "mean"
    """What a vector is (embed)."""
    normalize: bool = False
    """Whether vectors have length 1 (embed)."""
    overwrite: bool = False
    """Begin again, whatever the output's file holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A row, read."""

    asked: tuple[Any, ...]
    """What goes before the answer: where the row is, and the columns that are kept."""
    example: TaskExample
    row: tuple[int, dict[str, Any]]
    """The row itself and its place."""


class Questions:
    """The rows of a file, in order; bad ones go to `bad`."""

    def __init__(
        self,
        predictor: Predictor,
        source: Path | str,
        verb: Verb,
        options: PredictOptions,
        bad: BadRows,
    ) -> None:
        self.bad = bad
        self.notes: list[str] = []
        """What a user should know of the reading."""
        unit = "row" if compression_of(source)[1] == ".parquet" else "line"
        self.asked = (unit, *options.keep)
        """Names of what goes before an answer."""
        self._source, self._options = Path(source), options
        self._kind = SHAPES[verb]
        self._predictor = predictor
        self._wall = unused_character(predictor.tokenizer) if verb == "fill" else ""
        self._questions = self._read()

    def __iter__(self) -> Iterator[Question]:
        return self._questions

    def begin(self) -> None:
        """Read the first row, and with it find out whether the file can be used at all."""
        first = list(islice(self._questions, 1))
        if not first:
            raise DataError(f"{self._source} has no usable row; expected one for each prediction")
        self._questions = chain(first, self._questions)

    def _read(self) -> Iterator[Question]:
        rows = read_rows(self._source, bad=self.bad)
        ahead = list(islice(rows, PEEK))
        if not ahead:
            return
        columns = self._columns(list(dict.fromkeys(name for _, row in ahead for name in row)))
        for place, row in chain(ahead, rows):
            try:
                question = self._question(place, row, columns)
            except BadRowError as error:
                self.bad.add(place, str(error), row)
            else:
                yield question

    def _columns(self, names: list[str]) -> Columns:
        """Which columns to read."""
        columns, _ = find_columns(self._kind, names, self._options.table, where=self._source.name)
        columns = replace(columns, **UNREAD)
        missing = [name for name in self._options.keep if name not in names]
        if missing:
            raise ConfigError(
                f"there is no column {missing[0]!r} to keep; {self._source} has: {', '.join(names)}"
            )
        found = {
            part: name
            for part, name in asdict(columns).items()
            if name and not getattr(self._options.table, part)
        }
        if found:
            told = ", ".join(f"{part} is {name!r}" for part, name in found.items())
            self.notes.append(f"{self._source.name}: columns recognised by their names: {told}")
        return columns

    def _question(self, place: Place, row: dict[str, Any], columns: Columns) -> Question:
        example = row_to_example(self._kind, row, columns, where=str(place))
        if self._wall and isinstance(example, TextExample):
            self._check_masks(example.first)
        asked = (place.number, *(row.get(name) for name in self._options.keep))
        return Question(asked=asked, example=example, row=(place.number, row))

    def _check_masks(self, text: str) -> None:
        limit = self._predictor.model.config.encoder.max_positions
        try:
            masked_row(self._predictor.tokenizer, text, max_length=limit, wall=self._wall)
        except DataError as error:
            raise BadRowError(str(error)) from error


class Unread:
    """The questions that have no answer yet: those after the first `done`, whose sum has to be
    `digest`."""

    def __init__(self, questions: Questions, *, done: int, digest: str) -> None:
        self._questions, self._done, self._expected = questions, done, digest
        self._sum = hashlib.sha256()
        self.count = 0
        """Rows read."""

    @property
    def digest(self) -> str:
        """A sum over all rows read."""
        return self._sum.hexdigest()

    def __iter__(self) -> Iterator[Question]:
        for question in self._questions:
            self._sum.update(json.dumps(question.row, default=str).encode() + b"\n")
            self.count += 1
            if self.count == self._done and self.digest != self._expected:
                raise _changed(
                    f"its first {self._done:,} rows are not those that were predicted before"
                )
            if self.count > self._done:
                yield question
        if self.count < self._done:
            raise _changed(
                f"it has {self.count:,} usable rows now, {self._done:,} were predicted before"
            )


def _changed(how: str) -> DataError:
    return DataError(
        f"the input has changed: {how}; undo that, choose another --out, or begin again with "
        "--overwrite"
    )
