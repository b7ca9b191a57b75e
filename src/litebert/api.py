"""Training from Python: litebert.pretrain, litebert.finetune and litebert.evaluate.

The same runs as the commands of these names: called again with the same arguments they resume, and
a finished run returns its result at once.
"""

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from litebert.checks import check_known
from litebert.loading import find_checkpoint
from litebert.recipes import FinetuneRecipe, OptimizerSpec, PretrainRecipe, named
from litebert.recipes.pretrain import shape_settings
from litebert.storage.checkpoint import read_config
from litebert.tasks.registry import TableOptions
from litebert.tasks.scores.evaluation import Evaluation
from litebert.train import run
from litebert.train.evaluate import run_evaluation
from litebert.train.finetune.seeds import run_finetuning
from litebert.train.pretrain.run import run_pretraining

if TYPE_CHECKING:
    from litebert.infer.predictor import Predictor

StrPath = str | os.PathLike[str]


class RunResult(run.RunResult):
    """A finished run. Wherever a model's folder is expected, this will do."""

    def load(self, **options: Any) -> "Predictor":
        """The trained model, ready to predict; options as of `litebert.load`."""
        from litebert.infer.predictor import load

        return load(self.folder, **options)


def pretrain(
    recipe: PretrainRecipe | str = "affordable",
    *,
    data: StrPath,
    out: StrPath,
    init: StrPath | None = None,
    device: str = "auto",
    kernels: str = "on",
    workers: int = 1,
    tensorboard: bool = False,
    progress: bool = True,
    **settings: Any,
) -> RunResult:
    """Pretrain an encoder on shards (`litebert data build`), or resume the run in the folder `out`.

    `recipe` is a PretrainRecipe or the name of one (NAMED); `settings` replace some of its fields,
    as the flags of `litebert pretrain` do: `steps=1000, learning_rate=1e-3`. `init` is a
    checkpoint, run or embedded model to start from, whose encoder's shape is taken over unless a
    `preset` is given. `kernels` may switch GPU kernels off: "off", "attention=off". `workers`
    processes prefetch batches. InterruptedRunError after a signal: the same call resumes.
    """
    chosen = named(recipe) if isinstance(recipe, str) else recipe
    start = None if init is None else find_checkpoint(os.fspath(init))
    if start is not None and "preset" not in settings:
        settings |= shape_settings(read_config(start).encoder)
    _check_settings(chosen, settings)
    result = run_pretraining(
        chosen.changed(settings) if settings else chosen,
        os.fspath(data),
        os.fspath(out),
        init=start,
        device=device,
        kernels=kernels,
        workers=workers,
        tensorboard=tensorboard,
        progress=progress,
    )
    return RunResult(**vars(result))


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
    kernels: str = "on",
    tensorboard: bool = False,
    progress: bool = True,
    **settings: Any,
) -> RunResult:
    """Fine-tune `model` for a task, or resume the run in `out`; the best on dev is saved.

    `task` is a benchmark (cola sst2 mrpc stsb qqp mnli qnli rte wnli squad1 squad2 race) with the
    folder of its files as `data`, or classify, pair, regress, choose, answer or tag with your own:
    a file or folder, a pandas DataFrame, a list of dicts, a datasets.Dataset, or a dict of these by
    split. `options` say which columns to read; by default they are recognized by their names.

    Without a `recipe` it is the paper's for the task (Table 14), scaled to model and data;
    `settings` replace some of its fields: `epochs=3, learning_rate=1e-4`. Several `seeds` give a
    run each, in folders of their own. InterruptedRunError after a signal: the same call resumes.
    """
    _check_settings(FinetuneRecipe, settings)
    result = run_finetuning(
        task,
        os.fspath(model),
        data,
        os.fspath(out),
        recipe=recipe,
        settings=settings,
        table=options,
        seeds=seeds,
        device=device,
        kernels=kernels,
        tensorboard=tensorboard,
        progress=progress,
    )
    return RunResult(**vars(result))


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
    result = run_evaluation(
        task,
        os.fspath(model),
        data,
        split=split,
        table=options,
        samples=samples,
        worst=worst,
        batch_tokens=batch_tokens,
        device=device,
        say=lambda note: None,
    )
    assert result.evaluation is not None
    return result.evaluation


def _check_settings(recipe: Any, settings: Mapping[str, Any]) -> None:
    """ConfigError for a setting that the recipe does not have."""
    known: list[str] = [
        each.name for each in (*fields(recipe), *fields(OptimizerSpec)) if each.name != "name"
    ]
    for name in settings:
        check_known("setting", name, [*known, "encoder"])
