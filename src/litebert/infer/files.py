"""litebert predict: a file of any size in, a file of predictions out. Row by row, in order, in
constant memory, and resumable.

Rows are predicted in windows (streaming.py) whose bounds depend on the rows alone, and the output
grows by complete windows: a process that resumes after a kill writes the same bytes that the killed
one would have written. Rows that were predicted before are read again, compared by their sha256,
and not predicted again.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from litebert.checks import list_names, shorten
from litebert.config import Pooling
from litebert.data.bad_rows import BadRowError, BadRows, Location
from litebert.data.unpack import compression_of
from litebert.errors import ConfigError, DataError
from litebert.files import check_local
from litebert.infer.formats import DIGITS, LineWriter, guesses_to_dict, to_dict
from litebert.infer.output import ResumableFile
from litebert.infer.predictor import Predictor
from litebert.infer.streaming import windows
from litebert.infer.verbs import Verb, encode_masked, num_characters
from litebert.tasks.examples import Kind, TaskExample, TextExample
from litebert.tasks.tables.columns import Columns, TableOptions, find_columns
from litebert.tasks.tables.example import row_to_example
from litebert.tasks.tables.memory import open_rows

_TARGET_COLUMNS: dict[str, Any] = dict.fromkeys(
    ("label", "answer", "answer_start", "tags", "slice", "key")
)
"""Columns that are not read: what is to be predicted may be wrong there, or missing."""


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """What to predict for every row."""

    verb: Verb | None = None
    """What to do; None for what the model was fine-tuned for."""
    table: TableOptions = field(default_factory=TableOptions)
    """Which columns to read, and what to do with bad rows."""
    keep: tuple[str, ...] = ()
    """Columns of the input to copy into the output."""
    raw_cells: bool = False
    """Write cells of a table that a spreadsheet would run as they are."""
    top: int = 5
    """Guesses for each mask (fill)."""
    pooling: Pooling | None = None
    """How states become a vector (embed); None for the model's own."""
    normalize: bool | None = None
    """Whether vectors have length 1 (embed); None for the model's own."""
    dimensions: int | None = None
    """Numbers of a vector (embed); None for all."""
    overwrite: bool = False
    """Start over, whatever the output file holds."""


@dataclass(frozen=True, kw_only=True)
class PredictReport:
    """What `predict_file` did."""

    out: str
    verb: Verb
    rows: int
    """Predictions in the file."""
    rows_before: int
    """Those of them that an earlier run wrote."""
    bad_rows: int
    notes: tuple[str, ...]


def predict_file(
    predictor: Predictor,
    source: Path | str,
    out: Path | str,
    options: PredictOptions | None = None,
    *,
    on_progress: Callable[[int], None] = lambda rows: None,
    on_note: Callable[[str], None] = lambda text: None,
) -> PredictReport:
    """Predict every row of `source` into `out`. `on_progress` receives the number of rows done,
    `on_note` what a user should know."""
    options = options or PredictOptions()
    verb = _find_verb(predictor, options.verb)
    if predictor.engine.exit_rule is not None and verb not in predictor.cards:
        raise ConfigError(
            f"{verb} takes all layers, and --exit is for the verbs of a task; leave one of them out"
        )
    if os.path.realpath(source) == os.path.realpath(out):  # resolve() raises on a loop of links
        raise ConfigError(f"--out is the input, {source}; choose another file for the predictions")
    check_local(out)
    _make_folder(Path(out).parent)
    bad_rows = BadRows(options.table.bad_rows, f"{out}.quarantine.jsonl")
    inputs = _Inputs(predictor, source, verb, options, bad_rows)
    card = predictor.cards.get(verb)
    writer = LineWriter(
        out,
        verb,
        inputs=inputs.columns,
        labels=card.task.labels if card else (),
        multilabel=card is not None and card.task.head == "multilabel",
        raw_cells=options.raw_cells,
    )
    predict = _window_predictor(predictor, verb, options)
    with bad_rows:
        inputs.read_first()  # before the output is touched: a wrong input leaves nothing behind
        inputs.notes += bad_rows.reading_notes
        bad_rows.reading_notes.clear()
        for note in inputs.notes:
            on_note(note)
        identity = _identity(predictor, verb, options)
        with ResumableFile(out, identity, overwrite=options.overwrite) as output:
            before = output.progress
            pending = _Pending(inputs, rows_before=before.rows, digest_before=before.digest)
            if before.size == 0:
                output.append(writer.header(), rows=0, digest="")
            for window in windows(iter(pending), lambda row: num_characters(row.example)):
                if before.finished:
                    raise DataError(
                        f"{source} has grown since {out} was finished; choose another --out, or "
                        "add --overwrite"
                    )
                predictions = predict([row.example for row in window])
                lines = writer.rows((row.values for row in window), predictions)
                output.append(lines, rows=pending.count, digest=pending.digest)
                on_progress(pending.count)
            bad_rows.check_share(pending.count, options.table.max_bad_rows)
            output.finish()
    for note in bad_rows.notes:
        on_note(note)
    return PredictReport(
        out=str(out),
        verb=verb,
        rows=output.progress.rows,
        rows_before=before.rows,
        bad_rows=bad_rows.count,
        notes=(*inputs.notes, *bad_rows.notes),
    )


class _InputRow(NamedTuple):
    """A row of the input, as an example."""

    number: int
    """Its line or row in the file."""
    cells: dict[str, Any]
    values: tuple[Any, ...]
    """What precedes the prediction: the number and the copied columns."""
    example: TaskExample


class _Inputs:
    """The rows of a file, in order, one in memory at a time; bad ones go to `bad_rows`."""

    def __init__(
        self,
        predictor: Predictor,
        source: Path | str,
        verb: Verb,
        options: PredictOptions,
        bad_rows: BadRows,
    ) -> None:
        self.notes: list[str] = []
        """What a user should know about how the file is read."""
        unit = "row" if compression_of(source)[1] == ".parquet" else "line"
        self.columns = (unit, *options.keep)
        """Names of what precedes a prediction."""
        self._source, self._options, self._bad_rows = Path(source), options, bad_rows
        self._predictor, self._verb = predictor, verb
        self._kind = _row_kind(verb)
        self._rows = self._read()

    def __iter__(self) -> Iterator[_InputRow]:
        return self._rows

    def read_first(self) -> None:
        """Read the first row; DataError where the file has none that can be used."""
        first = list(islice(self._rows, 1))
        if not first:
            raise DataError(f"{self._source} has no usable row; expected one for each prediction")
        self._rows = chain(first, self._rows)

    def _read(self) -> Iterator[_InputRow]:
        names, rows = open_rows(self._source, self._bad_rows, self._options.table.encoding)
        if names is None:
            return
        columns = self._find_columns(names)
        for location, row in rows:
            try:
                input_row = self._to_input(location, row, columns)
            except BadRowError as error:
                self._bad_rows.add(location, str(error), row)
            else:
                yield input_row

    def _find_columns(self, names: list[str]) -> Columns:
        """Which columns to read."""
        cards = self._predictor.cards
        card = cards.get(self._verb) or next(iter(cards.values()), None)
        remembered = card.columns if card and card.task.kind == self._kind else {}
        inputs = {role: each for role, each in remembered.items() if role not in _TARGET_COLUMNS}
        table = self._options.table
        columns, _ = find_columns(
            self._kind, names, table, where=self._source.name, remembered=inputs
        )
        columns = replace(columns, **_TARGET_COLUMNS)
        missing = [name for name in self._options.keep if name not in names]
        if missing:
            raise ConfigError(
                f"there is no column {shorten(missing[0])} to keep; {self._source} has: "
                f"{list_names(names)}"
            )
        unnamed = {
            role: each for role, each in columns.by_role().items() if not getattr(table, role)
        }
        trained = {role: each for role, each in unnamed.items() if inputs.get(role) == each}
        for how, chosen in (
            ("as in training", trained),
            ("recognized by their names", {r: c for r, c in unnamed.items() if r not in trained}),
        ):
            if chosen:
                choices = ", ".join(
                    f"{role} is {list_names(each, show=repr)}" for role, each in chosen.items()
                )
                self.notes.append(f"{self._source.name}: columns {how}: {choices}")
        return columns

    def _to_input(self, location: Location, row: dict[str, Any], columns: Columns) -> _InputRow:
        example = row_to_example(self._kind, row, columns, where=str(location))
        if self._verb == "fill" and isinstance(example, TextExample):
            self._check_masks(example.first)
        values = (location.number, *(row.get(name) for name in self._options.keep))
        return _InputRow(number=location.number, cells=row, values=values, example=example)

    def _check_masks(self, text: str) -> None:
        max_length = self._predictor.engine.config.encoder.max_positions
        try:
            encode_masked(self._predictor.tokenizer, text, max_length=max_length)
        except DataError as error:
            raise BadRowError(str(error)) from error


class _Pending:
    """The rows that have no prediction yet: those after the first `rows_before`, whose sha256 must
    be `digest_before`."""

    def __init__(self, inputs: _Inputs, *, rows_before: int, digest_before: str) -> None:
        self._inputs, self._rows_before, self._digest_before = inputs, rows_before, digest_before
        self._sha256 = hashlib.sha256()
        self.count = 0
        """Rows read."""

    @property
    def digest(self) -> str:
        """The sha256 of all rows read."""
        return self._sha256.hexdigest()

    def __iter__(self) -> Iterator[_InputRow]:
        for row in self._inputs:
            self._sha256.update(json.dumps((row.number, row.cells), default=str).encode() + b"\n")
            self.count += 1
            if self.count == self._rows_before and self.digest != self._digest_before:
                raise _changed(
                    f"its first {self._rows_before:,} rows are not those that were predicted before"
                )
            if self.count > self._rows_before:
                yield row
        if self.count < self._rows_before:
            raise _changed(
                f"it has {self.count:,} usable rows now, {self._rows_before:,} were predicted "
                "before"
            )


def _changed(how: str) -> DataError:
    return DataError(
        f"the input has changed: {how}; undo that, choose another --out, or start over with "
        "--overwrite"
    )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be created ({error.strerror}); choose another --out"
        ) from error


def _find_verb(predictor: Predictor, verb: Verb | None) -> Verb:
    """The verb named by the user, or the only one that the model was fine-tuned for."""
    if verb is not None:
        predictor.check_verb(verb)
        return verb
    task_verbs = list(predictor.cards) or list(predictor.verbs)
    if len(task_verbs) == 1:
        return task_verbs[0]
    raise ConfigError(f"this model can {' and '.join(predictor.verbs)}; choose one with --verb")


def _row_kind(verb: Verb) -> Kind:
    """What a row must hold; for fill and embed a text, as for classify."""
    return "classify" if verb == "fill" or verb == "embed" else verb


def _identity(predictor: Predictor, verb: Verb, options: PredictOptions) -> dict[str, Any]:
    """Everything that the lines depend on, beside the rows. The handling of bad rows may change
    while a file grows."""
    pooling, normalize = predictor.embedding(options.pooling, options.normalize)
    embedding: dict[str, Any] = {"pooling": pooling, "normalize": normalize}
    if options.dimensions is not None:  # only then: files started before this option resume
        embedding["dimensions"] = options.dimensions
    by_verb: dict[str, dict[str, Any]] = {"fill": {"top": options.top}, "embed": embedding}
    identity: dict[str, Any] = {
        "model": predictor.fingerprint,
        "verb": verb,
        "batch_tokens": predictor.engine.batch_tokens,
        "keep": options.keep,
    }
    if options.raw_cells:  # only then: files started before this option resume
        identity["raw_cells"] = True
    columns = ("text", "second", "context", "question", "options", "words")
    return (
        identity | by_verb.get(verb, {}) | {name: getattr(options.table, name) for name in columns}
    )


def _window_predictor(
    predictor: Predictor, verb: Verb, options: PredictOptions
) -> Callable[[list[TaskExample]], list[dict[str, Any]]]:
    """The function from a window of examples to dicts of predictions."""
    if verb == "fill":
        return lambda examples: [
            guesses_to_dict(masks) for masks in predictor.fill(_texts(examples), top=options.top)
        ]
    if verb == "embed":
        return lambda examples: [
            {"vector": [round(number, DIGITS) for number in vector.tolist()]}
            for vector in predictor.embed(
                _texts(examples),
                pooling=options.pooling,
                normalize=options.normalize,
                dimensions=options.dimensions,
            )
        ]
    kind = _row_kind(verb)
    return lambda examples: [
        _without_spans(to_dict(prediction)) for prediction in predictor.predict(examples, kind=kind)
    ]


def _texts(examples: list[TaskExample]) -> list[str]:
    return [example.first for example in examples if isinstance(example, TextExample)]


def _without_spans(prediction: dict[str, Any]) -> dict[str, Any]:
    """An answer's other candidates would make the file many times as long."""
    return {name: value for name, value in prediction.items() if name != "spans"}
