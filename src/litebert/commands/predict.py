"""litebert predict: a file of rows and a model in; a file of predictions out, in order, in constant
memory, restartable."""

import json as jsonlib
import sys
import time
from dataclasses import asdict
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from litebert.commands.flags import Device, Json, Kernels
from litebert.infer.verbs import Pooling, Verb
from litebert.models.index import default_model
from litebert.tasks.tables.columns import TableOptions

Input = Annotated[str, Positional, arg(metavar="INPUT")]
Names = Annotated[tuple[str, ...], arg(metavar="COLUMN…")]
LINE_SECONDS = 5.0
"""Between two lines of progress."""


def predict(
    input: Input,
    /,
    *,
    out: str,
    model: str | None = None,
    verb: Verb | None = None,
    text: str | None = None,
    second: str | None = None,
    context: str | None = None,
    question: str | None = None,
    options: Names = (),
    words: str | None = None,
    keep: Names = (),
    top: int = 5,
    pooling: Pooling = "mean",
    normalize: bool = False,
    bad_rows: Literal["error", "skip", "quarantine"] = "error",
    batch_tokens: int | None = None,
    device: Device = "auto",
    kernels: Kernels = "on",
    dtype: Literal["auto", "float32", "bfloat16"] = "auto",
    compile: bool = False,
    overwrite: bool = False,
    json: Json = False,
) -> None:
    """Predict for every row of a file of any size. Interrupted or killed, the same command again
    goes on.

    Columns left out are recognised by their names, and the choice is printed. What is longer than
    the model reads is cut at its end, of a pair the longer text first; contexts to answer from and
    words to tag are read in overlapping windows instead.

    Args:
        input: A .csv, .tsv, .jsonl, .parquet or .txt file (a text a line), plain or with .gz, .xz,
            .bz2, .zst.
        out: File for the predictions, one a line in the order of the input: .jsonl, .csv or .tsv.
        model: Folder of a checkpoint, a run or a Hugging Face model, or a name of `litebert
            models`; else the first of those
            that can do this.
        verb: What to do where the model can do several things; a pretrained model can fill and
            embed.
        text: Column of the text, or of a pair's first text.
        second: Column of a pair's second text.
        context: Column of the context that a question is about.
        question: Column of the question.
        options: Columns of the options to choose from, or a single one that holds a list.
        words: Column of the words to tag.
        keep: Columns to copy into the output; a name that predictions use, such as label, becomes
            input:label.
        top: Guesses for each mask (fill).
        pooling: What a vector is: the mean of all tokens' states, or the state of [CLS] (embed).
        normalize: Scale every vector to length 1 (embed).
        bad_rows: What to do with a row that cannot be used: stop, leave it out, or keep a copy in
            OUT.quarantine.jsonl.
        batch_tokens: Tokens computed at once, padding among them; less needs less memory.
        dtype: Arithmetic of the layers; auto is bfloat16 on a GPU that is made for it.
        compile: Compile the layers first, which takes half a minute on a GPU and pays for many
            thousand rows.
        overwrite: Begin again, whatever the output's file holds.
    """
    chosen_model = default_model(verb).folder if model is None else model
    table = TableOptions(
        text=text,
        second=second,
        context=context,
        question=question,
        options=options or None,
        words=words,
        bad_rows=bad_rows,
    )
    # torch only now: wrong flags are answered at once
    from litebert.infer.files import PredictOptions, predict_file
    from litebert.infer.predictor import load

    predictor = load(
        chosen_model,
        device=device,
        batch_tokens=batch_tokens,
        dtype=dtype,
        compile=compile,
        kernels=kernels,
    )
    chosen = PredictOptions(
        verb=verb,
        table=table,
        keep=keep,
        top=top,
        pooling=pooling,
        normalize=normalize,
        overwrite=overwrite,
    )
    began = time.monotonic()
    for note in predictor.notes:
        _note(note)
    report = predict_file(predictor, input, out, chosen, on_progress=_Watch(), on_note=_note)
    seconds = time.monotonic() - began
    if json:
        print(jsonlib.dumps(asdict(report) | {"seconds": seconds}, ensure_ascii=False))
        return
    earlier = f", {report.rows_before:,} of them by an earlier run" if report.rows_before else ""
    made = report.rows - report.rows_before
    print(
        f"{out}: {report.rows:,} predictions{earlier}; {made / max(seconds, 1e-9):,.0f} a second",
        file=sys.stderr,
    )


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


class _Watch:
    """A line on stderr every few seconds."""

    def __init__(self) -> None:
        self._began = self._told = time.monotonic()
        self._first: int | None = None

    def __call__(self, rows: int) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first, self._began = rows, now
        elif now - self._told >= LINE_SECONDS:
            self._told = now
            speed = (rows - self._first) / max(now - self._began, 1e-9)
            print(f"litebert predict: {rows:,} rows, {speed:,.0f} a second", file=sys.stderr)
