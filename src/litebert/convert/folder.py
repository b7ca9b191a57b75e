"""Conversion: a folder or checkpoint of any known kind in, a litebert or Hugging Face folder out.

Recognizes the source, converts config and weights, copies the tokenizer if there is one, and
writes the target atomically. Notes say what was left out, assumed or changed.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from litebert.config import Activation, HeadKind, ModelConfig
from litebert.convert.bundle import find_prefix
from litebert.convert.huggingface import read_huggingface
from litebert.convert.huggingface_writer import (
    to_huggingface,
    write_sentence_modules,
    write_tokenizer,
)
from litebert.convert.tensorflow import read_google
from litebert.convert.weights import Imported
from litebert.errors import CheckpointError, ConfigError, ConversionError
from litebert.files import MANIFEST, has_manifest, read_json, verify_folder, write_folder
from litebert.storage.checkpoint import (
    FORMAT,
    Checkpoint,
    Storage,
    check_finite,
    read_task,
    write_task,
)
from litebert.text.tokenizer import MODEL_FILE, Tokenizer

Kind = Literal["litebert", "huggingface", "google"]
Target = Literal["litebert", "huggingface"]

_GOOGLE_MODELS = ("30k-clean.model", MODEL_FILE)
_WORDPIECE_NOTE = (
    "its vocabulary (vocab.txt) is WordPiece, which litebert does not read: only the weights were "
    "converted"
)
_NO_TOKENIZER_NOTE = (
    "there is no {} beside the weights, so no tokenizer was carried over; copy one into the target "
    "to use text"
)
_GENERATOR_NOTE = (
    "the model was pretrained by replaced-token detection: its encoder was converted, its "
    "generator and its heads were left out"
)


@dataclass(frozen=True, kw_only=True)
class ConvertOptions:
    """How to read a source."""

    allow_pickle: bool = False
    """Read a pickled pytorch_model.bin, in a child process and tensors only."""
    activation: Activation | None = None
    """Overrides the activation of the source's config."""
    head: HeadKind | None = None
    """Kind of a fine-tuned Google checkpoint's output, where its shape does not tell."""
    unverified: bool = False
    """Do not compare the source's files with its manifest.json."""
    weights: Storage | None = None
    """How weights are stored; None for exactly. With it a litebert folder may become another."""
    hf_compat: bool = False
    """Keep all of Hugging Face's deviations from the paper, to train as it does."""


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """The result of a conversion."""

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
    options: ConvertOptions | None = None,
) -> Conversion:
    """Convert `source` and write it to `target`; `to` defaults to huggingface for a litebert
    folder, to litebert for all others."""
    source, target, options = Path(source), Path(target), options or ConvertOptions()
    try:
        is_taken = target.exists() and (not target.is_dir() or any(target.iterdir()))
        if is_taken and not has_manifest(target):
            raise _taken(target)
        kind = _recognize(source)
        is_exported = kind == "litebert" and options.weights is None
        to = to or ("huggingface" if is_exported else "litebert")
        if to == "huggingface" and options.weights is not None:
            raise ConfigError("--weights is how a litebert folder is stored; leave out --to")
        if kind == to == "litebert" and options.weights is None:
            raise ConfigError(
                f"{source} is a litebert folder already; add --to huggingface, or --weights int8, "
                "or copy it"
            )
        imported, tokenizer = _read(kind, source, options)
        _check_tokenizer(imported, tokenizer)
        write = _to_litebert if to == "litebert" else _to_huggingface
        if is_taken:  # by the same conversion, whose process was killed when it had finished?
            with tempfile.TemporaryDirectory(prefix="litebert-") as temporary:
                again = Path(temporary) / "model"
                notes = write(again, imported, tokenizer, options)
                if (again / MANIFEST).read_bytes() != (target / MANIFEST).read_bytes():
                    raise _taken(target)
            verify_folder(target)
        else:
            notes = write(target, imported, tokenizer, options)
    except OSError as error:  # permissions, a full disk: the system's words say it best
        raise ConversionError(f"converting {source} to {target} failed: {error}") from error
    return Conversion(
        source=kind,
        target=to,
        folder=target,
        config=imported.config,
        num_parameters=sum(tensor.numel() for tensor in imported.weights.values()),
        has_tokenizer=tokenizer is not None,
        notes=imported.notes + notes,
    )


def _taken(target: Path) -> ConfigError:
    return ConfigError(
        f"{target} exists and is not an empty folder; choose another target or remove it"
    )


def load_source(source: Path, *, unverified: bool = False) -> tuple[Checkpoint, tuple[str, ...]]:
    """The model of a folder or checkpoint of any known kind, converted in memory, and notes."""
    kind = _recognize(source)
    if kind == "litebert":
        return Checkpoint.load(source, unverified=unverified), ()
    imported, tokenizer = _read(kind, source, ConvertOptions(unverified=unverified))
    return _checkpoint(imported, tokenizer), imported.notes


def _read(kind: Kind, source: Path, options: ConvertOptions) -> tuple[Imported, Tokenizer | None]:
    imported, tokenizer = _SOURCES[kind](source, options)
    check_finite(imported.weights, str(source))
    return imported, tokenizer


def _recognize(source: Path) -> Kind:
    """The kind of `source`, by its files."""
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


def _from_litebert(source: Path, options: ConvertOptions) -> tuple[Imported, Tokenizer | None]:
    checkpoint = Checkpoint.load(source, unverified=options.unverified)
    config, weights = checkpoint.model.config, dict(checkpoint.model.state_dict())
    notes: tuple[str, ...] = ()
    if not checkpoint.tokenizer:
        notes += (_NO_TOKENIZER_NOTE.format(MODEL_FILE),)
    if config.generator is not None and options.weights is None:
        config = config.converted()
        weights = {name: each for name, each in weights.items() if name.startswith("encoder.")}
        notes += (_GENERATOR_NOTE,)
    if options.activation:
        config = replace(config, encoder=replace(config.encoder, activation=options.activation))
    imported = Imported(config=config, weights=weights, notes=notes, task=checkpoint.task)
    return imported, checkpoint.tokenizer


def _from_huggingface(source: Path, options: ConvertOptions) -> tuple[Imported, Tokenizer | None]:
    if not options.unverified and has_manifest(source):
        try:
            verify_folder(source)
        except CheckpointError as error:
            raise ConversionError(
                f"{error}; if you changed the folder on purpose, delete its {MANIFEST} or add "
                "--unverified"
            ) from error
    imported = read_huggingface(
        source,
        allow_pickle=options.allow_pickle,
        activation=options.activation,
        hf_compat=options.hf_compat,
    )
    imported = replace(imported, task=read_task(source))
    if (source / MODEL_FILE).is_file():
        return imported, Tokenizer.load(source)
    is_bert = imported.config.encoder.share == "none"
    note = _WORDPIECE_NOTE if is_bert else _NO_TOKENIZER_NOTE.format(MODEL_FILE)
    return replace(imported, notes=(*imported.notes, note)), None


def _from_google(source: Path, options: ConvertOptions) -> tuple[Imported, Tokenizer | None]:
    prefix = find_prefix(source)
    assert prefix is not None, "recognized before"
    imported = read_google(prefix, activation=options.activation, head=options.head)
    for name in _GOOGLE_MODELS:
        if (prefix.parent / name).is_file():
            return imported, Tokenizer.load(prefix.parent / name)
    note = _NO_TOKENIZER_NOTE.format(" or ".join(_GOOGLE_MODELS))
    return replace(imported, notes=(*imported.notes, note)), None


def _check_tokenizer(imported: Imported, tokenizer: Tokenizer | None) -> None:
    size = imported.config.encoder.vocab_size
    if tokenizer and tokenizer.vocab_size > size:
        raise ConversionError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the model only {size} embeddings: "
            "they do not belong together"
        )


def _to_litebert(
    target: Path, imported: Imported, tokenizer: Tokenizer | None, options: ConvertOptions
) -> tuple[str, ...]:
    checkpoint = _checkpoint(imported, tokenizer)
    checkpoint.save(target, replace=target.exists(), weights=options.weights or "exact")
    return ()


def _checkpoint(imported: Imported, tokenizer: Tokenizer | None) -> Checkpoint:
    return Checkpoint(model=imported.model(), tokenizer=tokenizer, task=imported.task)


def _to_huggingface(
    target: Path, imported: Imported, tokenizer: Tokenizer | None, options: ConvertOptions
) -> tuple[str, ...]:
    model = to_huggingface(imported.config, imported.weights)

    def write(folder: Path) -> None:
        model.write(folder)
        write_task(folder, imported.task)
        write_sentence_modules(folder, imported.config.encoder, imported.task)
        if tokenizer:
            write_tokenizer(folder, tokenizer, imported.config.encoder)

    write_folder(target, write, replace=target.exists())
    return model.notes


_SOURCES: dict[Kind, Callable[[Path, ConvertOptions], tuple[Imported, Tokenizer | None]]] = {
    "litebert": _from_litebert,
    "huggingface": _from_huggingface,
    "google": _from_google,
}
