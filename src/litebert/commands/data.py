"""litebert data build: corpus files in, a folder of shards out. litebert data show: a folder of
shards in, some examples as a person reads them out."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import accumulate
from typing import Annotated, Any, Literal

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from tyro.conf import Positional, arg

from litebert.commands.marks import Json
from litebert.commands.tables import open_console, print_facts
from litebert.data.build import SHARD_TOKENS, BuildOptions, build_shards
from litebert.data.chunks import MAX_ROW_BYTES, find_files, ignored_files
from litebert.data.corpus import CorpusOptions
from litebert.data.runners import bound_heap
from litebert.data.shard_writer import BuildProgress
from litebert.data.shards import Shards
from litebert.data.show import LEGEND, describe
from litebert.data.spec import ExampleSpec, Split
from litebert.data.stream import Stream
from litebert.errors import ConfigError
from litebert.files import to_json
from litebert.recipes.pretrain import Order
from litebert.terminal import Progress, escape, write_line, write_stderr
from litebert.text.tokenizer import Tokenizer


def build(
    corpus: Annotated[tuple[str, ...], Positional, arg(metavar="CORPUS…")],
    /,
    *,
    tokenizer: str,
    out: str,
    workers: int = 1,
    runner: Literal["processes", "ray"] = "processes",
    shard_tokens: int = SHARD_TOKENS,
    split: Literal["rules", "lines"] = "rules",
    documents: Literal["blank-lines", "files"] = "blank-lines",
    field: str = "text",
    bad_rows: Literal["error", "skip", "quarantine"] = "error",
    max_bad_rows: float = 0.1,
    max_row_bytes: int = MAX_ROW_BYTES,
    overwrite: bool = False,
    json: Json = False,
) -> None:
    """Turn a corpus into shards of token ids. The same command again resumes an interrupted build.

    Args:
        corpus: Files, folders or globs of .txt, .jsonl, .parquet, each plain or with .gz, .xz,
            .bz2, .zst.
        tokenizer: Folder of a tokenizer, or a SentencePiece model file.
        out: Folder for the shards.
        workers: Worker processes; the shards are the same for any number.
        runner: Where they run: on this machine, or on the Ray cluster of RAY_ADDRESS (without it, a
            local one).
        shard_tokens: Tokens after which a shard ends, at the next end of a document.
        split: How text is split into sentences: by rules, or at every line.
        documents: What ends a document of a text file: a blank line, or only the end of the file.
        field: Field of a .jsonl row, or column of a .parquet file, that holds the text.
        bad_rows: What to do with a row without usable text: stop, skip it, or skip it and copy it
            to quarantine.jsonl.
        max_bad_rows: Largest fraction of bad rows, among them and the sentences; more, if they are
            ten or more, stop the build before its index, and 1 lets the same command finish it.
        max_row_bytes: Longest .jsonl row in bytes; a longer one is a bad row.
        overwrite: Replace the shards of another build in the same folder.
    """
    options = BuildOptions(
        corpus=CorpusOptions(
            documents=documents, field=field, bad_rows=bad_rows, max_row_bytes=max_row_bytes
        ),
        max_bad_rows=max_bad_rows,
        split=split,
        shard_tokens=shard_tokens,
        workers=workers,
        runner=runner,
        overwrite=overwrite,
    )
    bound_heap()
    ignored = ignored_files(corpus)
    if ignored:
        _note(
            f"{len(ignored)} files are no corpus by their names and are skipped, the first is "
            f"{ignored[0]}"
        )
    sizes = [os.path.getsize(file.path) for file in find_files(corpus)]
    with _progress(sizes) as watch:
        report = build_shards(corpus, tokenizer=tokenizer, out=out, options=options, watch=watch)
    for row in report.bad:
        _note(f"skipped: {row}")
    if report.bad_rows:
        copied = ", copied to quarantine.jsonl" if bad_rows == "quarantine" else ""
        _note(f"{report.bad_rows} bad rows were skipped{copied}")
    if report.cut_lines:
        _note(f"lines longer than a chunk were cut at {report.cut_lines} places")
    speed = report.encoded_bytes / 1e6 / report.seconds if report.seconds else 0.0
    rate = report.unknown / report.tokens
    facts = asdict(report) | {"unknown_rate": rate, "mb_per_second": speed}
    if json:
        write_line(to_json(facts))
    else:
        _print_summary(facts)


def show(
    folder: Annotated[str, Positional, arg(metavar="DIR")],
    /,
    *,
    count: int = 3,
    seed: int = 0,
    epoch: int = 0,
    max_length: int = 128,
    order: Order = "sop",
    mask_fraction: float = 0.15,
    mask_share: float = 0.8,
    random_share: float = 0.1,
    split: Split = "train",
    json: Json = False,
) -> None:
    """Print training examples with their masked tokens and their order label.

    Args:
        folder: A folder written by `litebert data build`.
        count: Number of examples.
        seed: Seed of the stream, as in pretraining.
        epoch: Epoch whose cuts, order and masks to show.
        max_length: Tokens in an example, at most, with [CLS] and [SEP].
        order: sop (swapped segments), nsp (segment of another document) or none.
        mask_fraction: Fraction of an example's tokens to predict.
        mask_share: Fraction of the tokens to predict that become [MASK].
        random_share: Fraction of the tokens to predict that become a random token.
        split: train, heldout or all documents.
    """
    if count < 1 or epoch < 0:
        raise ConfigError(f"count is at least 1 and epoch at least 0; got {count} and {epoch}")
    spec = ExampleSpec(
        max_length=max_length,
        order=order,
        mask_fraction=mask_fraction,
        mask_share=mask_share,
        random_share=random_share,
    )
    Shards.open(folder, verify=True)
    stream = Stream.open(folder, spec, seed=seed, split=split)
    tokenizer = Tokenizer.load(stream.tokenizer_folder)
    num_examples = stream.num_examples(epoch)
    batch = stream.batch(epoch, 0, min(count, num_examples))
    examples = describe(batch, tokenizer.tokens, mask_id=tokenizer.mask_id, order=order)
    if json:
        shown = [example.to_dict() for example in examples]
        write_line(
            to_json(
                {"epoch": epoch, "num_examples": num_examples, "examples": shown},
                ensure_ascii=False,
            )
        )
        return
    console = open_console()
    console.print(escape(f"{num_examples:,} examples in epoch {epoch} of {folder}"))
    console.print(LEGEND, style="dim")
    for example in examples:
        console.print()
        console.print(example.render())


def _note(text: str) -> None:
    write_stderr(f"litebert data build: {text}")


def _print_summary(facts: dict[str, Any]) -> None:
    print_facts(
        escape(facts["out"]),
        [
            *((key, f"{facts[key]:,}") for key in ("documents", "sentences", "tokens")),
            ("unknown tokens", f"{facts['unknown_rate']:.3%}"),
            ("bad rows", f"{facts['bad_rows']:,}"),
            ("shards (reused)", f"{facts['shards']:,} ({facts['shards_reused']:,})"),
            ("text", f"{facts['text_bytes'] / 1e6:,.1f} MB"),
            ("encoded now", f"{facts['encoded_bytes'] / 1e6:,.1f} MB in {facts['seconds']:,.1f} s"),
            ("speed", f"{facts['mb_per_second']:,.1f} MB/s"),
        ],
    )


@contextmanager
def _progress(sizes: list[int]) -> Iterator[Callable[[BuildProgress], None]]:
    """Progress on stderr: a bar on a terminal, elsewhere a line every few seconds."""
    *before, total = accumulate(sizes, initial=0)

    def bytes_done(progress: BuildProgress) -> int:
        return before[progress.file] + progress.offset

    def facts(seconds: float, progress: BuildProgress) -> str:
        speed = progress.text_bytes / 1e6 / max(seconds, 1e-9)
        return f"{progress.tokens / 1e6:,.1f} M tokens, {speed:.1f} MB/s"

    def line(seconds: float, progress: BuildProgress) -> str:
        share = bytes_done(progress) / max(total, 1)
        return f"litebert data build: {share:.0%}, {facts(seconds, progress)}"

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Progress(line)
        return
    shown = (TextColumn("building"), BarColumn(), TextColumn("{task.fields[facts]}"))
    began = time.monotonic()
    with Bar(*shown, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("", total=total, facts="")
        yield lambda progress: bar.update(
            task,
            completed=bytes_done(progress),
            facts=facts(time.monotonic() - began, progress),
        )
