"""A run goes on only as what it was. Recipe and inputs in; a folder marked as theirs out, or the
difference in an error."""

import json
from collections.abc import Mapping
from typing import Any

import torch

from litebert.errors import ConfigError
from litebert.files import write_json
from litebert.recipes import Recipe, difference
from litebert.train.folder import RunFolder, environment
from litebert.train.runtime import Runtime

EXACT = ("device", "dtype", "world_size", "threads", "packages")
"""What sums are rounded by: a run that goes on elsewhere learns the same, and not bit for bit."""


Inputs = Mapping[str, str | None]
"""What a run is made from, beside its recipe: fingerprints and folders by name."""


def claim(folder: RunFolder, recipe: Recipe, inputs: Inputs, runtime: Runtime) -> list[str]:
    """Write down what the run is; refuse a folder that holds another. What else differs from where
    it began."""
    here = environment(
        device=torch.cuda.get_device_name(runtime.device)
        if runtime.device.type == "cuda"
        else str(runtime.device),
        dtype=str(runtime.dtype),
        world_size=runtime.world_size,
        threads=torch.get_num_threads(),
    )
    moved = []
    if folder.recipe.exists():
        changed = _changed(folder, recipe, inputs)
        if changed:
            raise ConfigError(
                f"{folder.path} holds another run, so it cannot go on; choose another --out, or "
                "undo: " + "; ".join(changed)
            )
        moved = _moved(folder, here)
    elif runtime.is_main:
        write_json(folder.environment, here)
        write_json(
            folder.recipe, {"recipe": recipe.to_dict(), "inputs": dict(inputs)}
        )  # last: it marks the folder
    runtime.wait()
    return moved


def _changed(folder: RunFolder, recipe: Recipe, inputs: Inputs) -> list[str]:
    """One readable line for each thing that differs."""
    try:
        then = json.loads(folder.recipe.read_text(encoding="utf-8"))
        before, known = type(recipe).from_dict(then["recipe"]), dict(then["inputs"])
    except (ConfigError, ValueError, KeyError, TypeError, OSError) as error:
        raise ConfigError(
            f"{folder.recipe} cannot be read as the recipe of a run: {error}; choose another --out"
        ) from error
    lines = [
        f"{name}: {_short(known.get(name))} in the run, {_short(value)} now"
        for name, value in inputs.items()
        if known.get(name) != value
    ]
    return difference(before, recipe) + lines


def _moved(folder: RunFolder, here: dict[str, Any]) -> list[str]:
    try:
        there = dict(json.loads(folder.environment.read_text(encoding="utf-8")))
    except (ValueError, OSError):
        return []
    return [
        f"{name} {there.get(name)} then, {here[name]} now"
        for name in EXACT
        if there.get(name) != here[name]
    ]


def _short(value: object) -> str:
    """A fingerprint by its beginning; nobody compares 64 digits."""
    text = "none" if value is None else str(value)
    return text[:12] + "…" if len(text) == 64 and text.isalnum() else text
