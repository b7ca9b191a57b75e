"""Training from Python: litebert.pretrain, litebert.finetune and litebert.evaluate.

The same runs as the commands of these names: called again with the same arguments they resume, and
a finished run returns its result at once.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from litebert.checks import check_known
from litebert.config import PRESETS
from litebert.errors import ConfigError, DivergedError, InterruptedRunError
from litebert.loading import find_checkpoint, load_checkpoint
from litebert.recipes import (
    FinetuneRecipe,
    OptimizerSpec,
    PretrainRecipe,
    named,
    paper_recipe,
)
from litebert.recipes.table14 import FROM_MNLI
from litebert.storage.checkpoint import Checkpoint, read_config
from litebert.tasks.registry import TableOptions, open_task
from litebert.tasks.scores.evaluation import Evaluation
from litebert.tasks.scores.evaluation import evaluate as score_predictions
from litebert.tasks.task import TaskData
from litebert.train.finetune.head_start import tokenizer_of
from litebert.train.finetune.prepared import prepare
from litebert.train.finetune.run import Finetuning
from litebert.train.finetune.seeds import check_single, train_seeds
from litebert.train.finetune.tuned import open_for, open_tuned
from litebert.train.pretrain.run import Pretraining
from litebert.train.runtime import Runtime

if TYPE_CHECKING:
    from litebert.infer.predictor import Predictor
    from litebert.train.log import Sink

StrPath = str | os.PathLike[str]
AnyRecipe = TypeVar("AnyRecipe", PretrainRecipe, FinetuneRecipe)


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """A finished run. Wherever a model's folder is expected, this will do."""

    folder: Path
    """The run folder: recipe, environment, metrics.jsonl, status and checkpoints."""
    scores: dict[str, float]
    """Pretraining: losses and accuracies on held-out text. Fine-tuning: the task's scores on dev,
    their medians if there are several seeds."""
    details: dict[str, Any] = field(default_factory=dict, repr=False)
    """Everything that the run recorded about its result, as the command prints it with --json."""
    notes: tuple[str, ...] = ()
    """What to know about the data and the model: columns recognized, rows left out."""

    @property
    def checkpoint(self) -> Path:
        """The final checkpoint: of fine-tuning the best on dev."""
        return self.folder / "final"

    def load(self, **options: Any) -> "Predictor":
        """The trained model, ready to predict; options as of `litebert.load`."""
        from litebert.infer.predictor import load

        return load(self.folder, **options)

    def __fspath__(self) -> str:
        return str(self.folder)


def pretrain(
    recipe: PretrainRecipe | str = "affordable",
    *,
    data: StrPath,
    out: StrPath,
    init: StrPath | None = None,
    device: str = "auto",
    workers: int = 1,
    tensorboard: bool = False,
    progress: bool = True,
    **settings: Any,
) -> RunResult:
    """Pretrain an encoder on shards (`litebert data build`), or resume the run in the folder `out`.

    `recipe` is a PretrainRecipe or the name of one (NAMED); `settings` replace some of its fields,
    as the flags of `litebert pretrain` do: `steps=1000, learning_rate=1e-3`. `init` is a checkpoint,
    run or embedded model to start from, whose encoder's shape is taken over unless a `preset` is
    given. `workers` processes prefetch batches. InterruptedRunError after a signal: the same call resumes.
    """
    chosen = named(recipe) if isinstance(recipe, str) else recipe
    start = None if init is None else find_checkpoint(os.fspath(init))
    if start is not None and "preset" not in settings:
        settings["preset"], settings["overrides"] = _shape_of(start)
    chosen = _changed(chosen, settings)
    runtime = Runtime.start(device=device, dtype=chosen.dtype)
    try:
        training = Pretraining(
            chosen,
            os.fspath(data),
            runtime,
            init=None if start is None else str(start),
            workers=workers,
        )
        result = training.train(
            Path(out), sinks=_sinks(out, runtime, tensorboard), progress=progress
        )
    except (InterruptedRunError, DivergedError):
        # every rank is here; after any other error the others may be waiting for this one
        runtime.close()
        raise
    runtime.close()
    counters = ("steps", "tokens", "seconds")
    scores = {name: value for name, value in result.items() if name not in counters}
    return RunResult(folder=Path(out), scores=scores, details=result)


def finetune(
    task: str,
    *,
    model: StrPath,
    data: Any,
    out: StrPath,
    recipe: FinetuneRecipe | None = None,
    seeds: int = 1,
    options: TableOptions | None = None,
    device: str = "auto",
    tensorboard: bool = False,
    progress: bool = True,
    **settings: Any,
) -> RunResult:
    """Fine-tune `model` for a task, or resume the run in the folder `out`; the best on dev is saved.

    `task` is a benchmark (cola sst2 mrpc stsb qqp mnli qnli rte wnli squad1 squad2 race) with the
    folder of its files as `data`, or classify, pair, regress, choose, answer or tag with your own:
    a file or folder, a pandas DataFrame, a list of dicts, a datasets.Dataset, or a dict of these by
    split. `options` say which columns to read; by default they are recognized by their names.

    Without a `recipe` it is the paper's for the task (Table 14), scaled to model and data;
    `settings` replace some of its fields: `epochs=3, learning_rate=1e-4`. Several `seeds` give a
    run each, in folders of their own. InterruptedRunError after a signal: the same call resumes.
    """
    if seeds < 1:
        raise ConfigError(f"seeds is a number of runs from 1; got {seeds}")
    read = open_task(task, data, options=options, splits=("train", "dev"))
    source, loading_notes = load_checkpoint(os.fspath(model))
    notes = (*read.notes, *loading_notes, *_advice(read, source))
    if progress:
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
    if recipe is None:
        encoder = source.model.config.encoder
        recipe = paper_recipe(
            read.task.name,
            num_examples=len(read.splits["train"]),
            hidden_size=encoder.hidden_size,
            max_positions=encoder.max_positions,
            has_null=read.task.has_null,
        )
        settings = _scaled(recipe, settings)
    recipe = _changed(recipe, settings)
    result = _finetune(recipe, read, source, out, seeds, device, tensorboard, progress)
    scores = {
        name: value["median"] if isinstance(value, dict) else value
        for name, value in result["scores"].items()
    }
    return RunResult(folder=Path(out), scores=scores, details=result, notes=notes)


def evaluate(
    task: str,
    *,
    model: StrPath,
    data: Any,
    split: str = "dev",
    options: TableOptions | None = None,
    device: str = "auto",
    batch_tokens: int | None = None,
    samples: int = 1000,
    worst: int = 5,
) -> Evaluation:
    """Score a fine-tuned model on a split of a task: official scores, their 95 % intervals by
    bootstrap of `samples`, scores by slice, and the `worst` predictions.

    `model` is a checkpoint, a run folder or a RunResult; `data` as for `finetune`. Where a single
    table was given for training, dev is the same tenth of it as then; `split="test"` scores all.
    """
    target = Runtime.start(device=device, dtype="float32").device
    tuned = open_tuned(os.fspath(model))
    read = open_for(tuned, task, data, options or TableOptions(), (split,))
    examples = read.splits[split]
    if not all(example.is_labelled for example in examples):
        raise ConfigError(f"{split} of {task} has no labels to score by")
    predictions = tuned.says(examples, device=target, batch_tokens=batch_tokens)
    return score_predictions(read.task, examples, predictions, samples=samples, count=worst)


def _finetune(
    recipe: FinetuneRecipe,
    data: TaskData,
    source: Checkpoint,
    out: StrPath,
    seeds: int,
    device: str,
    tensorboard: bool,
    progress: bool,
) -> dict[str, Any]:
    runtime = Runtime.start(device=device, dtype=recipe.dtype)
    prepared = prepare(recipe, data, tokenizer_of(source, "model"))
    try:
        if seeds > 1:
            result = train_seeds(
                recipe,
                prepared,
                source,
                runtime,
                Path(out),
                seeds=seeds,
                sinks=lambda folder: _sinks(folder, runtime, tensorboard),
                progress=progress,
            )
        else:
            check_single(Path(out))
            result = Finetuning(recipe, prepared, source, runtime).train(
                Path(out), sinks=_sinks(out, runtime, tensorboard), progress=progress
            )
    except (InterruptedRunError, DivergedError):
        # every rank is here; after any other error the others may be waiting for this one
        runtime.close()
        raise
    runtime.close()
    return result


def _changed(recipe: AnyRecipe, settings: Mapping[str, Any]) -> AnyRecipe:
    """The recipe with other settings; ConfigError for one that it does not have."""
    known: list[str] = [
        each.name for each in (*fields(recipe), *fields(OptimizerSpec)) if each.name != "name"
    ]
    for name in settings:
        check_known("setting", name, [*known, "encoder"])
    return recipe.changed(settings) if settings else recipe


def _sinks(folder: StrPath, runtime: Runtime, tensorboard: bool) -> "tuple[Sink, ...]":
    if not tensorboard or not runtime.is_main:
        return ()
    from litebert.train.tensorboard import TensorBoardSink

    return (TensorBoardSink(Path(folder) / "tensorboard"),)


def _scaled(paper: FinetuneRecipe, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with as many epochs for another batch size, and the same fraction of warm-up
    for another length."""
    assert paper.steps is not None
    result = dict(settings)
    budgets = [result.get(name) for name in paper.budgets]
    if result.get("batch_size") and budgets == [None, None]:
        result["steps"] = max(round(paper.steps * paper.batch_size / result["batch_size"]), 1)
    if "warmup" not in result and any(result.get(name) is not None for name in paper.budgets):
        result["warmup"] = paper.optimizer.warmup_steps(paper.steps) / paper.steps
    return result


def _advice(data: TaskData, source: Checkpoint) -> list[str]:
    """What the paper did and this run does not."""
    before = dict(source.task or {}).get("task", {}).get("name")
    if data.task.name in FROM_MNLI and before != "mnli":
        return [
            f"the paper starts {data.task.name} from a model fine-tuned on mnli: give such a run "
            "as the model"
        ]
    return []


def _shape_of(checkpoint: Path) -> tuple[str, dict[str, int | float | bool | str]]:
    """The encoder of a checkpoint as a preset and what differs from it, but for the vocabulary,
    which is the data's."""
    encoder = read_config(checkpoint).encoder.to_dict()
    preset = "albert-base-v2"
    usual = PRESETS[preset].to_dict()
    return preset, {
        name: value
        for name, value in encoder.items()
        if name != "vocab_size" and value != usual[name]
    }
