"""litebert finetune: a pretrained model and a task's files in; a run folder with metrics,
predictions and a checkpoint out."""

import json as jsonlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from litebert.errors import ConfigError, DivergedError, InterruptedRunError
from litebert.recipes import FinetuneRecipe, paper_recipe
from litebert.recipes.table14 import FROM_MNLI
from litebert.tasks.tables.options import TableOptions

if TYPE_CHECKING:
    from litebert.storage.checkpoint import Checkpoint
    from litebert.tasks.task import TaskData
    from litebert.train.log import Sink

TaskName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
Table = Annotated[TableOptions, tyro.conf.arg(name="")]


def finetune(
    task: TaskName,
    /,
    *,
    model: str,
    data: str,
    out: str,
    recipe: str | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    max_length: int | None = None,
    optimizer: Literal["adamw", "lamb", "muon"] | None = None,
    rate: float | None = None,
    warmup: float | None = None,
    encoder_dropout: float | None = None,
    head_dropout: float | None = None,
    evaluations: int | None = None,
    patience: int | None = None,
    retries: int | None = None,
    seed: int | None = None,
    seeds: int = 1,
    random_weights: bool = False,
    null_search: Literal["dev", "train"] | None = None,
    save_every: int | None = None,
    microbatch_tokens: int | None = None,
    checkpoint_every: int | None = None,
    dtype: Literal["auto", "float32", "bfloat16"] | None = None,
    compile: Literal["auto", "on", "off"] | None = None,
    device: str = "auto",
    tensorboard: bool = False,
    table: Table = TableOptions(),  # noqa: B008 — frozen
    json: bool = False,
) -> None:
    """Fine-tune a pretrained model for a task, or for one's own files. The same command again goes
    on where it stopped.

    Flags left out are the paper's for the task (Table 14), fitted to the model's width and the
    number of examples. The checkpoint that is best on dev is kept.

    Args:
        task: cola sst2 mrpc stsb qqp mnli qnli rte wnli squad1 squad2 race, or for one's own files
            classify pair regress
            choose answer tag.
        model: What to start from: a checkpoint, a run's folder, or a Hugging Face folder. Heads it
            has are left behind.
        data: The task's folder, or one's own file (CSV, TSV, JSONL, Parquet) or a folder with
            train.* and dev.*.
        out: Folder of the run.
        recipe: A JSON file with a recipe (every run writes its own as recipe.json), instead of the
            paper's.
        epochs: Times that every example is read; instead of steps.
        steps: Optimizer updates; instead of epochs.
        batch_size: Texts, questions with their options, or windows in a step.
        max_length: Tokens in an input; longer texts are cut, longer contexts of questions read in
            windows.
        optimizer: Which optimizer changes the weights.
        rate: Peak of the learning rate.
        warmup: Linear warm-up: a number of steps from 1 up, or below 1 a fraction of the run.
        encoder_dropout: Probability of dropping a value in the encoder.
        head_dropout: Probability of dropping a value before the head's last product.
        evaluations: Looks at dev, evenly over the run.
        patience: Looks at dev without a better score after which the run ends; 0 for never.
        retries: New beginnings with a third of the rate and twice the warm-up where a run never
            left chance.
        seed: Seed of the head, the order of examples and dropout.
        seeds: Runs from as many seeds, in folders of their own; prints their median and spread,
            keeps the best.
        random_weights: Forget the model's weights and keep its shape: what pretraining is worth.
        null_search: Where the threshold for "no answer" is searched: dev, or a tenth of train kept
            aside for it.
        save_every: Steps between snapshots.
        microbatch_tokens: Tokens in one forward and backward on one device; less needs less memory.
        checkpoint_every: Gradient checkpointing: keep the states of every n-th layer only; 0 keeps
            all.
        dtype: Arithmetic of the layers.
        compile: Whether torch.compile is used; auto in long runs on a GPU; off also records no CUDA
            graphs.
        device: cpu, cuda, cuda:1 …, or auto.
        tensorboard: Write TensorBoard events into the run folder as well.
        table: How files are read.
        json: Print one JSON object at the end.
    """
    if seeds < 1:
        raise ConfigError(f"seeds is a number of runs from 1; got {seeds}")
    chosen = None if recipe is None else load_recipe(recipe)
    changes: dict[str, Any] = {
        "batch_size": batch_size,
        "max_length": max_length,
        "encoder_dropout": encoder_dropout,
        "head_dropout": head_dropout,
        "evaluations": evaluations,
        "patience": patience,
        "retries": retries,
        "seed": seed,
        "random_weights": random_weights or None,
        "null_search": null_search,
        "save_every": save_every,
        "microbatch_tokens": microbatch_tokens,
        "checkpoint_every": checkpoint_every,
        "dtype": dtype,
        "compile": compile,
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    if epochs is not None or steps is not None:
        changes |= {"epochs": epochs, "steps": steps}
    spec: dict[str, Any] = {"name": optimizer, "rate": rate}
    if warmup is not None:
        spec["warmup"] = int(warmup) if warmup >= 1 else warmup
    spec = {name: value for name, value in spec.items() if value is not None}
    # torch only now: wrong flags are answered at once
    from litebert.loading import load_checkpoint

    read = open_data(task, data, table)
    source, notes = load_checkpoint(model)
    for note in (*read.notes, *notes, *advice(read, source)):
        print(f"note: {note}", file=sys.stderr)
    if chosen is None:
        encoder = source.model.config.encoder
        chosen = paper_recipe(
            read.task.name,
            num_examples=len(read.splits["train"]),
            hidden_size=encoder.hidden_size,
            max_positions=encoder.max_positions,
            has_null=read.task.has_null,
        )
        assert chosen.steps is not None
        if batch_size and "steps" not in changes:  # another batch, the same number of epochs
            changes["steps"] = max(round(chosen.steps * chosen.batch_size / batch_size), 1)
        if (
            "steps" in changes and "warmup" not in spec
        ):  # the paper's part of the run, whatever its length
            spec["warmup"] = chosen.optimizer.warmup_steps(chosen.steps) / chosen.steps
    chosen = replace(chosen, **changes, optimizer=replace(chosen.optimizer, **spec))
    result = run(chosen, read, source, out, seeds=seeds, device=device, tensorboard=tensorboard)
    if result is None:
        return
    if json:
        print(jsonlib.dumps(result, ensure_ascii=False))
    else:
        show(result, Path(out))


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


def load_recipe(name: str) -> FinetuneRecipe:
    """A recipe from a file: a recipe alone, or what a run wrote."""
    path = Path(name)
    try:
        data = jsonlib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}; a recipe file is what a run writes as "
            "recipe.json"
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"{path} is not JSON: {error}; a recipe file is what a run writes as recipe.json"
        ) from error
    inner = data.get("recipe", data) if isinstance(data, dict) else data
    if not isinstance(inner, dict):
        raise ConfigError(
            f"{path} holds no recipe; a recipe file is what a run writes as recipe.json"
        )
    return FinetuneRecipe.from_dict(inner)
