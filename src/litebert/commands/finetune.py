"""litebert finetune: a pretrained model and a task's files in; a run folder with metrics,
predictions and a checkpoint out."""

import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

from litebert.commands.flags import RecipeFlags
from litebert.commands.marks import Device, Kernels, Minutes, Threads, Unverified, note
from litebert.files import to_json
from litebert.recipes import FinetuneRecipe
from litebert.tasks.tables.columns import TableOptions
from litebert.terminal import write_line

_BY_TASK = frozenset(
    {"steps", "batch_size", "max_length", "encoder_dropout", "learning_rate", "warmup"}
)
"""Settings of ALBERT Table 14."""


def _shown_recipe(name: str | None) -> FinetuneRecipe:
    """The recipe whose values help shows: the file's, or the defaults that no task changes."""
    return FinetuneRecipe(task="", steps=1) if name is None else FinetuneRecipe.load(name)


TaskName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
Settings = Annotated[
    dict[str, Any], RecipeFlags(_shown_recipe, omitted=frozenset({"task"}), by_task=_BY_TASK)
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
    kernels: Kernels = "on",
    threads: Threads = None,
    minutes: Minutes = None,
    tensorboard: bool = False,
    unverified: Unverified = False,
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
            classify pair regress choose answer tag; embeddings have flags of their own: litebert
            finetune embed --help.
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
    chosen = None if recipe is None else FinetuneRecipe.load(recipe, note=note)
    # torch only now: wrong flags are answered at once
    from litebert.train.finetune.seeds import run_finetuning
    from litebert.train.runtime import is_main_rank

    result = run_finetuning(
        task,
        model,
        data,
        out,
        recipe=chosen,
        settings=settings,
        table=table,
        seeds=seeds,
        device=device,
        kernels=kernels,
        threads=threads,
        minutes=minutes,
        tensorboard=tensorboard,
        unverified=unverified,
    )
    if not is_main_rank():
        return
    if json:
        write_line(to_json(result.details, ensure_ascii=False))
    else:
        _print_scores(result.details, Path(out))


def _print_scores(result: dict[str, Any], out: Path) -> None:
    from litebert.tasks.scores.score import printed

    for name, value in result["scores"].items():
        if isinstance(value, dict):
            ends = f"{printed(name, value['lowest'])} to {printed(name, value['highest'])}"
            write_line(
                f"{name:<20}{printed(name, value['median']):>7}   median of {len(result['seeds'])} "
                f"seeds, {ends}"
            )
        else:
            write_line(f"{name:<20}{printed(name, value):>7}")
    for name, each in result.get("exits", {}).items():
        first = next(iter(result["scores"]))
        low, high = (printed(first, edge) for edge in each["dev_lost_interval"])
        write_line(
            f"exit by {name}, threshold {each['threshold']:g}: "
            f"{printed(first, each['dev_score'])} after {each['dev_mean_depth']:.2f} of "
            f"{len(result['depth_scores'])} layers, {printed(first, each['dev_lost'])} lost "
            f"({low} to {high}); on {each['rows']:,} texts {each['changed']} answers changed, at "
            f"most {each['bound']:.2%} with 95 % confidence"
        )
    if "depth_scores" in result and not result["exits"]:
        write_line(
            "no threshold of early exit is stored: too few texts were kept aside to show that at "
            "most 0.5 % of the answers change (598 are needed), or the depths differ too often",
            file=sys.stderr,
        )
    failed = result.get("failed", int(not result.get("left_chance", True)))
    if failed:
        runs = f"{failed} of {len(result['seeds'])} runs" if "seeds" in result else "the run"
        write_line(
            f"{runs} did not beat the majority baseline: see the events in metrics.jsonl",
            file=sys.stderr,
        )
    curves = out / "seed-*" if "seeds" in result else out
    write_line(
        f"scores on dev; the checkpoint is {out / 'final'}, the curves: litebert report {curves}",
        file=sys.stderr,
    )
