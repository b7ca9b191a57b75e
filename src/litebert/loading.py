"""A folder or a name in; a model, its tokenizer and notes about the conversion out.

Accepted are a litebert checkpoint, the folder of a run or of several seeds, a Hugging Face folder,
Google's checkpoint (both converted in memory) and, where there is no such folder, the name of an
embedded model.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from litebert.config import EXPORT_FORMAT, PRESETS, WEB_FORMAT
from litebert.errors import CheckpointError
from litebert.files import read_json
from litebert.models.index import embedded_models, find_embedded

if TYPE_CHECKING:
    from litebert.storage.checkpoint import Checkpoint

_RUN_FILES = ("recipe.json", "metrics.jsonl", "summary.json")
"""Any of these marks the folder of a run, or of a run for each of several seeds."""
_RUN_CHECKPOINTS = ("final", "best")
"""Checkpoints of a run, the preferred one first."""


def load_checkpoint(
    name: Path | str, *, unverified: bool = False
) -> tuple["Checkpoint", tuple[str, ...]]:
    """The model of a folder or an embedded model's name, and notes about its conversion.
    `unverified`: do not compare its files with manifest.json."""
    # torch only now: finding a folder does without
    from litebert.convert.bundle import find_prefix
    from litebert.convert.folder import load_source

    path = find_checkpoint(name)
    if not os.path.exists(path) and not find_prefix(path):
        raise CheckpointError(_no_model(str(name)))
    config = path / "config.json"
    kind = read_json(config).get("format") if config.is_file() else None
    if kind in (WEB_FORMAT, EXPORT_FORMAT):
        use = "for a browser" if kind == WEB_FORMAT else "and can only predict"
        raise CheckpointError(
            f"{path} was written by litebert export {use}; give the checkpoint that it came from"
        )
    has_weights = any(path.glob("*.safetensors")) or any(path.glob("*.bin"))
    if (path / "onnx" / "model.onnx").is_file() and not has_weights:
        raise CheckpointError(
            f"{path} holds a graph for other programs (litebert export --whole) and no weights; "
            "give the checkpoint that it came from, or export that without --whole"
        )
    return load_source(path, unverified=unverified)


def find_checkpoint(name: Path | str) -> Path:
    """The folder with the weights: that of an embedded model where `name` is no folder, the final
    or best checkpoint of a run, `name` itself otherwise."""
    path = Path(name)
    if not os.path.exists(path):  # not Path.exists, which raises where a name is too long
        embedded = find_embedded(str(name))
        return embedded.folder if embedded else path
    if not any((path / file).exists() for file in _RUN_FILES):
        return path
    for checkpoint in _RUN_CHECKPOINTS:
        if (path / checkpoint).is_dir():
            return path / checkpoint
    raise CheckpointError(
        f"the run in {path} has no checkpoint yet, neither {' nor '.join(_RUN_CHECKPOINTS)}; wait "
        "until it has one"
    )


def _no_model(name: str) -> str:
    embedded = ", ".join(model.name for model in embedded_models()) or "none"
    if name in PRESETS:
        return (
            f"litebert knows the shape of {name} but holds no weights of it, and downloads none; "
            "download Google's or Hugging Face's and convert them (litebert convert FOLDER "
            f"TARGET), or load an embedded model ({embedded})"
        )
    return (
        f"there is no {name}; expected the folder of a checkpoint, a run or a Hugging Face model, "
        f"the prefix of Google's checkpoint, or an embedded model ({embedded})"
    )
