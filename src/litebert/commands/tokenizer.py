"""litebert tokenizer train: corpus files in, a tokenizer's folder and a few figures out."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from litebert.commands.marks import Json, note
from litebert.data.bad_rows import BadRow, check_share
from litebert.data.corpus import CorpusOptions, read_documents
from litebert.errors import ConfigError, DataError
from litebert.files import Lock, to_json
from litebert.terminal import Progress, write_line, write_stderr
from litebert.text.languages import Language, detect, language_of, rules_of
from litebert.text.tokenizer import FILES, make_folder
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
    language: str = "auto",
    keep_accents: bool | None = None,
    field: str = "text",
    bad_rows: Literal["error", "skip"] = "error",
    max_bad_rows: float = 0.1,
    overwrite: bool = False,
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
        language: Two-letter code of the text's language, whose rules for case and accents are
            stored with the tokenizer: en drops accents, as ALBERT does, all others keep them; tr
            and az lowercase I to ı. auto looks at the text and prints its choice.
        keep_accents: Keep combining marks, or drop them with --no-keep-accents, whatever the
            language.
        field: Field of a .jsonl row, or column of a .parquet file, that holds the text.
        bad_rows: What to do with a row without usable text: stop, or skip and count it.
        max_bad_rows: Largest fraction of rows that may be skipped; more, if they are ten or more,
            are an error.
        overwrite: Replace the tokenizer in --out; other files there stay.
    """
    chosen = None if language == "auto" else language_of(language)
    config = VocabularyConfig(
        vocab_size=vocab_size,
        character_coverage=character_coverage,
        max_lines=max_lines,
        seed=seed,
    )
    folder = make_folder(out)
    try:
        lock = Lock(folder)
    except OSError as error:
        raise DataError(
            f"another process is writing a tokenizer to {out}; wait for it, or choose another --out"
        ) from error
    options = CorpusOptions(field=field, bad_rows=bad_rows)
    bad: list[BadRow] = []
    with lock:
        present = [name for name in FILES if (folder / name).exists()]
        if present and not overwrite:
            raise ConfigError(
                f"{out} holds {', '.join(present)} already; choose another --out, or add "
                "--overwrite"
            )
        if chosen is None:
            chosen = _detected(_paragraphs(corpus, options))
        rules = rules_of(chosen, lowercase=lowercase, keep_accents=keep_accents)
        write_stderr(
            f"training a vocabulary of {vocab_size:,} tokens; a large corpus takes minutes"
        )
        tokenizer, report = train_tokenizer(
            _paragraphs(corpus, options, bad.append),
            replace(config, rules=rules),
            on_progress=Progress(lambda seconds, stage: f"{seconds:,.0f} s: {stage}"),
        )
        if bad:
            check_share(
                len(bad),
                report.num_lines,
                max_bad_rows,
                first=str(bad[0]),
                mend="convert a file in another encoding to UTF-8",
            )
        tokenizer.save(out)
    if bad:
        write_stderr(f"{len(bad)} bad rows left out, the first: {bad[0]}")
    if json:
        facts = {"out": out, "fingerprint": tokenizer.fingerprint, "rules": asdict(rules)}
        write_line(to_json(asdict(report) | facts))
        return
    measured = (
        f"{report.num_held_out:,} lines held out"
        if report.num_held_out
        else "the text itself, too short to hold lines out"
    )
    sampled = f"{max_lines:,} of " if report.num_lines > max_lines else ""
    write_line(f"{report.vocab_size:,} tokens from {sampled}{report.num_lines:,} lines, in {out}")
    write_line(f"on {measured}:")
    write_line(f"  coverage         {report.coverage:.4%} of characters")
    write_line(f"  tokens per word  {report.tokens_per_word:.3f}")
    write_line(f"  unknown tokens   {report.unknown_rate:.4%} of tokens")


def _paragraphs(
    corpus: tuple[str, ...],
    options: CorpusOptions,
    on_bad: Callable[[BadRow], None] = lambda row: None,
) -> Iterator[str]:
    for document in read_documents(corpus, options, on_bad=on_bad):
        yield from document.paragraphs


def _detected(paragraphs: Iterator[str]) -> Language:
    """The language of a corpus, which is printed with what follows from it."""
    detected = detect(paragraphs)
    language = language_of(detected.code)
    accents = "kept" if language.keeps_accents else "dropped, as in ALBERT"
    case = ", I is lowercased to ı and İ to i" if language.has_dotless_i else ""
    note(
        f"the text is {language.name} ({detected.evidence}): accents are {accents}{case}; "
        "--language CODE and --keep-accents or --no-keep-accents choose otherwise"
    )
    return language
