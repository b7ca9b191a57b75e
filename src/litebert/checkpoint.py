"""Checkpoints: a folder to predict from. A model (and its tokenizer) in, config.json and model.safetensors out, and back.

Written whole or not at all, verified when read, no pickle anywhere. Weights are stored as they are, or in 8 bits with scales
(model/int8.py), which config.json then says. What a run resumes from is a snapshot (snapshot.py).
"""

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from litebert.atomic import MANIFEST, verify_folder, write_folder
from litebert.config import ModelConfig
from litebert.errors import CheckpointError, ConfigError
from litebert.model import int8
from litebert.model.bare import bare_model
from litebert.model.count import count_encoder, count_head
from litebert.model.model import Model
from litebert.text.tokenizer import Tokenizer

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TASK = "task.json"
FORMAT = "litebert"
VERSION = 1
MAX_CONFIG_BYTES = 4 * 2**20
MAX_GROUP_SIZE = 2**20

Stored = Literal["exact", "int8"]
"""How weights are stored: every one as it is, or matrices in 8 bits."""
Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A model to predict from, with the tokenizer it was trained on where there is one."""

    model: Model
    tokenizer: Tokenizer | None = None
    task: Mapping[str, Any] | None = None
    """What it was fine-tuned for, where it was: a TaskCard as a dictionary, of which nothing is believed here."""

    def save(self, folder: Path | str, *, replace: bool = False, weights: Stored = "exact") -> Path:
        """Write the folder, whole or not at all.

        With `weights="int8"` it takes about a quarter of the room, and has no tokenizer.json, which follows from spiece.model.
        """
        if weights not in get_args(Stored):
            raise ConfigError(f"weights is one of {', '.join(get_args(Stored))}; got {weights!r}")
        return write_folder(folder, lambda temporary: self.write(temporary, weights=weights), replace=replace)

    def write(self, folder: Path, *, weights: Stored = "exact") -> None:
        """Write the files into a folder that somebody else publishes."""
        header: dict[str, Any] = {"format": FORMAT, "version": VERSION}
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.model.state_dict().items()}
        if weights == "int8":
            wild = next((name for name, tensor in tensors.items() if not tensor.isfinite().all()), None)
            if wild is not None:
                raise CheckpointError(
                    f"{wild} holds numbers that are not finite, which 8 bits cannot say; was the run healthy?"
                )
            header["weights"] = {"kind": "int8", "group_size": int8.GROUP_SIZE}
            tensors = int8.pack(tensors, int8.GROUP_SIZE)
        text = json.dumps(header | self.model.config.to_dict(), indent=2, ensure_ascii=False)
        (folder / CONFIG).write_text(text + "\n", encoding="utf-8")
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        shutil.copymode(folder / CONFIG, folder / WEIGHTS)  # safetensors lets the owner alone read them
        if self.tokenizer is not None:
            self.tokenizer.save(folder, for_huggingface=weights == "exact")
        if self.task is not None:
            task = json.dumps(dict(self.task), indent=2, ensure_ascii=False, allow_nan=False)
            (folder / TASK).write_text(task + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path | str, *, dtype: torch.dtype = torch.float32) -> "Checkpoint":
        """Read and verify a folder; CheckpointError says what is missing, damaged or does not fit."""
        folder = Path(folder)
        config, group_size = read_header(folder)
        if (folder / MANIFEST).exists():
            verify_folder(folder)
        weights = read_weights(folder / WEIGHTS, config, group_size)
        model = bare_model(config)
        model.load_state_dict({name: tensor.to(dtype) for name, tensor in weights.items()}, assign=True)
        has_tokenizer = (folder / "spiece.model").exists()
        tokenizer = Tokenizer.load(folder) if has_tokenizer else None
        task = read_json(folder / TASK) if (folder / TASK).exists() else None
        return cls(model=model.eval(), tokenizer=tokenizer, task=task)


def read_config(folder: Path) -> ModelConfig:
    """The config of a checkpoint folder."""
    return read_header(folder)[0]


def read_header(folder: Path) -> tuple[ModelConfig, int | None]:
    """The config of a checkpoint folder and, where its weights are in 8 bits, how many of them share a scale."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; expected a checkpoint with {CONFIG} and {WEIGHTS}")
    data = read_json(folder / CONFIG)
    kind, version = data.pop("format", None), data.pop("version", None)
    if kind != FORMAT:
        raise CheckpointError(
            f"{folder / CONFIG} is not of a litebert checkpoint; if the folder is Hugging Face's or Google's, "
            f"convert it first: litebert convert {folder} TARGET"
        )
    if version != VERSION:
        raise CheckpointError(f"{folder / CONFIG} has version {version!r}, this litebert reads {VERSION}; update litebert")
    try:
        group_size = _group_size(data.pop("weights")) if "weights" in data else None
        return ModelConfig.from_dict(data), group_size
    except ConfigError as error:
        raise CheckpointError(f"{folder / CONFIG} cannot be used: {error}") from error


def _group_size(stored: Any) -> int:
    known = isinstance(stored, dict) and stored.keys() == {"kind", "group_size"} and stored["kind"] == "int8"
    size = stored["group_size"] if known else None
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_GROUP_SIZE:
        raise ConfigError(
            f"weights is of kind int8, with a group_size from 1 to {MAX_GROUP_SIZE}; got {stored!r}; update litebert"
        )
    return size


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a small file; CheckpointError otherwise."""
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise CheckpointError(f"{path} is larger than {MAX_CONFIG_BYTES} bytes; it is no config")
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path.parent} has no {path.name}; expected a model folder with {path.name} in it") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} should hold a JSON object, it holds a {type(data).__name__}")
    return data


def read_weights(path: Path, config: ModelConfig, group_size: int | None = None) -> dict[str, Tensor]:
    """The weights that `config` asks for, no more and no fewer; types and shapes are compared before anything is allocated.

    `group_size` is of weights in 8 bits, which come back in float32.
    """
    if not path.exists():
        raise CheckpointError(f"{path.parent} has no {path.name}; the checkpoint is not complete")
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            found = {name: tuple(part.get_shape()) for name, part in slices.items()}
            expected = expected_shapes(config, found, group_size)
            for name, (kind, shape) in expected.items():
                if found[name] != shape:
                    raise CheckpointError(f"{path}: {name} has shape {found[name]}, {CONFIG} asks for {shape}")
                if kind and (there := slices[name].get_dtype()) != kind:
                    raise CheckpointError(f"{path}: {name} is stored as {there}, {CONFIG} asks for {kind}")
            stored = {name: file.get_tensor(name) for name in found}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read, it is truncated or damaged: {error}") from error
    return stored if group_size is None else int8.unpack(stored, group_size)


def expected_shapes(
    config: ModelConfig, found: dict[str, Shape], group_size: int | None
) -> dict[str, tuple[str | None, Shape]]:
    """Names of a file for this config, each with its type where that is not free, and its shape.

    The counts are compared first, so that no config makes us build much.
    """
    encoder = config.encoder
    asked = sum(count_encoder(encoder).values()) + sum(count_head(encoder, head) for head in config.heads)
    scales = int8.SCALES if group_size else ()
    there = sum(math.prod(shape) for name, shape in found.items() if not name.endswith(scales))
    if asked != there:
        raise CheckpointError(f"{CONFIG} asks for {asked:,} parameters, {WEIGHTS} has {there:,}; they do not belong together")
    shapes = {name: tuple(tensor.shape) for name, tensor in bare_model(config).state_dict().items()}
    expected: dict[str, tuple[str | None, Shape]] = {name: (None, shape) for name, shape in shapes.items()}
    if group_size:
        expected = {**int8.stored_as(shapes, group_size)}
    unknown, missing = sorted(found.keys() - expected.keys()), sorted(expected.keys() - found.keys())
    if unknown:
        raise CheckpointError(f"{len(unknown)} weights have no name here, the first is {unknown[0]!r}")
    if missing:
        raise CheckpointError(f"{len(missing)} weights are missing, the first is {missing[0]!r}")
    return expected
