"""The same fine-tuning from several seeds (ALBERT §4.2: the median of five). A recipe in; a run for
each seed, their median and spread, and the best one's checkpoint out.
"""

import math
import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from litebert.errors import ConfigError, DivergedError
from litebert.files import MANIFEST, write_folder, write_json
from litebert.recipes import FinetuneRecipe
from litebert.storage.checkpoint import Checkpoint
from litebert.train.finetune.prepared import Prepared
from litebert.train.finetune.run import Finetuning
from litebert.train.folder import RunFolder
from litebert.train.log import Sink
from litebert.train.run import Say, to_stderr
from litebert.train.runtime import Runtime

Result = dict[str, Any]


def train_seeds(
    recipe: FinetuneRecipe,
    prepared: Prepared,
    source: Checkpoint,
    runtime: Runtime,
    out: Path | str,
    *,
    seeds: int,
    say: Say = to_stderr,
    sinks: Callable[[Path], tuple[Sink, ...]] = lambda folder: (),
    progress: bool = True,
) -> Result:
    """Runs of seed, seed + 1, … in the folders seed-0, seed-1, … of `out`; finished ones answer at
    once."""
    out = Path(out)
    if RunFolder(out).recipe.exists():
        raise ConfigError(f"{out} holds a run of one seed; choose another --out for several")
    results: list[Result] = []
    diverged: DivergedError | None = None
    for number in range(seeds):
        folder, seed = out / f"seed-{number}", recipe.seed + number
        if runtime.is_main:
            say(f"seed {seed}, {number + 1} of {seeds}")
        run = Finetuning(replace(recipe, seed=seed), prepared, source, runtime, say=say)
        try:
            results.append(
                {"folder": folder.name, **run.train(folder, sinks=sinks(folder), progress=progress)}
            )
        except DivergedError as error:  # one seed that fails is part of the spread
            say(f"seed {seed} failed: {error}")
            results.append(
                {
                    "folder": folder.name,
                    "seed": seed,
                    "score": None,
                    "scores": {},
                    "reason": str(error),
                }
            )
            diverged = error
    done = [result for result in results if result["score"] is not None]
    if not done:
        assert diverged is not None
        raise diverged
    best = max(done, key=lambda result: result["score"])
    summary = {
        "task": recipe.task,
        "score": statistics.median(result["score"] for result in done),
        "scores": {
            name: spread([result["scores"][name] for result in done]) for name in done[0]["scores"]
        },
        "best_seed": best["seed"],
        "failed": sum(result["score"] is None or not result["left_chance"] for result in results),
        "seeds": results,
    }
    if runtime.is_main:
        copy_checkpoint(out / best["folder"] / "final", out / "final")
        write_json(out / "summary.json", summary)
    runtime.wait()
    return summary


def check_single(out: Path | str) -> None:
    """Refuse a folder of several seeds for a run of one: it would replace the best one's
    checkpoint."""
    if (Path(out) / "seed-0").exists():
        raise ConfigError(f"{out} holds runs of several seeds; choose another --out for one")


def spread(values: Sequence[float]) -> dict[str, float]:
    """Where most of them lie, and how far apart they are."""
    return {
        "median": statistics.median(values),
        "mean": math.fsum(values) / len(values),
        "deviation": statistics.stdev(values) if len(values) > 1 else 0.0,
        "lowest": min(values),
        "highest": max(values),
    }


def copy_checkpoint(source: Path, target: Path) -> None:
    """The same checkpoint under another name, whole or not at all."""

    def write(folder: Path) -> None:
        for file in source.iterdir():
            if file.name != MANIFEST:
                shutil.copyfile(file, folder / file.name)

    write_folder(target, write, replace=True)
