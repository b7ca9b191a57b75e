"""Checkpoints: a folder to predict from. A model (and its tokenizer) in, config.json and
model.safetensors out, and back.
 Written whole or not at all, verified when read, no pickle anywhere. Weights are stored as they
are, in 8 bits with scales (storage/int8.py), or as their difference to another checkpoint's
(storage/difference.py), which config.json then says. What a run resumes from is a snapshot
(snapshot.py).
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors.torch import save_file

from litebert.checks import check_whole
from litebert.config import ModelConfig
from litebert.errors import CheckpointError, ConfigError
from litebert.files import MANIFEST, read_json, verify_folder, write_folder
from litebert.model.model import Model, bare_model
from litebert.models.index import find_embedded
from litebert.storage import difference, int8
from litebert.storage.difference import Extent
from litebert.storage.weights import (
    MAX_EXTENT,
    Based,
    check_alike,
    read_difference,
    read_mark,
    read_weights,
)
from litebert.text.tokenizer import Tokenizer

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TASK = "task.json"
FORMAT = "litebert"
VERSION = 1

Stored = Literal["exact", "int8"]
"""How weights are stored: every one as it is, or matrices in 8 bits."""
IDENTITY = (WEIGHTS, "spiece.model", "tokenizer_config.json")
"""Files that tell a base from any other."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Weights stored as their difference to a base, which must be there when they are read, and
    whose tokenizer is theirs."""

    base: Path | str
    """Folder of a checkpoint, or name of a model that comes with litebert."""
    rank: int = 32
    """Directions that are kept of each matrix's change."""
    token_rank: int = 4
    """And of the token embedding's, which is large; 0 for none."""

    def __post_init__(self) -> None:
        check_whole(self, "rank", 1, MAX_EXTENT)
        check_whole(self, "token_rank", 0, MAX_EXTENT)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A model to predict from, with the tokenizer it was trained on where there is one."""

    model: Model
    tokenizer: Tokenizer | None = None
    task: Mapping[str, Any] | None = None
    """What it was fine-tuned for, where it was: a TaskCard as a dictionary, of which nothing is
    believed here."""

    def save(
        self, folder: Path | str, *, replace: bool = False, weights: Stored | Difference = "exact"
    ) -> Path:
        """Write the folder, whole or not at all.

        With `weights="int8"` it takes about a quarter of the room, and has no tokenizer.json, which
        follows from spiece.model. With a Difference it takes a fraction of that, and is read
        together with its base.
        """
        if not isinstance(weights, Difference) and weights not in get_args(Stored):
            raise ConfigError(
                f"weights is one of {', '.join(get_args(Stored))}, or a Difference; got {weights!r}"
            )
        return write_folder(
            folder, lambda temporary: self.write(temporary, weights=weights), replace=replace
        )

    def write(self, folder: Path, *, weights: Stored | Difference = "exact") -> None:
        """Write the files into a folder that somebody else publishes."""
        header: dict[str, Any] = {"format": FORMAT, "version": VERSION}
        tensors = {
            name: tensor.detach().cpu().contiguous()
            for name, tensor in self.model.state_dict().items()
        }
        if weights != "exact":
            wild = next(
                (name for name, tensor in tensors.items() if not tensor.isfinite().all()), None
            )
            if wild is not None:
                raise CheckpointError(
                    f"{wild} holds numbers that are not finite, which 8 bits cannot say; was the "
                    "run healthy?"
                )
        if weights == "int8":
            header["weights"] = {"kind": "int8", "group_size": int8.GROUP_SIZE}
            tensors = int8.pack(tensors, int8.GROUP_SIZE)
        elif isinstance(weights, Difference):
            place = _place_of(weights.base)
            extent = Extent(rank=weights.rank, token_rank=weights.token_rank)
            header["weights"] = Based(
                base=place.resolve().name, sha256=identity(place), extent=extent
            ).to_dict()
            floats = {name: tensor.float() for name, tensor in tensors.items()}
            tensors = difference.pack(floats, self._base(place).model.state_dict(), extent)
        text = json.dumps(header | self.model.config.to_dict(), indent=2, ensure_ascii=False)
        (folder / CONFIG).write_text(text + "\n", encoding="utf-8")
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        shutil.copymode(
            folder / CONFIG, folder / WEIGHTS
        )  # safetensors lets the owner alone read them
        if self.tokenizer is not None and not isinstance(weights, Difference):
            self.tokenizer.save(folder, for_huggingface=weights == "exact")
        if self.task is not None:
            task = json.dumps(dict(self.task), indent=2, ensure_ascii=False, allow_nan=False)
            (folder / TASK).write_text(task + "\n", encoding="utf-8")

    def _base(self, place: Path) -> "Checkpoint":
        """The base that this model was fine-tuned from; CheckpointError where it cannot be."""
        if isinstance(read_header(place)[1], Based):
            raise CheckpointError(
                f"{place} is stored as a difference itself; take the model that it is based on"
            )
        base = Checkpoint.load(place)
        check_alike(self.model.config.encoder, base.model.config.encoder)
        if self.tokenizer and (
            base.tokenizer is None or base.tokenizer.fingerprint != self.tokenizer.fingerprint
        ):
            raise CheckpointError(
                f"{place} has another vocabulary than the model; a base is what the model was "
                "fine-tuned from"
            )
        return base

    @classmethod
    def load(cls, folder: Path | str, *, dtype: torch.dtype = torch.float32) -> "Checkpoint":
        """Read and verify a folder; CheckpointError says what is missing, damaged or does not
        fit."""
        folder = Path(folder)
        config, stored = read_header(folder)
        if (folder / MANIFEST).exists():
            verify_folder(folder)
        if isinstance(stored, Based):
            base = cls.load(find_base(folder, stored))
            weights = read_difference(folder / WEIGHTS, config, stored.extent, base.model)
            tokenizer = base.tokenizer
        else:
            weights = read_weights(folder / WEIGHTS, config, stored)
            tokenizer = Tokenizer.load(folder) if (folder / "spiece.model").exists() else None
        model = bare_model(config)
        model.load_state_dict(
            {name: tensor.to(dtype) for name, tensor in weights.items()}, assign=True
        )
        task = read_json(folder / TASK) if (folder / TASK).exists() else None
        return cls(model=model.eval(), tokenizer=tokenizer, task=task)


def find_base(folder: Path, based: Based) -> Path:
    """Where the base of a difference lies: beside it, or among the models that come with
    litebert."""
    embedded = find_embedded(based.base)
    places = dict.fromkeys(
        [folder.resolve().parent / based.base, *([embedded.folder] if embedded else [])]
    )
    for place in places:
        if (
            (place / CONFIG).exists()
            and identity(place) == based.sha256
            and not isinstance(read_header(place)[1], Based)
        ):
            return place
    there = " and ".join(f"{place} is another" for place in places if place.exists())
    raise CheckpointError(
        f"{folder} is stored as its difference to {based.base} with sha256 {based.sha256[:12]}…, "
        "and "
        f"{there or 'there is no such model'}; put the base beside it that it was made from, or "
        "make it anew"
    )


def identity(folder: Path) -> str:
    """A sha256 of what weights are compared with: a checkpoint's weights and vocabulary, as they
    are stored."""
    digest = hashlib.sha256()
    try:
        for path in (folder / name for name in IDENTITY):
            digest.update(path.read_bytes() if path.exists() else b"")
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be read: {error}") from error
    return digest.hexdigest()


def _place_of(base: Path | str) -> Path:
    """The folder of a base that is given by its folder or its name."""
    embedded = None if Path(base).is_dir() else find_embedded(str(base))
    return embedded.folder if embedded else Path(base)


def read_config(folder: Path) -> ModelConfig:
    """The config of a checkpoint folder."""
    return read_header(folder)[0]


def read_header(folder: Path) -> tuple[ModelConfig, int | Based | None]:
    """The config of a checkpoint folder and, where its weights are in 8 bits, how many of them
    share a scale, or what they are based on."""
    if not folder.is_dir():
        raise CheckpointError(
            f"{folder} is not a folder; expected a checkpoint with {CONFIG} and {WEIGHTS}"
        )
    data = read_json(folder / CONFIG)
    kind, version = data.pop("format", None), data.pop("version", None)
    if kind != FORMAT:
        raise CheckpointError(
            f"{folder / CONFIG} is not of a litebert checkpoint; if the folder is Hugging Face's "
            "or Google's, "
            f"convert it first: litebert convert {folder} TARGET"
        )
    if version != VERSION:
        raise CheckpointError(
            f"{folder / CONFIG} has version {version!r}, this litebert reads {VERSION}; update "
            "litebert"
        )
    try:
        stored = read_mark(data.pop("weights")) if "weights" in data else None
        return ModelConfig.from_dict(data), stored
    except ConfigError as error:
        raise CheckpointError(f"{folder / CONFIG} cannot be used: {error}") from error
