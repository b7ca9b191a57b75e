"""litebert tokenizer train: corpus files in, a tokenizer's folder and a few figures out."""

import json as jsonlib
import sys
from dataclasses import asdict
from typing import Annotated, Literal

import tyro

from litebert.data.corpus import BadRow, CorpusOptions, read_documents
from litebert.text.normalize import TextRules
from litebert.text.tokenizer import make_folder
from litebert.text.train import VocabularyConfig, train_tokenizer


def train(
    corpus: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="CORPUS...")],
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
    json: bool = False,
) -> None:
    """Learn a SentencePiece vocabulary with the paper's flags.

    Args:
        corpus: Files, folders or globs of .txt, .jsonl, .parquet, each plain or with .gz, .xz,
            .bz2, .zst.
        out: Folder for spiece.model, tokenizer.json and tokenizer_config.json.
        vocab_size: Number of pieces, special tokens included.
        character_coverage: Share of the text's characters that become pieces.
        max_lines: Lines to learn from; of a larger corpus, a random choice.
        seed: Of that choice.
        lowercase: Whether every letter is lowered, as ALBERT does; --no-lowercase keeps them as
            they are.
        keep_accents: Keep combining marks, for languages in which they tell words apart.
        field: Field of a .jsonl row, or column of a .parquet file, that holds the text.
        bad_rows: What to do with a row that holds no usable text: stop, or leave it out and count
            it.
        json: Print one JSON object.
    """
    config = VocabularyConfig(
        vocab_size=vocab_size,
        character_coverage=character_coverage,
        max_lines=max_lines,
        seed=seed,
        rules=TextRules(lowercase=lowercase, keep_accents=keep_accents),
    )
    make_folder(out)
    print(f"learning {vocab_size} pieces; a large corpus takes minutes", file=sys.stderr)
    bad: list[BadRow] = []
    documents = read_documents(
        corpus, CorpusOptions(field=field, bad_rows=bad_rows), on_bad=bad.append
    )
    paragraphs = (paragraph for document in documents for paragraph in document.paragraphs)
    tokenizer, report = train_tokenizer(paragraphs, config)
    tokenizer.save(out)
    if bad:
        print(f"{len(bad)} bad rows left out, the first: {bad[0]}", file=sys.stderr)
    if json:
        print(jsonlib.dumps(asdict(report) | {"out": out, "fingerprint": tokenizer.fingerprint}))
        return
    measured = (
        f"{report.num_held_out:,} lines held out"
        if report.num_held_out
        else "the text itself, too short to hold lines out"
    )
    chosen = f"{max_lines:,} of " if report.num_lines > max_lines else ""
    print(f"{report.vocab_size:,} pieces from {chosen}{report.num_lines:,} lines, in {out}")
    print(f"on {measured}:")
    print(f"  coverage         {report.coverage:.4%} of characters")
    print(f"  tokens per word  {report.tokens_per_word:.3f}")
    print(f"  unknown rate     {report.unknown_rate:.4%} of tokens")
