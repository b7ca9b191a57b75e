"""litebert finetune embed: a pretrained model and related texts in; a run folder and a checkpoint
whose vectors are close where texts are alike, out."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from litebert.commands.flags import RecipeFlags
from litebert.commands.marks import Device, Kernels, Minutes, Threads, Unverified, note
from litebert.files import to_json
from litebert.recipes.embed import EmbedRecipe
from litebert.tasks.tables.columns import TableOptions
from litebert.terminal import write_line


def _shown_recipe(name: str | None) -> EmbedRecipe:
    """The recipe whose values help shows: the file's, or the default."""
    return EmbedRecipe() if name is None else EmbedRecipe.load(name)


Settings = Annotated[dict[str, Any], RecipeFlags(_shown_recipe)]


def embed(
    *,
    model: str,
    out: str,
    data: str | None = None,
    dev: str | None = None,
    teacher: str | None = None,
    texts: str | None = None,
    recipe: str | None = None,
    device: Device = "auto",
    kernels: Kernels = "on",
    threads: Threads = None,
    minutes: Minutes = None,
    tensorboard: bool = False,
    unverified: Unverified = False,
    json: bool = False,
    text: str | None = None,
    second: str | None = None,
    label: str | None = None,
    bad_rows: Literal["error", "skip", "quarantine"] = "error",
    quarantine: str | None = None,
    max_bad_rows: float = 0.1,
    encoding: str = "auto",
    settings: Settings,
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
        tensorboard: Write TensorBoard events into the run folder as well.
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
    # torch only now: wrong flags are answered at once
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
        device=device,
        kernels=kernels,
        threads=threads,
        minutes=minutes,
        tensorboard=tensorboard,
        unverified=unverified,
    )
    if json:
        write_line(to_json(result.details, ensure_ascii=False))
        return
    for name, value in result.scores.items():
        write_line(f"{name:<20}{100 * value:>7.1f}")
    scored = "scores on dev" if result.scores else "no dev was given, so the last weights are saved"
    write_line(
        f"{scored}; the checkpoint is {Path(out) / 'final'}, the curves: litebert report {out}",
        file=sys.stderr,
    )
