"""litebert tokenizer train: corpus files in, a tokenizer's folder and a few figures out."""

import sys
from dataclasses import asdict
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from litebert.commands.flags import Json
from litebert.data.corpus import BadRow, CorpusOptions, read_documents
from litebert.errors import DataError
from litebert.files import Lock, to_json
from litebert.terminal import write_line
from litebert.text.normalize import TextRules
from litebert.text.tokenizer import make_folder
from litebert.text.train import VocabularyConfig, train_tokenizer


def train(
    corpus: Annotated[tuple[str, ...], Positional, arg(metavar="CORPUS…")],
    /,
    *,
    out: str,
    vocab_size: int = 30_000,
    character_coverage: float = 0.99995,
    max_lines: int = 10_000_000,
    seed: int = 0,
    lowercase: bool = True,
    keep_accents: bool = False,
    field: str = "text",
    bad_rows: Literal["error", "skip"] = "error",
    json: Json = False,
) -> None:
    """Train a SentencePiece vocabulary with the paper's settings.

    Args:
        corpus: Files, folders or globs of .txt, .jsonl, .parquet, each plain or with .gz, .xz,
            .bz2, .zst.
        out: Folder for spiece.model, tokenizer.json and tokenizer_config.json.
        vocab_size: Number of tokens, special ones included.
        character_coverage: Fraction of the text's characters that the vocabulary covers.
        max_lines: Lines to train on; of a larger corpus, a random sample.
        seed: Seed of that sample.
        lowercase: Lowercase all text, as ALBERT does; --no-lowercase keeps case.
        keep_accents: Keep combining marks, for languages in which they distinguish words.
        field: Field of a .jsonl row, or column of a .parquet file, that holds the text.
        bad_rows: What to do with a row without usable text: stop, or skip and count it.
    """
    config = VocabularyConfig(
        vocab_size=vocab_size,
        character_coverage=character_coverage,
        max_lines=max_lines,
        seed=seed,
        rules=TextRules(lowercase=lowercase, keep_accents=keep_accents),
    )
    folder = make_folder(out)
    try:
        lock = Lock(folder)
    except OSError as error:
        raise DataError(
            f"another process is writing a tokenizer to {out}; wait for it, or choose another --out"
        ) from error
    write_line(
        f"training a vocabulary of {vocab_size:,} tokens; a large corpus takes minutes",
        file=sys.stderr,
    )
    bad: list[BadRow] = []
    documents = read_documents(
        corpus, CorpusOptions(field=field, bad_rows=bad_rows), on_bad=bad.append
    )
    paragraphs = (paragraph for document in documents for paragraph in document.paragraphs)
    with lock:
        tokenizer, report = train_tokenizer(paragraphs, config)
        tokenizer.save(out)
    if bad:
        write_line(f"{len(bad)} bad rows left out, the first: {bad[0]}", file=sys.stderr)
    if json:
        write_line(to_json(asdict(report) | {"out": out, "fingerprint": tokenizer.fingerprint}))
        return
    measured = (
        f"{report.num_held_out:,} lines held out"
        if report.num_held_out
        else "the text itself, too short to hold lines out"
    )
    chosen = f"{max_lines:,} of " if report.num_lines > max_lines else ""
    write_line(f"{report.vocab_size:,} tokens from {chosen}{report.num_lines:,} lines, in {out}")
    write_line(f"on {measured}:")
    write_line(f"  coverage         {report.coverage:.4%} of characters")
    write_line(f"  tokens per word  {report.tokens_per_word:.3f}")
    write_line(f"  unknown tokens   {report.unknown_rate:.4%} of tokens")
