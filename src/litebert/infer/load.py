"""litebert.load: a folder in, a Predictor out. A litebert checkpoint, the folder of a run, a Hugging Face folder or Google's
checkpoint will do; foreign weights are converted in memory.
"""

from pathlib import Path

import torch

from litebert.checkpoint import Checkpoint
from litebert.convert.bundle import find_prefix
from litebert.convert.folder import SOURCES, Options, recognize
from litebert.errors import CheckpointError, ConfigError
from litebert.infer.predictor import Predictor

RUN = ("recipe.json", "metrics.jsonl")
"""What tells the folder of a run."""
CHECKPOINTS = ("final", "best")
"""Where a run keeps its weights, the ones to be asked first."""


def load(folder: Path | str, *, device: str = "auto", batch_tokens: int | None = None) -> Predictor:
    """The model of a folder, ready to be asked. `device` is cpu, cuda, cuda:1 … or auto."""
    place = find_device(device)
    if batch_tokens is not None and batch_tokens < 1:
        raise ConfigError(f"batch_tokens is at least 1; got {batch_tokens}")
    path = find_checkpoint(folder)
    if not path.exists() and not find_prefix(path):
        raise CheckpointError(
            f"there is no {path}; expected the folder of a checkpoint, a run or a Hugging Face model, or the prefix of "
            "Google's checkpoint (models by name, embedded in the package, do not exist yet)"
        )
    kind = recognize(path)
    if kind == "litebert":
        return Predictor(Checkpoint.load(path), device=place, batch_tokens=batch_tokens)
    imported, tokenizer = SOURCES[kind](path, Options())
    checkpoint = Checkpoint(model=imported.model(), tokenizer=tokenizer)
    return Predictor(checkpoint, device=place, batch_tokens=batch_tokens, notes=imported.notes)


def find_checkpoint(folder: Path | str) -> Path:
    """The folder that holds the weights: `folder` itself, or the final or best checkpoint of a run."""
    path = Path(folder)
    if not any((path / name).exists() for name in RUN):
        return path
    for name in CHECKPOINTS:
        if (path / name).is_dir():
            return path / name
    raise CheckpointError(
        f"the run in {path} has no checkpoint yet, neither {' nor '.join(CHECKPOINTS)}; wait until it has one"
    )


def find_device(name: str) -> torch.device:
    """Where to compute; ConfigError for a place that is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"there is no device {name!r} here: {str(error).splitlines()[0]}; see litebert doctor") from error
    return device
