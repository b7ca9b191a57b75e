"""Predictions as plain data and as lines of a file: what commands print and `predict` writes.

A Prediction becomes a dict (`to_dict`, `guesses_to_dict`), a dict becomes a line (`LineWriter`): a
JSON object, or a row of a table. A table has a column for each plain number or name, and for the
probability of each label; vectors and guesses for masks need JSONL.
"""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from litebert.errors import ConfigError
from litebert.files import encode, to_json
from litebert.infer.verbs import Guess, Verb
from litebert.tasks.examples import TaskExample
from litebert.tasks.predictions import (
    ChoicePrediction,
    LabelPrediction,
    MultiLabelPrediction,
    NumberPrediction,
    Prediction,
    SpanPrediction,
    TagPrediction,
)

DIGITS = 6
"""Decimals of probabilities and scores: more would be rounding noise."""
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv"}
_TABLE_COLUMNS: dict[Verb, tuple[str, ...]] = {
    "classify": ("label", "probability"),
    "pair": ("label", "probability"),
    "regress": ("value",),
    "choose": ("index", "probability"),
    "answer": ("text", "start", "end", "score", "null_score"),
    "tag": ("tags",),
}
"""Columns of a table, by verb; those of the labels' probabilities follow."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_KEYS: dict[Verb, tuple[str, ...]] = {
    "fill": ("masks",),
    "embed": ("vector",),
    **{verb: (*names, "probabilities", "depth") for verb, names in _TABLE_COLUMNS.items()},
}
"""Keys that a prediction's dict may have."""


def to_dict(prediction: Prediction) -> dict[str, Any]:
    """The prediction's fields, numbers rounded. A span prediction begins with its answer, null
    where there is none."""
    depth = getattr(prediction, "depth", None)
    return _TO_DICT[type(prediction)](prediction) | ({} if depth is None else {"depth": depth})


def guesses_to_dict(masks: Sequence[Sequence[Guess]]) -> dict[str, Any]:
    """The guesses of fill for one text: for each mask a list of tokens with their probabilities."""
    return {
        "masks": [
            [{"token": token, "probability": _round(p)} for token, p in mask] for mask in masks
        ]
    }


def with_input(verb: Verb, example: TaskExample, prediction: Prediction) -> dict[str, Any]:
    """A prediction behind what it was predicted for, as a verb's command prints it with --json."""
    return _INPUTS[verb](example) | to_dict(prediction) | _more(verb, example, prediction)


class LineWriter:
    """Predictions of one verb as bytes of a .jsonl, .csv or .tsv file."""

    def __init__(
        self,
        path: Path | str,
        verb: Verb,
        *,
        inputs: Sequence[str],
        labels: Sequence[str] = (),
        multilabel: bool = False,
        raw_cells: bool = False,
    ) -> None:
        """`inputs` names what precedes a prediction: the row's number and the copied columns.
        `multilabel`: a prediction has any number of the `labels`. `raw_cells`: cells that a
        spreadsheet would run as a formula are written as they are, without an apostrophe.

        A copied column whose name is taken, as a prediction's label takes that of the true one, is
        renamed to input:label.
        """
        kind = _SUFFIXES.get(Path(path).suffix.lower())
        if kind is None:
            raise ConfigError(f"--out is a file that ends in {', '.join(_SUFFIXES)}; got {path}")
        if kind != "jsonl" and verb not in _TABLE_COLUMNS:
            raise ConfigError(
                f"what {verb} gives does not fit into a table; write it to a .jsonl file"
            )
        self._kind = kind
        self._raw_cells = raw_cells
        has_labels = verb in ("classify", "pair")
        label_columns = [f"probability:{label}" for label in labels] if has_labels else []
        columns = ("labels",) if multilabel else _TABLE_COLUMNS.get(verb, ())
        keys = (*columns, "probabilities") if multilabel else _KEYS[verb]
        taken = dict.fromkeys((*keys, *label_columns))
        self._inputs = tuple(_unique(name, taken) for name in inputs)
        self._columns = (*self._inputs, *columns, *label_columns)

    def header(self) -> bytes:
        """What comes before the first row."""
        return b"" if self._kind == "jsonl" else self._table([self._columns])

    def rows(self, inputs: Iterable[Sequence[Any]], predictions: Iterable[dict[str, Any]]) -> bytes:
        """A line for each prediction, behind the values of its input."""
        pairs = [
            (dict(zip(self._inputs, values, strict=True)), prediction)
            for values, prediction in zip(inputs, predictions, strict=True)
        ]
        if self._kind == "jsonl":
            return b"".join(_json(row | prediction) for row, prediction in pairs)
        return self._table(
            [[_cell(value) for value in (row | _flatten(each)).values()] for row, each in pairs]
        )

    def _table(self, rows: Iterable[Sequence[str]]) -> bytes:
        if self._kind == "tsv":
            # has no quoting, so a tab or line end inside a cell becomes a space
            rows = [[" ".join(cell.split()) for cell in row] for row in rows]
        if not self._raw_cells:
            rows = [[_inert(cell) for cell in row] for row in rows]
        if self._kind == "tsv":
            return b"".join(encode("\t".join(row)) + b"\n" for row in rows)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        return encode(text.getvalue())


def _round(number: float) -> float:
    return round(number, DIGITS)


def _label(prediction: LabelPrediction) -> dict[str, Any]:
    return {
        "label": prediction.label,
        "probabilities": {label: _round(p) for label, p in prediction.probabilities.items()},
    }


def _label_set(prediction: MultiLabelPrediction) -> dict[str, Any]:
    return {
        "labels": list(prediction.labels),
        "probabilities": {label: _round(p) for label, p in prediction.probabilities.items()},
    }


def _number(prediction: NumberPrediction) -> dict[str, Any]:
    return {"value": _round(prediction.value)}


def _choice(prediction: ChoicePrediction) -> dict[str, Any]:
    return {"index": prediction.index, "probabilities": [*map(_round, prediction.probabilities)]}


def _span(prediction: SpanPrediction) -> dict[str, Any]:
    spans = [asdict(span) | {"score": _round(span.score)} for span in prediction.spans]
    best = prediction.best
    no_answer = dict.fromkeys(("text", "start", "end", "score"))
    answer = no_answer if best is None else asdict(best) | {"score": _round(best.score)}
    return answer | {"null_score": _round(prediction.null_score), "spans": spans}


def _tags(prediction: TagPrediction) -> dict[str, Any]:
    return {
        "tags": list(prediction.tags),
        "probabilities": [*map(_round, prediction.probabilities)],
    }


def _more(verb: Verb, example: Any, prediction: Any) -> dict[str, Any]:
    """What follows from both: the option that was chosen, and a number that is not rounded."""
    if verb == "choose":
        return {"option": example.options[prediction.index]}
    return {"value": prediction.value} if verb == "regress" else {}


_INPUTS: dict[Verb, Callable[[Any], dict[str, Any]]] = {
    "classify": lambda example: {"text": example.first},
    "pair": lambda example: {"first": example.first, "second": example.second},
    "regress": lambda example: {"first": example.first, "second": example.second},
    "choose": lambda example: {"question": example.question, "options": list(example.options)},
    "answer": lambda example: {"question": example.question},
    "tag": lambda example: {"words": list(example.words)},
}
_TO_DICT: dict[type, Callable[[Any], dict[str, Any]]] = {
    LabelPrediction: _label,
    MultiLabelPrediction: _label_set,
    NumberPrediction: _number,
    ChoicePrediction: _choice,
    SpanPrediction: _span,
    TagPrediction: _tags,
}


def _unique(name: str, taken: dict[str, None]) -> str:
    """The name, with as many `input:` before it as it takes to be new; taken from now on."""
    while name in taken:
        name = f"input:{name}"
    taken[name] = None
    return name


def _flatten(prediction: dict[str, Any]) -> dict[str, Any]:
    """The values that have a column, in the order of the columns."""
    probabilities = prediction.get("probabilities")
    if "tags" in prediction:
        return {"tags": " ".join(prediction["tags"])}
    if isinstance(probabilities, dict):
        each = {f"probability:{name}": p for name, p in probabilities.items()}
        if "labels" in prediction:
            labels = prediction["labels"]
            is_plain = all(";" not in label for label in labels)
            return {"labels": ";".join(labels) if is_plain else labels, **each}
        label = prediction["label"]
        return {"label": label, "probability": probabilities[label], **each}
    if probabilities is not None:
        index = prediction["index"]
        return {"index": index, "probability": probabilities[index]}
    return prediction


def _json(row: dict[str, Any]) -> bytes:
    # default: dates and the like in copied columns
    return to_json(row, ensure_ascii=False, default=str).encode() + b"\n"


def _inert(cell: str) -> str:
    """A cell that no spreadsheet runs: an apostrophe comes before what looks like a formula."""
    if not cell.startswith(_FORMULA):
        return cell
    try:
        float(cell)
    except ValueError:
        return "'" + cell
    return cell


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else to_json(value, ensure_ascii=False, default=str)
