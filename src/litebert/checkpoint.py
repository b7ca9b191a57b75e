"""Checkpoints: a folder to predict from. A model (and its tokenizer) in, config.json and model.safetensors out, and back.

Written whole or not at all, verified when read, no pickle anywhere. What a run resumes from is a snapshot (snapshot.py).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from litebert.atomic import MANIFEST, verify_folder, write_folder
from litebert.config import ModelConfig
from litebert.errors import CheckpointError, ConfigError
from litebert.model.count import count_encoder, count_head
from litebert.model.model import Model
from litebert.text.tokenizer import Tokenizer

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TASK = "task.json"
FORMAT = "litebert"
VERSION = 1
MAX_CONFIG_BYTES = 4 * 2**20


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A model to predict from, with the tokenizer it was trained on where there is one."""

    model: Model
    tokenizer: Tokenizer | None = None
    task: Mapping[str, Any] | None = None
    """What it was fine-tuned for, where it was: a TaskCard as a dictionary, of which nothing is believed here."""

    def save(self, folder: Path | str, *, replace: bool = False) -> Path:
        """Write the folder, whole or not at all."""

        def write(temporary: Path) -> None:
            header = {"format": FORMAT, "version": VERSION}
            text = json.dumps(header | self.model.config.to_dict(), indent=2, ensure_ascii=False)
            (temporary / CONFIG).write_text(text + "\n", encoding="utf-8")
            weights = {name: tensor.detach().cpu().contiguous() for name, tensor in self.model.state_dict().items()}
            save_file(weights, temporary / WEIGHTS, metadata={"format": "pt"})
            if self.tokenizer is not None:
                self.tokenizer.save(temporary)
            if self.task is not None:
                task = json.dumps(dict(self.task), indent=2, ensure_ascii=False, allow_nan=False)
                (temporary / TASK).write_text(task + "\n", encoding="utf-8")

        return write_folder(folder, write, replace=replace)

    @classmethod
    def load(cls, folder: Path | str, *, dtype: torch.dtype = torch.float32) -> "Checkpoint":
        """Read and verify a folder; CheckpointError says what is missing, damaged or does not fit."""
        folder = Path(folder)
        config = read_config(folder)
        if (folder / MANIFEST).exists():
            verify_folder(folder)
        weights = read_weights(folder / WEIGHTS, config)
        with torch.device("meta"):
            model = Model(config)
        model.load_state_dict({name: tensor.to(dtype) for name, tensor in weights.items()}, assign=True)
        has_tokenizer = (folder / "spiece.model").exists()
        tokenizer = Tokenizer.load(folder) if has_tokenizer else None
        task = read_json(folder / TASK) if (folder / TASK).exists() else None
        return cls(model=model.eval(), tokenizer=tokenizer, task=task)


def read_config(folder: Path) -> ModelConfig:
    """The config of a checkpoint folder."""
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
        return ModelConfig.from_dict(data)
    except ConfigError as error:
        raise CheckpointError(f"{folder / CONFIG} cannot be used: {error}") from error


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


def read_weights(path: Path, config: ModelConfig) -> dict[str, Tensor]:
    """The weights that `config` asks for, no more and no fewer; shapes are compared before anything is allocated."""
    if not path.exists():
        raise CheckpointError(f"{path.parent} has no {path.name}; the checkpoint is not complete")
    try:
        with safe_open(path, framework="pt") as file:
            found = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            expected = expected_shapes(config, found)
            for name, shape in expected.items():
                if found[name] != shape:
                    raise CheckpointError(f"{path}: {name} has shape {found[name]}, {CONFIG} asks for {shape}")
            return {name: file.get_tensor(name) for name in found}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read, it is truncated or damaged: {error}") from error


def expected_shapes(config: ModelConfig, found: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a model of this config; the counts are compared first, so that no config makes us build much."""
    encoder = config.encoder
    asked = sum(count_encoder(encoder).values()) + sum(count_head(encoder, head) for head in config.heads)
    there = sum(math.prod(shape) for shape in found.values())
    if asked != there:
        raise CheckpointError(f"{CONFIG} asks for {asked:,} parameters, {WEIGHTS} has {there:,}; they do not belong together")
    with torch.device("meta"):
        shapes = {name: tuple(tensor.shape) for name, tensor in Model(config).state_dict().items()}
    unknown, missing = sorted(found.keys() - shapes.keys()), sorted(shapes.keys() - found.keys())
    if unknown:
        raise CheckpointError(f"{len(unknown)} weights have no name here, the first is {unknown[0]!r}")
    if missing:
        raise CheckpointError(f"{len(missing)} weights are missing, the first is {missing[0]!r}")
    return shapes
