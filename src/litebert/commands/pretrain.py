"""litebert pretrain: a folder of shards in; a run folder with metrics, snapshots and a checkpoint
out."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from litebert.commands.flags import RecipeFlags
from litebert.commands.marks import (
    Device,
    Kernels,
    Minutes,
    TensorBoard,
    Threads,
    Unverified,
    note,
)
from litebert.errors import ConfigError
from litebert.files import to_json
from litebert.recipes import NAMED, PretrainRecipe, named
from litebert.recipes.pretrain import with_shape
from litebert.terminal import write_line, write_stderr

_DEFAULT = "affordable"


def _load_recipe(
    name: str | None, on_note: Callable[[str], None] = lambda text: None
) -> PretrainRecipe:
    if name is None or name in NAMED or not Path(name).is_file():
        return named(name or _DEFAULT)
    return PretrainRecipe.load(name, note=on_note)


Settings = Annotated[dict[str, Any], RecipeFlags(_load_recipe)]


def pretrain(
    *,
    data: str,
    out: str,
    recipe: str = _DEFAULT,
    init: str | None = None,
    device: Device = "auto",
    kernels: Kernels = "on",
    threads: Threads = None,
    minutes: Minutes = None,
    workers: int = 1,
    tensorboard: TensorBoard = False,
    unverified: Unverified = False,
    dry_run: bool = False,
    json: bool = False,
    settings: Settings,
) -> None:
    """Pretrain an encoder on shards made by `litebert data build`. The same command again resumes
    an interrupted run.

    Flags left out are as the recipe has them: --recipe NAME --help shows its values. Stages change
    a number during the run: "0:128,0.9:512" is 128, and 512 for the last tenth; starts are
    fractions of the run or steps.

    Args:
        data: Folder of shards.
        out: Folder of the run.
        recipe: A named recipe (affordable, affordable-post, paper, demo), or a JSON file with one
            (every run writes its own as recipe.json).
        init: Checkpoint, run or embedded model that weights, and the encoder's shape unless
            --preset is given, start from.
        workers: Processes that prefetch batches; 0 prepares them in the main process.
        dry_run: Run a few real steps on the largest batch and print memory, speed, time and disk;
            write nothing.
        json: Print one JSON object at the end.
    """
    chosen = _load_recipe(recipe, on_note=note)
    if workers < 0:
        raise ConfigError(f"workers is a number of processes from 0; got {workers}")
    if init is not None:
        from litebert.loading import find_checkpoint
        from litebert.storage.checkpoint import read_config

        init = str(find_checkpoint(init))
        settings = with_shape(settings, read_config(Path(init)).encoder)
    changed = chosen.changed(settings)
    from litebert.train.pretrain.dry_run import dry_run_lines, run_dry
    from litebert.train.pretrain.run import run_pretraining
    from litebert.train.runtime import is_main_rank

    common: Any = {"init": init, "device": device, "kernels": kernels, "workers": workers}
    common |= {"unverified": unverified, "threads": threads}
    result = (
        run_dry(changed, data, out, **common)
        if dry_run
        else run_pretraining(
            changed, data, out, tensorboard=tensorboard, minutes=minutes, **common
        ).details
    )
    if not is_main_rank():
        return
    if json:
        write_line(to_json(result))
    elif dry_run:
        for name, value in dry_run_lines(result).items():
            write_line(f"{name:<16}{value}")
    else:
        write_stderr(
            f"finished; the checkpoint is {Path(out) / 'final'}, the curves: litebert report {out}"
        )
