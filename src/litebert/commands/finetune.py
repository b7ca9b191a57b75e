"""litebert finetune: a pretrained model and a task's files in; a run folder with metrics,
predictions and a checkpoint out."""

import json as jsonlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from litebert.commands.flags import Device, RecipeFlags
from litebert.errors import ConfigError, DivergedError, InterruptedRunError
from litebert.recipes import FinetuneRecipe, paper_recipe
from litebert.recipes.table14 import FROM_MNLI
from litebert.tasks.tables.columns import TableOptions

if TYPE_CHECKING:
    from litebert.storage.checkpoint import Checkpoint
    from litebert.tasks.task import TaskData
    from litebert.train.log import Sink

BY_TASK = frozenset(
    {"steps", "batch_size", "max_length", "encoder_dropout", "learning_rate", "warmup"}
)
"""Settings of ALBERT Table 14."""


def shown_recipe(name: str | None) -> FinetuneRecipe:
    """The recipe whose values help shows: the file's, or the defaults that no task changes."""
    return FinetuneRecipe(task="", steps=1) if name is None else FinetuneRecipe.load(name)


TaskName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
Settings = Annotated[
    dict[str, Any], RecipeFlags(shown_recipe, omitted=frozenset({"task"}), by_task=BY_TASK)
]


def finetune(
    task: TaskName,
    /,
    *,
    model: str,
    data: str,
    out: str,
    recipe: str | None = None,
    seeds: int = 1,
    device: Device = "auto",
    tensorboard: bool = False,
    json: bool = False,
    settings: Settings,
    table: TableOptions,
) -> None:
    """Fine-tune a pretrained model for a task, or for your own files. The same command again
    resumes an interrupted run.

    Flags left out are the paper's for the task (Table 14), scaled to the model's width and the
    number of examples. The checkpoint that is best on dev is saved.

    Args:
        task: cola sst2 mrpc stsb qqp mnli qnli rte wnli squad1 squad2 race, or for your own files
            classify pair regress choose answer tag.
        model: What to start from: a checkpoint, a run's folder, or a Hugging Face folder. Its heads
            are not used.
        data: The task's folder, or your own file (CSV, TSV, JSONL, Parquet) or a folder with
            train.* and dev.*.
        out: Folder of the run.
        recipe: A JSON file with a recipe (every run writes its own as recipe.json), instead of the
            paper's.
        seeds: Number of runs with different seeds, each in a folder of its own; prints their median
            and spread and keeps the best checkpoint.
        tensorboard: Write TensorBoard events into the run folder as well.
        json: Print one JSON object at the end.
    """
    if seeds < 1:
        raise ConfigError(f"seeds is a number of runs from 1; got {seeds}")
    chosen = None if recipe is None else FinetuneRecipe.load(recipe, note=_note)
    # torch only now: wrong flags are answered at once
    from litebert.loading import load_checkpoint

    read = open_data(task, data, table)
    source, notes = load_checkpoint(model)
    for note in (*read.notes, *notes, *advice(read, source)):
        _note(note)
    if chosen is None:
        encoder = source.model.config.encoder
        chosen = paper_recipe(
            read.task.name,
            num_examples=len(read.splits["train"]),
            hidden_size=encoder.hidden_size,
            max_positions=encoder.max_positions,
            has_null=read.task.has_null,
        )
        settings = scaled(chosen, settings)
    result = run(
        chosen.changed(settings),
        read,
        source,
        out,
        seeds=seeds,
        device=device,
        tensorboard=tensorboard,
    )
    if result is None:
        return
    if json:
        print(jsonlib.dumps(result, ensure_ascii=False))
    else:
        show(result, Path(out))


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def scaled(paper: FinetuneRecipe, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings, with as many epochs for another batch size, and the same fraction of warm-up
    for another length."""
    assert paper.steps is not None
    result = dict(settings)
    budget = [result.get(name) for name in paper.budgets]
    if result.get("batch_size") and budget == [None, None]:
        result["steps"] = max(round(paper.steps * paper.batch_size / result["batch_size"]), 1)
    if "warmup" not in result and any(result.get(name) is not None for name in paper.budgets):
        result["warmup"] = paper.optimizer.warmup_steps(paper.steps) / paper.steps
    return result


def open_data(task: str, data: str, table: TableOptions) -> "TaskData":
    """Train and dev of a task; what else its folder holds is not read."""
    from litebert.tasks.registry import open_task

    return open_task(task, data, options=table, splits=("train", "dev"))


def run(
    recipe: FinetuneRecipe,
    read: "TaskData",
    source: "Checkpoint",
    out: str,
    *,
    seeds: int,
    device: str,
    tensorboard: bool,
) -> dict[str, Any] | None:
    """The result; None for a rank that does not speak."""
    from litebert.train.finetune.head_start import tokenizer_of
    from litebert.train.finetune.prepared import prepare
    from litebert.train.finetune.run import Finetuning
    from litebert.train.finetune.seeds import check_single, train_seeds
    from litebert.train.runtime import Runtime

    def sinks(folder: Path) -> "tuple[Sink, ...]":
        if not tensorboard or not runtime.is_main:
            return ()
        from litebert.train.tensorboard import TensorBoardSink

        return (TensorBoardSink(folder / "tensorboard"),)

    runtime = Runtime.start(device=device, dtype=recipe.dtype)
    prepared = prepare(recipe, read, tokenizer_of(source, "--model"))
    try:
        if seeds > 1:
            result = train_seeds(recipe, prepared, source, runtime, out, seeds=seeds, sinks=sinks)
        else:
            check_single(out)
            result = Finetuning(recipe, prepared, source, runtime).train(
                out, sinks=sinks(Path(out))
            )
    except (InterruptedRunError, DivergedError):
        # every rank is here; after any other error the others may be waiting for this one
        runtime.close()
        raise
    runtime.close()
    return result if runtime.is_main else None


def advice(read: "TaskData", source: "Checkpoint") -> list[str]:
    """What the paper did and this run does not."""
    before = dict(source.task or {}).get("task", {}).get("name")
    if read.task.name in FROM_MNLI and before != "mnli":
        return [
            f"the paper starts {read.task.name} from a model fine-tuned on mnli: --model may be "
            "such a run"
        ]
    return []


def show(result: dict[str, Any], out: Path) -> None:
    """The scores, and where everything is."""
    from litebert.tasks.scores.score import printed

    for name, found in result["scores"].items():
        if isinstance(found, dict):
            ends = f"{printed(name, found['lowest'])} to {printed(name, found['highest'])}"
            print(
                f"{name:<20}{printed(name, found['median']):>7}   median of {len(result['seeds'])} "
                f"seeds, {ends}"
            )
        else:
            print(f"{name:<20}{printed(name, found):>7}")
    failed = result.get("failed", int(not result.get("left_chance", True)))
    if failed:
        runs = f"{failed} of {len(result['seeds'])} runs" if "seeds" in result else "the run"
        print(f"{runs} not above chance: see the events in metrics.jsonl", file=sys.stderr)
    curves = out / "seed-*" if "seeds" in result else out
    print(
        f"on dev; the checkpoint is {out / 'final'}, the curves: litebert report {curves}",
        file=sys.stderr,
    )
