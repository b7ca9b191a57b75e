"""litebert evaluate: a fine-tuned model and a task's files in; official scores, intervals, slices
and worst examples out."""

import json as jsonlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from litebert.commands.flags import Device, Json
from litebert.commands.scores_shown import baseline_scores, print_evaluation
from litebert.errors import ConfigError, DataError
from litebert.tasks.tables.columns import TableOptions

if TYPE_CHECKING:
    from litebert.tasks.predictions import Prediction
    from litebert.tasks.task import TaskData

TaskName = Annotated[str, Positional, arg(metavar="TASK")]


def evaluate(
    task: TaskName,
    /,
    *,
    model: str,
    data: str,
    split: str = "dev",
    baselines: bool = False,
    samples: int = 1000,
    worst: int = 5,
    out: str | None = None,
    submit: str | None = None,
    batch_tokens: int | None = None,
    device: Device = "auto",
    table: TableOptions,
    json: Json = False,
) -> None:
    """Score a fine-tuned model on a split of a task: the official scores, their 95 % intervals,
    slices and worst examples.

    Args:
        task: cola sst2 mrpc stsb qqp mnli qnli rte wnli diagnostic squad1 squad2 race, or of one's
            own files classify pair
            regress choose answer tag.
        model: Folder of a fine-tuned checkpoint or run.
        data: Folder or file of the task.
        split: dev, test, train; mnli also has dev_mismatched and test_mismatched.
        baselines: Score the majority and a bag of words beside it; they learn from the train split.
        samples: Resamples of the bootstrap that the intervals come from.
        worst: How many of the most confidently wrong examples to show.
        out: File to keep the predictions in, one a line with its example.
        submit: Folder for the files that GLUE's or SQuAD's server takes.
        batch_tokens: Tokens computed at once, padding among them; less needs less memory.
    """
    # torch only now: wrong flags are answered at once
    from litebert.tasks.benchmarks.submit import write_submission
    from litebert.tasks.predictions import save_predictions
    from litebert.tasks.scores.evaluation import evaluate as measured
    from litebert.train.finetune.tuned import open_for, open_tuned
    from litebert.train.runtime import Runtime

    check_places(out, submit)
    if samples < 1 or worst < 0:
        raise ConfigError(f"samples is a number from 1 and worst from 0; got {samples} and {worst}")
    place = Runtime.start(device=device, dtype="float32").device
    tuned = open_tuned(model)
    read = open_for(
        tuned, task, data, table, (split, "train") if baselines and split != "train" else (split,)
    )
    tell(read.notes)
    examples = read.splits[split]
    unknown = [example for example in examples if not example.is_labelled]
    if 0 < len(unknown) < len(examples):
        some = f"{len(unknown):,} of the {len(examples):,} examples of {split} have no label"
        tell([f"{some}, so that it is not scored; the first: {unknown[0].where}"])
    if unknown and out is None and submit is None:
        raise ConfigError(
            f"{split} of {task} has no labels to score by; give --submit FOLDER or --out FILE for "
            "its predictions"
        )
    predictions = tuned.says(examples, device=place, batch_tokens=batch_tokens)
    facts: dict[str, Any] = {"model": model, "split": split, "notes": list(read.notes)}
    if out is not None:
        with writing(out):
            Path(out).parent.mkdir(parents=True, exist_ok=True)
            save_predictions(out, read.task, examples, predictions)
        facts["predictions"] = out
    if submit is not None:
        with writing(submit):
            handed = write_submission(read.task, split, examples, predictions, submit)
        facts["submission"] = [str(path) for path in handed.files]
        tell(handed.notes)
    found = (
        measured(read.task, examples, predictions, samples=samples, count=worst)
        if not unknown
        else None
    )
    rivals = baseline_scores(read, split) if baselines and found else {}
    if found and read.task.has_null:
        facts |= best_null(read, split, predictions)
    if json:
        scored = (
            found.to_dict() if found else {"task": read.task.name, "num_examples": len(examples)}
        )
        print(jsonlib.dumps(facts | scored | {"baselines": rivals}, ensure_ascii=False))
        return
    if found:
        print_evaluation(found, {model: found.scores} | rivals)
    if "best_threshold" in facts:
        saved = tuned.card.null_threshold
        used = (
            "none is saved: all are answered"
            if saved is None
            else f"saved with the model: {saved:.4g}"
        )
        best = f"{facts['best_threshold']:.4g} would give f1 {100 * facts['best_f1']:.1f}"
        print(f"threshold for no answer, {used}; the best for this very split, {best}")
    for path in [*([out] if out else []), *facts.get("submission", [])]:
        print(f"written: {path}", file=sys.stderr)


def check_places(out: str | None, submit: str | None) -> None:
    """Refuse what cannot be written to before anything is computed."""
    if out is not None and Path(out).is_dir():
        raise ConfigError(f"{out} is a folder; --out is a file for the predictions")
    if submit is not None and Path(submit).is_file():
        raise ConfigError(f"{submit} is a file; --submit takes a folder")


@contextmanager
def writing(place: str) -> Iterator[None]:
    """A disk that does not take it is the user's to mend."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{place} cannot be written ({error.strerror or error}); choose another place for it"
        ) from error


def best_null(
    read: "TaskData", split: str, predictions: "Sequence[Prediction]"
) -> dict[str, float]:
    """The null threshold that would be best on this very split, and its F1: as SQuAD 2's script
    reports them."""
    from litebert.tasks.examples import AnswerExample, only
    from litebert.tasks.predictions import SpanPrediction
    from litebert.tasks.scores.answers import at_threshold, best_threshold
    from litebert.tasks.scores.score import score

    questions, spans = only(read.splits[split], AnswerExample), only(predictions, SpanPrediction)
    threshold = best_threshold(questions, spans)
    return {
        "best_threshold": threshold,
        "best_f1": score(read.task, questions, at_threshold(spans, threshold))["f1"],
    }


def tell(notes: Iterable[str]) -> None:
    """What the user should know, beside the result."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
