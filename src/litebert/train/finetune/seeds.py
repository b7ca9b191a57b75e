"""Fine-tuning from files or tables to a result, with one seed or several (ALBERT §4.2: the median
of five). A task, a model and data in; a run for each seed, and the best one's checkpoint, out."""

import math
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from litebert.errors import ConfigError, DivergedError
from litebert.files import MANIFEST, write_folder, write_json
from litebert.loading import load_checkpoint
from litebert.recipes import FinetuneRecipe, paper_recipe
from litebert.recipes.finetune import FROM_MNLI
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.examples import TaskExample, TextExample
from litebert.tasks.registry import open_task
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.task import TaskData
from litebert.train.finetune.evaluation import writing_result
from litebert.train.finetune.prepare import Prepared, prepare, tokenizer_of, unknown_tokens
from litebert.train.finetune.run import Finetuning, result_of
from litebert.train.folder import RunFolder, check_unused, read_record, stored_threads
from litebert.train.run import RunResult, Say, to_stderr
from litebert.train.runtime import Place, Runtime, is_main_rank


def run_finetuning(
    task: str,
    model: Path | str,
    data: Any,
    out: Path | str,
    *,
    recipe: FinetuneRecipe | None = None,
    settings: Mapping[str, Any] | None = None,
    table: TableOptions | None = None,
    exit_texts: str | None = None,
    seeds: int = 1,
    tensorboard: bool = False,
    unverified: bool = False,
    progress: bool = True,
    **place: Unpack[Place],
) -> RunResult:
    """`litebert.finetune` of every task but embed: by the `recipe`, or the paper's for the task,
    changed by `settings`. `exit_texts` is a file of rows to calibrate early exit on. `unverified`
    does not compare the model's files with its manifest."""
    if seeds < 1:
        raise ConfigError(f"seeds is a number of runs from 1; got {seeds}")
    if table is not None and table.bad_rows == "quarantine" and table.quarantine is None:
        table = replace(table, quarantine=str(Path(out) / "quarantine.jsonl"))
    table = _as_begun(table or TableOptions(), Path(out))
    examples = open_task(task, data, options=table, splits=("train", "dev"))
    source, loading_notes = load_checkpoint(model, unverified=unverified)
    unknown = unknown_tokens(examples.splits.get("train", ()), tokenizer_of(source, model))
    notes = (*examples.notes, *loading_notes, *_advice(examples.task.name, source), *unknown)
    for note in notes if progress and is_main_rank() else ():
        to_stderr(f"note: {note}")
    changes = dict(settings or {})
    if recipe is None:
        encoder = source.model.config.encoder
        recipe = paper_recipe(
            examples.task.name,
            num_examples=len(examples.splits["train"]),
            hidden_size=encoder.hidden_size,
            max_positions=encoder.max_positions,
            has_null=examples.task.has_null,
        )
        changes = _scaled(recipe, changes)
    recipe = recipe.changed(changes)
    stored = stored_threads(out)
    with Runtime.joined(dtype=recipe.dtype, stored_threads=stored, **place) as runtime:
        texts = None if exit_texts is None else _read_exit_texts(exit_texts, examples, table)
        tokenizer = tokenizer_of(source, model)
        prepared = prepare(recipe, examples, tokenizer, exit_texts=texts)
        if seeds == 1:
            if (Path(out) / "seed-0").exists():  # one run would replace the best one's checkpoint
                raise ConfigError(
                    f"{out} holds runs of several seeds; choose another --out for one"
                )
            run = Finetuning(recipe, prepared, source, runtime)
            result = run.train(out, tensorboard=tensorboard, progress=progress)
        else:
            result = train_seeds(
                recipe,
                prepared,
                source,
                runtime,
                out,
                seeds=seeds,
                tensorboard=tensorboard,
                progress=progress,
            )
        return replace(result, notes=notes)


def _read_exit_texts(file: str, examples: TaskData, table: TableOptions) -> Sequence[TaskExample]:
    """The rows of a file like the task's, without their labels."""
    kind = examples.task.kind
    table = replace(table, test_fraction=0.0, labels=None)
    opened = open_task(kind, file, options=table, splits=("test",), columns=examples.columns)
    rows = opened.splits["test"]
    return [replace(each, label=None) for each in rows if isinstance(each, TextExample)]


def train_seeds(
    recipe: FinetuneRecipe,
    prepared: Prepared,
    source: Checkpoint,
    runtime: Runtime,
    out: Path | str,
    *,
    seeds: int,
    say: Say = to_stderr,
    tensorboard: bool = False,
    progress: bool = True,
) -> RunResult:
    """Runs of seed, seed + 1, … in the folders seed-0, seed-1, … of `out`; finished ones answer at
    once."""
    out = Path(out)
    if RunFolder(out).recipe.exists():
        raise ConfigError(f"{out} holds a run of one seed; choose another --out for several")
    if not (out / "seed-0").exists():
        check_unused(out)
    say = say if runtime.is_main else lambda message: None
    results: list[dict[str, Any]] = []
    diverged: DivergedError | None = None
    for number in range(seeds):
        folder, seed = out / f"seed-{number}", recipe.seed + number
        say(f"seed {seed}, {number + 1} of {seeds}")
        run = Finetuning(replace(recipe, seed=seed), prepared, source, runtime, say=say)
        try:
            result = run.train(folder, tensorboard=tensorboard, progress=progress)
            results.append({"folder": folder.name, **result.details})
        except DivergedError as error:  # one seed that fails is part of the spread
            say(f"seed {seed} failed: {error}")
            nothing: dict[str, Any] = {"score": None, "scores": {}, "reason": str(error)}
            results.append({"folder": folder.name, "seed": seed} | nothing)
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
            name: _spread([result["scores"][name] for result in done]) for name in done[0]["scores"]
        },
        "best_seed": best["seed"],
        "failed": sum(result["score"] is None or not result["left_chance"] for result in results),
        "seeds": results,
    }
    if runtime.is_main:
        with writing_result():
            _copy_checkpoint(out / best["folder"] / "final", out / "final")
            write_json(out / "summary.json", summary)
    runtime.wait()
    return result_of(out, summary)


def _as_begun(table: TableOptions, out: Path) -> TableOptions:
    """The options with which dev is cut as it was for the run in `out`: runs of earlier versions
    did not regard the labels."""
    for folder in (out, out / "seed-0"):
        path = RunFolder(folder).recipe
        if path.exists() and "cut" not in read_record(path).get("inputs", {}):
            return replace(table, stratify=False)
    return table


def _spread(values: Sequence[float]) -> dict[str, float]:
    """Where most of them lie, and how far apart they are."""
    return {
        "median": statistics.median(values),
        "mean": math.fsum(values) / len(values),
        "deviation": statistics.stdev(values) if len(values) > 1 else 0.0,
        "lowest": min(values),
        "highest": max(values),
    }


def _copy_checkpoint(source: Path, target: Path) -> None:
    """The same checkpoint under another name, whole or not at all."""

    def write(folder: Path) -> None:
        for file in source.iterdir():
            if file.name != MANIFEST:
                shutil.copyfile(file, folder / file.name)

    write_folder(target, write, replace=True)


def _scaled(paper: FinetuneRecipe, settings: dict[str, Any]) -> dict[str, Any]:
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


def _advice(task: str, source: Checkpoint) -> list[str]:
    """What the paper did and this run does not."""
    before = dict(source.task or {}).get("task", {}).get("name")
    if task in FROM_MNLI and before != "mnli":
        return [
            f"the paper starts {task} from a model fine-tuned on mnli: --model may be such a run"
        ]
    return []
