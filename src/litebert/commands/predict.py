"""litebert predict: a file of rows and a model in; a file of predictions out, in order, in constant
memory, restartable."""

import time
from dataclasses import asdict
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from litebert.commands.marks import (
    BatchTokens,
    Device,
    Engine,
    Exit,
    Json,
    Kernels,
    LayerDType,
    Threads,
    Threshold,
    Unverified,
    note,
)
from litebert.commands.verbs import ModelName
from litebert.config import Pooling
from litebert.files import to_json
from litebert.infer.verbs import Verb
from litebert.models.index import default_model
from litebert.tasks.tables.columns import TableOptions
from litebert.terminal import write_line, write_stderr

_Names = Annotated[tuple[str, ...], arg(metavar="COLUMN…")]
_LINE_SECONDS = 5.0
"""Between two lines of progress."""


def predict(
    input: Annotated[str, Positional, arg(metavar="INPUT")],
    /,
    *,
    out: str,
    model: ModelName = None,
    verb: Verb | None = None,
    text: str | None = None,
    second: str | None = None,
    context: str | None = None,
    question: str | None = None,
    options: _Names = (),
    words: str | None = None,
    keep: _Names = (),
    raw_cells: bool = False,
    top: int = 5,
    pooling: Pooling | None = None,
    normalize: bool | None = None,
    dimensions: int | None = None,
    bad_rows: Literal["error", "skip", "quarantine"] = "error",
    max_bad_rows: float = 0.1,
    encoding: str = "auto",
    batch_tokens: BatchTokens = None,
    engine: Engine = "auto",
    device: Device = "auto",
    kernels: Kernels = "on",
    threads: Threads = None,
    dtype: LayerDType = "auto",
    compile: bool = False,
    overwrite: bool = False,
    exit: Exit = None,
    threshold: Threshold = None,
    unverified: Unverified = False,
    json: Json = False,
) -> None:
    """Predict for every row of a file of any size. The same command again resumes an
    interrupted run.

    Columns without a flag are those of the training, or else recognized by their names, and the
    choice is printed. Inputs longer than the model reads are truncated at their end, of a pair the
    longer text first; contexts to answer from and words to tag are split into overlapping windows
    instead.

    Args:
        input: A .csv, .tsv, .jsonl, .parquet or .txt file (one text per line), plain or with .gz,
            .xz, .bz2, .zst.
        out: File for the predictions, one per line in the order of the input: .jsonl, .csv or .tsv.
        verb: What to predict, if the model has several verbs; a pretrained model has fill and
            embed.
        text: Column of the text, or of a pair's first text.
        second: Column of a pair's second text.
        context: Column of the context that a question is about.
        question: Column of the question.
        options: Columns of the options to choose from, or a single one that holds a list.
        words: Column of the words to tag.
        keep: Columns to copy into the output; a name that predictions use, such as label, becomes
            input:label.
        raw_cells: Write cells that begin like a formula (=, +, -, @) to .csv and .tsv as they are;
            by default an apostrophe before them stops a spreadsheet from running them.
        top: Predictions per mask (fill).
        pooling: What a vector is: the mean of all tokens' states, or the state of [CLS]; by default
            as the model was trained, else the mean (embed).
        normalize: Scale every vector to length 1; by default as the model was trained, else not
            (embed).
        dimensions: Keep the first so many numbers of each vector, a size that the model was trained
            for (embed).
        bad_rows: What to do with a row that cannot be used: stop, skip it, or skip it and copy it
            to OUT.quarantine.jsonl.
        max_bad_rows: Largest fraction of rows that may be skipped; more, if they are ten or more,
            is an error.
        encoding: Encoding of a text file, such as cp1252 or utf-16; auto is UTF-8 or what the
            file's first bytes say, else a guess that is printed.
        compile: Compile the layers first: a quarter of a minute on a GPU, where it was no faster
            than litebert's kernels; try it on yours.
        overwrite: Start over, whatever the output file holds.
    """
    folder = default_model(verb).folder if model is None else model
    table = TableOptions(
        text=text,
        second=second,
        context=context,
        question=question,
        options=options or None,
        words=words,
        bad_rows=bad_rows,
        max_bad_rows=max_bad_rows,
        encoding=encoding,
    )
    from litebert.infer.files import PredictOptions, predict_file
    from litebert.infer.predictor import load

    predictor = load(
        folder,
        engine=engine,
        device=device,
        batch_tokens=batch_tokens,
        dtype=dtype,
        compile=compile,
        kernels=kernels,
        threads=threads,
        exit=exit,
        threshold=threshold,
        unverified=unverified,
    )
    settings = PredictOptions(
        verb=verb,
        table=table,
        keep=keep,
        raw_cells=raw_cells,
        top=top,
        pooling=pooling,
        normalize=normalize,
        dimensions=dimensions,
        overwrite=overwrite,
    )
    began = time.monotonic()
    note(*predictor.notes)
    if predictor.engine.threads is not None:
        note(f"computing with {predictor.engine.threads}")
    report = predict_file(predictor, input, out, settings, on_progress=_Progress(), on_note=note)
    seconds = time.monotonic() - began
    if json:
        write_line(to_json(asdict(report) | {"seconds": seconds}, ensure_ascii=False))
        return
    earlier = f", {report.rows_before:,} of them by an earlier run" if report.rows_before else ""
    new = report.rows - report.rows_before
    write_stderr(
        f"{out}: {report.rows:,} predictions{earlier}; {new / max(seconds, 1e-9):,.0f} a second"
    )


class _Progress:
    def __init__(self) -> None:
        self._began = self._printed = time.monotonic()
        self._first: int | None = None

    def __call__(self, rows: int) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first, self._began = rows, now
        elif now - self._printed >= _LINE_SECONDS:
            self._printed = now
            speed = (rows - self._first) / max(now - self._began, 1e-9)
            write_stderr(f"litebert predict: {rows:,} rows, {speed:,.0f} a second")
