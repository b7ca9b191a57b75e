"""litebert evaluate: a fine-tuned model and a task's files in; official scores, intervals, slices
and worst examples out."""

import json as jsonlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from litebert.commands.flags import Device, Json
from litebert.commands.scores_shown import print_evaluation
from litebert.errors import ConfigError, DataError
from litebert.tasks.tables.columns import TableOptions

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
    from litebert.train.evaluate import run_evaluation

    check_places(out, submit)
    result = run_evaluation(
        task,
        model,
        data,
        split=split,
        table=table,
        baselines=baselines,
        samples=samples,
        worst=worst,
        unlabelled=out is not None or submit is not None,
        batch_tokens=batch_tokens,
        device=device,
    )
    examples, predictions, evaluation = result.examples, result.predictions, result.evaluation
    facts: dict[str, Any] = {"model": model, "split": split, "notes": list(result.notes)}
    if out is not None:
        with writing(out):
            Path(out).parent.mkdir(parents=True, exist_ok=True)
            save_predictions(out, result.task, examples, predictions)
        facts["predictions"] = out
    if submit is not None:
        with writing(submit):
            submission = write_submission(result.task, split, examples, predictions, submit)
        facts["submission"] = [str(path) for path in submission.files]
        tell(submission.notes)
    facts |= result.best_null
    if json:
        scored = (
            evaluation.to_dict()
            if evaluation
            else {"task": result.task.name, "num_examples": len(examples)}
        )
        facts |= scored | {"baselines": result.baselines}
        print(jsonlib.dumps(facts, ensure_ascii=False))
        return
    if evaluation:
        print_evaluation(evaluation, {model: evaluation.scores} | result.baselines)
    if result.best_null:
        saved = result.null_threshold
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


def tell(notes: Iterable[str]) -> None:
    """What the user should know, beside the result."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
