"""A whole conversion: a folder or checkpoint of any known kind in, a litebert or Hugging Face
folder out.
 Recognises the source, converts weights and config, carries the tokenizer over where there is one,
and publishes the target whole or not at all. What a user should know comes back as notes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from litebert.config import Activation, HeadKind, ModelConfig
from litebert.convert.bundle import find_prefix
from litebert.convert.express import express
from litebert.convert.fit import Imported
from litebert.convert.huggingface import read_huggingface
from litebert.convert.tensorflow import read_google
from litebert.errors import CheckpointError, ConfigError, ConversionError
from litebert.files import read_json, write_folder
from litebert.storage.checkpoint import FORMAT, Checkpoint
from litebert.text.tokenizer import Tokenizer

Kind = Literal["litebert", "huggingface", "google"]
Target = Literal["litebert", "huggingface"]

SPIECE = "spiece.model"
GOOGLE_SPIECES = ("30k-clean.model", SPIECE)
WORDPIECE_NOTE = "its vocabulary (vocab.txt) is WordPiece, which litebert does not read: only the weights were converted"
NO_TOKENIZER_NOTE = "there is no {} beside the weights, so no tokenizer was carried over; copy one into the target to use text"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a user may say about a source."""

    allow_pickle: bool = False
    """Read a pickled pytorch_model.bin, in a child process and tensors only."""
    activation: Activation | None = None
    """Overrules the activation that the source's config names."""
    head: HeadKind | None = None
    """What the output of a fine-tuned Google checkpoint is, where its shape does not say."""
    hf_compat: bool = False
    """Keep all of Hugging Face's deviations from the paper, for training on as there."""


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """What was done."""

    source: Kind
    target: Target
    folder: Path
    config: ModelConfig
    num_parameters: int
    has_tokenizer: bool
    notes: tuple[str, ...]


def convert_folder(
    source: Path | str,
    target: Path | str,
    *,
    to: Target | None = None,
    options: Options | None = None,
) -> Conversion:
    """Convert `source` and publish it at `target`; `to` is the other kind where it is not given."""
    source, target, options = Path(source), Path(target), options or Options()
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ConfigError(
                f"{target} exists and is not an empty folder; choose another target or remove it"
            )
        kind = recognize(source)
        to = to or ("huggingface" if kind == "litebert" else "litebert")
        if kind == to == "litebert":
            raise ConfigError(
                f"{source} is a litebert folder already; add --to huggingface, or copy it"
            )
        imported, tokenizer = SOURCES[kind](source, options)
        _check_tokenizer(imported, tokenizer)
        notes = imported.notes + TARGETS[to](target, imported, tokenizer)
    except OSError as error:  # no right to read or write, no room, a name too long: the system's own words are the best
        raise ConversionError(f"converting {source} to {target} failed: {error}") from error
    return Conversion(
        source=kind,
        target=to,
        folder=target,
        config=imported.config,
        num_parameters=sum(tensor.numel() for tensor in imported.weights.values()),
        has_tokenizer=tokenizer is not None,
        notes=notes,
    )


def recognize(source: Path) -> Kind:
    """What `source` is, by the files it has."""
    if find_prefix(source):
        return "google"
    if not source.exists():
        raise ConversionError(
            f"there is no {source}; expected a model folder, or the prefix of a TensorFlow "
            "checkpoint"
        )
    if not source.is_dir():
        raise ConversionError(
            f"{source} is a file; expected a model folder, or the prefix of a TensorFlow checkpoint"
        )
    try:
        data = read_json(source / "config.json")
    except CheckpointError as error:
        raise ConversionError(f"{error}; nor is it a TensorFlow checkpoint") from error
    return "litebert" if data.get("format") == FORMAT else "huggingface"


def _from_litebert(source: Path, options: Options) -> tuple[Imported, Tokenizer | None]:
    checkpoint = Checkpoint.load(source)
    config = checkpoint.model.config
    if options.activation:
        config = replace(config, encoder=replace(config.encoder, activation=options.activation))
    notes = () if checkpoint.tokenizer else (NO_TOKENIZER_NOTE.format(SPIECE),)
    return Imported(
        config=config, weights=dict(checkpoint.model.state_dict()), notes=notes
    ), checkpoint.tokenizer


def _from_huggingface(source: Path, options: Options) -> tuple[Imported, Tokenizer | None]:
    imported = read_huggingface(
        source,
        allow_pickle=options.allow_pickle,
        activation=options.activation,
        hf_compat=options.hf_compat,
    )
    if (source / SPIECE).is_file():
        return imported, Tokenizer.load(source)
    note = (
        WORDPIECE_NOTE
        if imported.config.encoder.share == "none"
        else NO_TOKENIZER_NOTE.format(SPIECE)
    )
    return replace(imported, notes=(*imported.notes, note)), None


def _from_google(source: Path, options: Options) -> tuple[Imported, Tokenizer | None]:
    prefix = find_prefix(source)
    assert prefix is not None, "recognized before"
    imported = read_google(prefix, activation=options.activation, head=options.head)
    for name in GOOGLE_SPIECES:
        if (prefix.parent / name).is_file():
            return imported, Tokenizer.load(prefix.parent / name)
    return replace(
        imported, notes=(*imported.notes, NO_TOKENIZER_NOTE.format(" or ".join(GOOGLE_SPIECES)))
    ), None


def _check_tokenizer(imported: Imported, tokenizer: Tokenizer | None) -> None:
    size = imported.config.encoder.vocab_size
    if tokenizer and tokenizer.vocab_size > size:
        raise ConversionError(
            f"the tokenizer has {tokenizer.vocab_size} pieces, the model only {size} embeddings: "
            "they do not belong together"
        )


def _to_litebert(target: Path, imported: Imported, tokenizer: Tokenizer | None) -> tuple[str, ...]:
    Checkpoint(model=imported.model(), tokenizer=tokenizer).save(target, replace=target.exists())
    return ()


def _to_huggingface(
    target: Path, imported: Imported, tokenizer: Tokenizer | None
) -> tuple[str, ...]:
    expressed = express(imported.config, imported.weights)

    def write(folder: Path) -> None:
        expressed.write(folder)
        if tokenizer:
            tokenizer.save(folder)

    write_folder(target, write, replace=target.exists())
    return expressed.notes


SOURCES: dict[Kind, Callable[[Path, Options], tuple[Imported, Tokenizer | None]]] = {
    "litebert": _from_litebert,
    "huggingface": _from_huggingface,
    "google": _from_google,
}
TARGETS: dict[Target, Callable[[Path, Imported, Tokenizer | None], tuple[str, ...]]] = {
    "litebert": _to_litebert,
    "huggingface": _to_huggingface,
}
