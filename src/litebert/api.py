"""Training from Python: litebert.pretrain, litebert.finetune and litebert.evaluate.

The same runs as the commands of these names: called again with the same arguments they resume, and
a finished run returns its result at once.
"""

import os
from dataclasses import fields
from typing import Any, Literal, TypedDict, Unpack, overload

from litebert.checks import check_known
from litebert.config import Pooling
from litebert.errors import ConfigError
from litebert.infer.blimp import BlimpScores, score_blimp
from litebert.infer.masked_scores import MaskedOptions, MaskedScores, score_masked
from litebert.infer.predictor import Predictor, load
from litebert.infer.vector_scores import RetrievalScores, score_retrieval, score_similarity
from litebert.infer.verbs import DType
from litebert.loading import find_checkpoint
from litebert.recipes import EmbedRecipe, FinetuneRecipe, PretrainRecipe, named
from litebert.recipes.pretrain import with_shape
from litebert.storage.checkpoint import read_config
from litebert.tasks.registry import TableOptions
from litebert.tasks.scores.evaluation import Evaluation
from litebert.tasks.scores.vectors import SimilarityScores
from litebert.train import run
from litebert.train.evaluate import run_evaluation
from litebert.train.finetune.embed_run import run_embed_finetuning
from litebert.train.finetune.seeds import run_finetuning
from litebert.train.pretrain.run import run_pretraining

StrPath = str | os.PathLike[str]


class RunResult(run.RunResult):
    """A finished run. Wherever a model's folder is expected, this will do."""

    def load(self, **options: Any) -> Predictor:
        """The trained model, ready to predict; options as of `litebert.load`."""
        return load(self.folder, **options)


def pretrain(
    recipe: PretrainRecipe | str = "affordable",
    *,
    data: StrPath,
    out: StrPath,
    init: StrPath | None = None,
    device: str = "auto",
    kernels: str = "on",
    threads: int | None = None,
    workers: int = 1,
    minutes: float | None = None,
    tensorboard: bool = False,
    progress: bool = True,
    **settings: Any,
) -> RunResult:
    """Pretrain an encoder on shards (`litebert data build`), or resume the run in the folder `out`.

    `recipe` is a PretrainRecipe or the name of one (NAMED); `settings` replace some of its fields,
    as the flags of `litebert pretrain` do: `steps=1000, learning_rate=1e-3`. `init` is a
    checkpoint, run or embedded model to start from, whose encoder's shape is taken over unless a
    `preset` is given. `kernels` may switch GPU kernels off: "off", "attention=off". `workers`
    processes prefetch batches. InterruptedRunError after a signal or after `minutes`: the same call
    resumes.
    """
    chosen = named(recipe) if isinstance(recipe, str) else recipe
    start = None if init is None else find_checkpoint(os.fspath(init))
    if start is not None:
        settings = with_shape(settings, read_config(start).encoder)
    chosen.check_settings(settings)
    result = run_pretraining(
        chosen.changed(settings) if settings else chosen,
        os.fspath(data),
        os.fspath(out),
        init=start,
        device=device,
        kernels=kernels,
        threads=threads,
        workers=workers,
        minutes=minutes,
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
    recipe: FinetuneRecipe | EmbedRecipe | None = None,
    seeds: int = 1,
    options: TableOptions | None = None,
    device: str = "auto",
    kernels: str = "on",
    threads: int | None = None,
    minutes: float | None = None,
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
    `settings` replace some of its fields: `epochs=3, learning_rate=1e-4`. With `exits="each"` the
    thresholds of early exit are calibrated on rows kept aside, or on the file `exit_texts=`, whose
    rows need no labels. Several `seeds` give a run each, in folders of their own.
    InterruptedRunError after a signal or after `minutes`: the
    same call resumes.

    The task embed tunes embeddings on pairs, triplets, NLI rows, scored pairs or texts alone, as
    `litebert finetune embed` does; `dev` are scored pairs. With data=None it learns a teacher's
    vectors: `teacher="vectors.npy", texts="texts.txt"`. Its recipe is an EmbedRecipe.
    """
    common: dict[str, Any] = {
        "table": options,
        "device": device,
        "kernels": kernels,
        "threads": threads,
        "minutes": minutes,
        "tensorboard": tensorboard,
        "progress": progress,
    }
    start, folder = os.fspath(model), os.fspath(out)
    result: run.RunResult
    if task == "embed":
        if recipe is not None and not isinstance(recipe, EmbedRecipe):
            raise ConfigError("the recipe of embed is an EmbedRecipe; got that of another task")
        if seeds != 1:
            raise ConfigError(f"embed has one run; got seeds={seeds}: give seed=1 … to single runs")
        common["dev"] = settings.pop("dev", None)
        for name in ("teacher", "texts"):
            path = settings.pop(name, None)
            common[name] = None if path is None else os.fspath(path)
        EmbedRecipe.check_settings(settings)
        result = run_embed_finetuning(
            start, data, folder, recipe=recipe, settings=settings, **common
        )
    else:
        if isinstance(recipe, EmbedRecipe):
            raise ConfigError(f"the recipe is for embed, the task is {task}; take a FinetuneRecipe")
        texts = settings.pop("exit_texts", None)
        common["exit_texts"] = None if texts is None else os.fspath(texts)
        FinetuneRecipe.check_settings(settings)
        result = run_finetuning(
            task, start, data, folder, recipe=recipe, settings=settings, seeds=seeds, **common
        )
    return RunResult(**vars(result))


class _Loading(TypedDict, total=False):
    """Settings of `load` that tasks without fine-tuning take."""

    device: str
    threads: int | None
    dtype: DType
    batch_tokens: int | None


class _VectorSettings(_Loading, total=False):
    pooling: Pooling | None
    dimensions: int | None
    samples: int


@overload
def evaluate(
    task: Literal["masked"], *, model: StrPath, data: StrPath, **settings: Any
) -> MaskedScores: ...
@overload
def evaluate(
    task: Literal["blimp"],
    *,
    model: StrPath,
    data: StrPath,
    limit: int | None = None,
    within_word: bool = False,
    bad_rows: Literal["error", "skip"] = "error",
    **settings: Unpack[_Loading],
) -> BlimpScores: ...
@overload
def evaluate(
    task: Literal["similarity"],
    *,
    model: StrPath,
    data: Any,
    options: TableOptions | None = None,
    **settings: Unpack[_VectorSettings],
) -> SimilarityScores: ...
@overload
def evaluate(
    task: Literal["retrieval"],
    *,
    model: StrPath,
    queries: StrPath,
    corpus: StrPath,
    qrels: StrPath,
    **settings: Unpack[_VectorSettings],
) -> RetrievalScores: ...
@overload
def evaluate(
    task: str,
    *,
    model: StrPath,
    data: Any,
    split: str = "dev",
    options: TableOptions | None = None,
    device: str = "auto",
    threads: int | None = None,
    batch_tokens: int | None = None,
    samples: int = 1000,
    worst: int = 5,
) -> Evaluation: ...
def evaluate(
    task: str, *, model: StrPath, data: Any = None, **settings: Any
) -> Evaluation | MaskedScores | BlimpScores | SimilarityScores | RetrievalScores:
    """Score a fine-tuned model on a split of a task: official scores, their 95 % intervals by
    bootstrap of `samples`, scores by slice, confusion, and the `worst` predictions.

    `model` is a checkpoint, a run folder or a RunResult; `data` as for `finetune`. Where a single
    table was given for training, dev is the same tenth of it as then; `split="test"` scores all.

    Two tasks need a masked-token head and no fine-tuning. "masked": loss, accuracy and perplexity
    of masked tokens on files of text or a folder of shards, with the fields of MaskedOptions as
    settings: `max_length=64, max_ngram=1`. "blimp": minimal pairs by pseudo-log-likelihood, of a
    folder of BLiMP's files.

    Two score the vectors of any model: "similarity" by their cosines on scored pairs, "retrieval"
    on the files `queries`, `corpus` and `qrels`, beside BM25 and TF-IDF.
    """
    if task not in ("masked", "blimp", "similarity", "retrieval"):
        result = run_evaluation(
            task,
            os.fspath(model),
            data,
            table=settings.pop("options", None),
            say=lambda note: None,
            **settings,
        )
        assert result.evaluation is not None
        return result.evaluation
    names = _Loading.__annotations__
    loading = {name: settings.pop(name) for name in names if name in settings}
    if task == "retrieval":
        return score_retrieval(load(model, **loading), **settings)
    if task == "similarity":
        return score_similarity(load(model, **loading), data, **settings)
    options = None
    if task == "masked":  # wrong settings are refused before the model is loaded
        for name in settings:
            check_known("setting", name, [field.name for field in fields(MaskedOptions)])
        options = MaskedOptions(**settings)
    engine = load(model, engine="torch", **loading).torch_engine
    return score_masked(engine, data, options) if options else score_blimp(engine, data, **settings)
