"""litebert finetune, finetune embed: a pretrained model and a task's files, or related texts, in; a
run folder with metrics, predictions and a checkpoint out."""

from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from litebert.commands.flags import RecipeFlags
from litebert.commands.marks import (
    POSITIONAL,
    Arg,
    Device,
    Kernels,
    Minutes,
    TensorBoard,
    Threads,
    Unverified,
    note,
)
from litebert.files import to_json
from litebert.recipes import EmbedRecipe, FinetuneRecipe
from litebert.tasks.tables.columns import TableOptions
from litebert.terminal import write_line, write_stderr

_BY_TASK = frozenset(
    {"steps", "batch_size", "max_length", "encoder_dropout", "learning_rate", "warmup"}
)
"""Settings of ALBERT Table 14."""


def _finetune_recipe(name: str | None) -> FinetuneRecipe:
    """The recipe whose values help shows: the file's, or the defaults that no task changes."""
    return FinetuneRecipe(task="", steps=1) if name is None else FinetuneRecipe.load(name)


def _embed_recipe(name: str | None) -> EmbedRecipe:
    return EmbedRecipe() if name is None else EmbedRecipe.load(name)


Settings = Annotated[
    dict[str, Any], RecipeFlags(_finetune_recipe, omitted=frozenset({"task"}), by_task=_BY_TASK)
]


class _RunFlags(NamedTuple):
    device: Device = "auto"
    kernels: Kernels = "on"
    threads: Threads = None
    minutes: Minutes = None
    tensorboard: TensorBoard = False
    unverified: Unverified = False


def finetune(
    task: Annotated[str, POSITIONAL, Arg(metavar="TASK")],
    /,
    *,
    model: str,
    data: str,
    out: str,
    recipe: str | None = None,
    seeds: int = 1,
    exit_texts: str | None = None,
    run: _RunFlags,
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
        exit_texts: Table with rows of the task to calibrate the thresholds of early exit on, with
            --exits; labels are not needed, 10,000 rows are plenty. By default a part of train is
            kept aside for it.
        json: Print one JSON object at the end.
    """
    chosen = None if recipe is None else FinetuneRecipe.load(recipe, note=note)
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
        exit_texts=exit_texts,
        **run._asdict(),
    )
    if not is_main_rank():
        return
    if json:
        write_line(to_json(result.details, ensure_ascii=False))
    else:
        _print_scores(result.details, Path(out))


def embed(
    *,
    model: str,
    out: str,
    data: str | None = None,
    dev: str | None = None,
    teacher: str | None = None,
    texts: str | None = None,
    recipe: str | None = None,
    run: _RunFlags,
    json: bool = False,
    text: str | None = None,
    second: str | None = None,
    label: str | None = None,
    bad_rows: Literal["error", "skip", "quarantine"] = "error",
    quarantine: str | None = None,
    max_bad_rows: float = 0.1,
    encoding: str = "auto",
    settings: Annotated[dict[str, Any], RecipeFlags(_embed_recipe)],
) -> None:
    """Tune a model's embeddings: vectors of related texts become close, those of the others of a
    batch distant. The same command again resumes an interrupted run.

    The columns say what the data are: anchor and positive (and negative, negative_1 …); premise,
    hypothesis and label (entailed hypotheses are positives, contradictions hard negatives);
    text_a, text_b and score (cosines learn the scores); or text alone, which is read twice with
    different dropout (SimCSE).

    With --teacher instead of --data the model learns another model's vectors: by 1 − cosine where
    widths are equal, else by the cosines between the texts of a batch.

    Args:
        model: What to start from: a checkpoint, a run's folder, or a Hugging Face folder. Its heads
            are not used.
        out: Folder of the run.
        data: A table (CSV, TSV, JSONL, Parquet), a .txt file with a text a line, or a folder with
            train.* and maybe dev.*.
        dev: Scored pairs (text_a, text_b, score), whose Spearman correlation with the cosines
            chooses the checkpoint; by default dev.* of the data; without either the last weights
            are the result.
        teacher: A .npy file of vectors to learn, a row for each line of --texts.
        texts: A .txt file with the teacher's texts, one a line.
        recipe: A JSON file with a recipe (every run writes its own as recipe.json).
        json: Print one JSON object at the end.
        text: Column of the anchor, the premise, the first text or the text alone; columns without a
            flag are recognized by their names.
        second: Column of the positive, the hypothesis or the second text.
        label: Column of the NLI label.
        bad_rows: What to do with a row that cannot be used: stop, skip it, or skip it and store a
            copy.
        quarantine: File that quarantined rows are copied to; by default quarantine.jsonl in the
            run's folder.
        max_bad_rows: Largest fraction of rows that may be left out; more, if they are ten or more,
            is an error.
        encoding: Encoding of text files, such as cp1252 or utf-16; auto is UTF-8 or what the file's
            first bytes say, else a guess that is printed.
    """
    table = TableOptions(
        text=text,
        second=second,
        label=label,
        bad_rows=bad_rows,
        quarantine=quarantine,
        max_bad_rows=max_bad_rows,
        encoding=encoding,
    )
    chosen = None if recipe is None else EmbedRecipe.load(recipe, note=note)
    from litebert.train.finetune.embed_run import run_embed_finetuning

    result = run_embed_finetuning(
        model,
        data,
        out,
        recipe=chosen,
        settings=settings,
        dev=dev,
        teacher=teacher,
        texts=texts,
        table=table,
        **run._asdict(),
    )
    if json:
        write_line(to_json(result.details, ensure_ascii=False))
        return
    for name, value in result.scores.items():
        write_line(f"{name:<20}{100 * value:>7.1f}")
    scored = "scores on dev" if result.scores else "no dev was given, so the last weights are saved"
    write_stderr(
        f"{scored}; the checkpoint is {Path(out) / 'final'}, the curves: litebert report {out}"
    )


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
        write_stderr(
            "no threshold of early exit is stored: too few texts were kept aside to show that at "
            "most 0.5 % of the answers change (598 are needed, --exit-texts gives more), or the "
            "depths differ too often"
        )
    failed = result.get("failed", int(not result.get("left_chance", True)))
    if failed:
        runs = f"{failed} of {len(result['seeds'])} runs" if "seeds" in result else "the run"
        write_stderr(f"{runs} did not beat the majority baseline: see the events in metrics.jsonl")
    curves = out / "seed-*" if "seeds" in result else out
    write_stderr(
        f"scores on dev; the checkpoint is {out / 'final'}, the curves: litebert report {curves}"
    )
