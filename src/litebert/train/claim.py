"""A run goes on only as what it was. Recipe and inputs in; a folder marked as theirs out, or the difference in an error."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import torch

from litebert.errors import ConfigError
from litebert.recipes import PretrainRecipe, difference
from litebert.train.folder import RunFolder, environment, write_json
from litebert.train.runtime import Runtime


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a run is made from, beside its recipe."""

    tokenizer: str
    """Fingerprint of the vocabulary."""
    corpus: str
    """Fingerprint of the shards."""
    init: str | None = None
    """The checkpoint that weights start from."""


def claim(folder: RunFolder, recipe: PretrainRecipe, inputs: Inputs, runtime: Runtime) -> None:
    """Write down what the run is; refuse a folder that holds another."""
    if folder.recipe.exists():
        changed = _changed(folder, recipe, inputs)
        if changed:
            raise ConfigError(
                f"{folder.path} holds another run, so it cannot go on; choose another --out, or undo: " + "; ".join(changed)
            )
    elif runtime.is_main:
        device = torch.cuda.get_device_name(runtime.device) if runtime.device.type == "cuda" else str(runtime.device)
        more = {"device": device, "dtype": str(runtime.dtype), "world_size": runtime.world_size}
        write_json(folder.environment, environment(**more, threads=torch.get_num_threads()))
        write_json(folder.recipe, {"recipe": recipe.to_dict(), "inputs": asdict(inputs)})  # last: it marks the folder
    runtime.wait()


def _changed(folder: RunFolder, recipe: PretrainRecipe, inputs: Inputs) -> list[str]:
    """One readable line for each thing that differs."""
    try:
        then = json.loads(folder.recipe.read_text(encoding="utf-8"))
        before, known = PretrainRecipe.from_dict(then["recipe"]), dict(then["inputs"])
    except (ConfigError, ValueError, KeyError, TypeError, OSError) as error:
        raise ConfigError(f"{folder.recipe} cannot be read as the recipe of a run: {error}; choose another --out") from error
    now: dict[str, Any] = asdict(inputs)
    lines = [
        f"{name}: {_short(known.get(name))} in the run, {_short(value)} now"
        for name, value in now.items()
        if known.get(name) != value
    ]
    return difference(before, recipe) + lines


def _short(value: object) -> str:
    """A fingerprint by its beginning; nobody compares 64 digits."""
    text = "none" if value is None else str(value)
    return text[:12] + "…" if len(text) == 64 and text.isalnum() else text
