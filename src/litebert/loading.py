"""Where a model comes from: a folder or a name in, a checkpoint and what a user should know of it
out.
 A litebert checkpoint, the folder of a run or of several seeds, a Hugging Face folder and Google's
checkpoint will do, foreign weights are converted in memory; so will the name of a model that comes
with the package, where there is no such folder.
"""

from pathlib import Path

from litebert.convert.bundle import find_prefix
from litebert.convert.folder import SOURCES, Options, recognize
from litebert.errors import CheckpointError
from litebert.models.index import embedded_models, find_embedded
from litebert.storage.checkpoint import Checkpoint

RUN = ("recipe.json", "metrics.jsonl", "summary.json")
"""What tells the folder of a run, or of a run for each of several seeds."""
CHECKPOINTS = ("final", "best")
"""Where a run keeps its weights, the ones to be asked first."""


def open_model(folder: Path | str) -> tuple[Checkpoint, tuple[str, ...]]:
    """The model of a folder or of a name, and notes of its conversion."""
    path = find_checkpoint(folder)
    if not path.exists() and not find_prefix(path):
        embedded = find_embedded(str(folder))
        if embedded is not None:
            return Checkpoint.load(embedded.folder), ()
        names = ", ".join(model.name for model in embedded_models()) or "none"
        raise CheckpointError(
            f"there is no {path}; expected the folder of a checkpoint, a run or a Hugging Face "
            "model, or the prefix of "
            f"Google's checkpoint, or a model that comes with litebert (there is {names})"
        )
    kind = recognize(path)
    if kind == "litebert":
        return Checkpoint.load(path), ()
    imported, tokenizer = SOURCES[kind](path, Options())
    return Checkpoint(model=imported.model(), tokenizer=tokenizer), imported.notes


def checkpoint_folder(name: Path | str) -> Path:
    """Where the litebert checkpoint of a folder, of a run or of a name lies."""
    path = find_checkpoint(name)
    embedded = None if path.exists() else find_embedded(str(name))
    return embedded.folder if embedded else path


def find_checkpoint(folder: Path | str) -> Path:
    """The folder that holds the weights: `folder` itself, or the final or best checkpoint of a
    run."""
    path = Path(folder)
    if not any((path / name).exists() for name in RUN):
        return path
    for name in CHECKPOINTS:
        if (path / name).is_dir():
            return path / name
    raise CheckpointError(
        f"the run in {path} has no checkpoint yet, neither {' nor '.join(CHECKPOINTS)}; wait until "
        "it has one"
    )
