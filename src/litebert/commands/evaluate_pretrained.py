"""litebert evaluate masked and litebert evaluate blimp: a model without fine-tuning in; its scores
on masked tokens of a text, or on minimal pairs, out."""

import sys
import time
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.table import Table

from litebert.commands.flags import BatchTokens, Device, Json, Kernels, Threads, Unverified, note
from litebert.files import to_json
from litebert.infer.blimp import Accuracy, BlimpScores, score_blimp
from litebert.infer.masked_scores import MaskedOptions, MaskedScores, score_masked
from litebert.infer.predictor import load
from litebert.infer.verbs import Precision
from litebert.terminal import escape, write_line

if TYPE_CHECKING:
    from litebert.infer.torch_engine import TorchEngine

PROGRESS_SECONDS = 10.0
"""Between two lines of progress."""


def masked(
    *,
    model: str,
    data: str,
    text: MaskedOptions,
    batch_tokens: BatchTokens = None,
    dtype: Precision = "auto",
    device: Device = "auto",
    kernels: Kernels = "on",
    threads: Threads = None,
    unverified: Unverified = False,
    json: Json = False,
) -> None:
    """Loss, accuracy and perplexity of masked tokens of a text, for any model with a masked-token
    head, beside those of a unigram model.

    By default whole words are masked, 15 % of the tokens, in runs of up to three words, and
    replaced as in pretraining: 80 % by [MASK], 10 % by a random token, 10 % not at all. With the
    run's own shards, --split heldout, and its --order, --max-length and --heldout-fraction, the
    scores are those of the run.

    Args:
        model: Folder of a checkpoint, a run or a Hugging Face model, or the name of an embedded
            model.
        data: File, folder or glob of .txt, .jsonl or .parquet, plain or compressed, as for `data
            build`; or a folder of shards.
        dtype: Precision of the layers; auto is bfloat16 on GPUs that support it, float32 elsewhere.
    """
    engine = _load(model, device, batch_tokens, dtype, kernels, threads, unverified)
    scores = score_masked(engine, data, text, on_progress=_Progress("{:.0%} of the examples"))
    for each in scores.notes:
        note(each)
    if json:
        write_line(to_json({"model": model, "data": data} | scores.to_dict(), ensure_ascii=False))
    else:
        _print_masked(model, scores)


def blimp(
    *,
    model: str,
    data: str,
    limit: int | None = None,
    within_word: bool = False,
    bad_rows: Literal["error", "skip"] = "error",
    batch_tokens: BatchTokens = None,
    dtype: Precision = "auto",
    device: Device = "auto",
    kernels: Kernels = "on",
    threads: Threads = None,
    unverified: Unverified = False,
    json: Json = False,
) -> None:
    """Accuracy on minimal pairs (BLiMP) without fine-tuning: how often the acceptable sentence has
    the higher pseudo-log-likelihood. Chance is 50 %.

    The pseudo-log-likelihood sums, over the tokens of a sentence, the log-probability of each where
    it alone is masked; it is not divided by the length.

    Args:
        model: Folder of a checkpoint, a run or a Hugging Face model, or the name of an embedded
            model.
        data: Folder of BLiMP's JSONL files, or one file; .tsv, .csv and .parquet with columns good,
            bad, paradigm, term and field are read as well.
        limit: Score the first N pairs of each paradigm; by default all.
        within_word: Mask the later tokens of a word together with each of its tokens, so that the
            end of a word does not give its beginning away (PLL-word-l2r).
        bad_rows: What to do with a row without two sentences: stop, or skip it.
        dtype: Precision of the layers; auto is bfloat16 on GPUs that support it, float32 elsewhere.
    """
    engine = _load(model, device, batch_tokens, dtype, kernels, threads, unverified)
    scores = score_blimp(
        engine,
        data,
        limit=limit,
        within_word=within_word,
        bad_rows=bad_rows,
        on_progress=_Progress("{:,} pairs"),
    )
    for each in scores.notes:
        note(each)
    if json:
        write_line(to_json({"model": model, "data": data} | scores.to_dict(), ensure_ascii=False))
    else:
        _print_blimp(model, scores)


def _load(
    model: str,
    device: str,
    batch_tokens: int | None,
    dtype: Precision,
    kernels: str,
    threads: int | None,
    unverified: bool,
) -> "TorchEngine":
    predictor = load(
        model,
        engine="torch",
        device=device,
        batch_tokens=batch_tokens,
        dtype=dtype,
        kernels=kernels,
        threads=threads,
        unverified=unverified,
    )
    for each in predictor.notes:
        note(each)
    predictor.torch_engine.filler.head("masked")  # before the text is read
    return predictor.torch_engine


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(columns[0], overflow="fold", min_width=26)
    for name in columns[1:]:
        table.add_column(name, justify="right")
    return table


def _print_masked(model: str, scores: MaskedScores) -> None:
    table = _table("", "loss", "accuracy", "perplexity")
    for name, each in ((model, scores.model), ("unigram frequencies", scores.unigram)):
        table.add_row(
            escape(name), f"{each.loss:.3f}", f"{100 * each.accuracy:.1f}", f"{each.perplexity:.1f}"
        )
        if each is scores.model and scores.intervals:
            ends = scores.intervals
            table.add_row(
                "  95 % interval",
                "{:.3f}–{:.3f}".format(*ends["loss"]),
                "{:.1f}–{:.1f}".format(*(100 * end for end in ends["accuracy"])),
                "{:.1f}–{:.1f}".format(*ends["perplexity"]),
                style="dim",
            )
    options = scores.options
    run = f"runs of up to {options.max_ngram} {options.mask_units}" if options.max_ngram > 1 else ""
    write_line(
        f"{scores.num_masked:,} masked tokens ({run or 'single ' + options.mask_units}) of "
        f"{scores.num_tokens:,}, in {scores.num_examples:,} examples of up to {options.max_length} "
        f"tokens from {scores.num_documents:,} documents"
    )
    Console(markup=False, emoji=False).print(table)


def _print_blimp(model: str, scores: BlimpScores) -> None:
    table = _table(escape(model), "accuracy", "95 % interval", "pairs")

    def add(name: str, each: Accuracy, *, style: str = "") -> None:
        low, high = each.interval
        interval = f"{100 * low:.1f}–{100 * high:.1f}"
        table.add_row(
            escape(name), f"{100 * each.accuracy:.1f}", interval, f"{each.num_pairs:,}", style=style
        )

    for group in (scores.paradigms, scores.terms, scores.fields):
        for name, each in group.items():
            add(name, each)
        table.add_section()
        table.add_row("")
    add("overall", scores.overall, style="bold")
    Console(markup=False, emoji=False).print(table)


class _Progress:
    """A line on stderr every few seconds."""

    def __init__(self, line: str) -> None:
        self._line, self._last = line, time.monotonic()

    def __call__(self, done: int | float) -> None:
        now = time.monotonic()
        if now - self._last >= PROGRESS_SECONDS:
            self._last = now
            write_line(self._line.format(done), file=sys.stderr)
