"""litebert.load: a folder or a name in, a Predictor out. See loading.py for the folders that
will do."""

from pathlib import Path

import torch

from litebert.errors import ConfigError
from litebert.infer.predictor import Arithmetic, Predictor
from litebert.loading import open_model
from litebert.models.index import default_model


def load(
    folder: Path | str | None = None,
    *,
    device: str = "auto",
    batch_tokens: int | None = None,
    dtype: Arithmetic = "auto",
    compile: bool = False,
) -> Predictor:
    """The model of a folder, ready to be asked: a litebert checkpoint, the folder of a run (its
    final or best checkpoint), a Hugging Face folder or Google's checkpoint. A name loads a model
    that comes with the package, nothing the first of these.

    `device` is cpu, cuda, cuda:1 … or auto; `batch_tokens` the most tokens computed at once, None
    for what suits the device. `dtype` is float32, bfloat16 or auto, which is bfloat16 on a GPU that
    is made for it. `compile` is worth its half minute where many thousand texts are asked.
    """
    place = find_device(device)
    if batch_tokens is not None and batch_tokens < 1:
        raise ConfigError(f"batch_tokens is at least 1; got {batch_tokens}")
    checkpoint, notes = open_model(default_model().folder if folder is None else folder)
    return Predictor(
        checkpoint,
        device=place,
        batch_tokens=batch_tokens,
        dtype=dtype,
        compile=compile,
        notes=notes,
    )


def find_device(name: str) -> torch.device:
    """Where to compute; ConfigError for a place that is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"there is no device {name!r} here: {str(error).splitlines()[0]}; see litebert doctor"
        ) from error
    return device
