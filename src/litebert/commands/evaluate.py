"""litebert evaluate: a fine-tuned model and a task's files in; official scores, intervals, slices
and worst examples out. litebert ensemble: the same for several models, averaged."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from litebert.commands.marks import (
    BatchTokens,
    Device,
    Engine,
    Json,
    Threads,
    Threshold,
    Unverified,
    note,
)
from litebert.commands.score_tables import print_evaluation, print_exits, print_scores
from litebert.errors import ConfigError, DataError
from litebert.files import check_own, open_atomic, to_json
from litebert.infer.verbs import EngineChoice
from litebert.tasks.decode.exits import Criterion
from litebert.tasks.tables.columns import TableOptions
from litebert.terminal import write_line, write_stderr

if TYPE_CHECKING:
    from litebert.infer.exit_scores import ExitScores
    from litebert.infer.predictor import Predictor
    from litebert.tasks.examples import TaskExample
    from litebert.tasks.predictions import Prediction
    from litebert.tasks.task import Task
    from litebert.train.evaluate import EvaluationResult, FinetunedModel

_TaskName = Annotated[str, Positional, arg(metavar="TASK")]
_Exits = Annotated[
    Criterion | Literal["all"] | None,
    arg(
        help="Also score a model with exits (finetune --exits) where texts leave early, by one "
        "criterion or by all that are calibrated: score, mean depth, layers and time saved."
    ),
]


def evaluate(
    task: _TaskName,
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
    batch_tokens: BatchTokens = None,
    engine: Engine = "auto",
    device: Device = "auto",
    threads: Threads = None,
    exit: _Exits = None,
    threshold: Threshold = None,
    curve: str | None = None,
    unverified: Unverified = False,
    table: TableOptions,
    json: Json = False,
) -> None:
    """Score a fine-tuned model on a split of a task: the official scores, their 95 % intervals,
    slices, the confusion of labels and the worst examples.

    Args:
        task: cola sst2 mrpc stsb qqp mnli qnli rte wnli diagnostic squad1 squad2 race, or for your
            own files classify pair regress choose answer tag. Without fine-tuning: litebert
            evaluate masked, blimp, similarity, retrieval.
        model: Folder of a fine-tuned checkpoint or run.
        data: Folder or file of the task.
        split: dev, test, train; mnli also has dev_mismatched and test_mismatched.
        baselines: Also score two baselines, the majority class and a bag of words, trained on the
            train split.
        samples: Bootstrap resamples for the intervals of scores that are no proportion.
        worst: Number of the most confidently wrong examples to print.
        out: File for the predictions, one per line with its example.
        submit: Folder for the files that GLUE's or SQuAD's server accepts.
        curve: JSON file for the score, mean depth and time of every criterion at many thresholds
            (needs --exit); RUN/exits.json is drawn by litebert report.
    """
    from litebert.infer.predictor import load
    from litebert.train.evaluate import FinetunedModel, run_evaluation

    _check_writable(out, submit, curve)
    if exit is None and (curve is not None or threshold is not None):
        raise ConfigError("--threshold and --curve are of early exit; add --exit all, or name one")
    loading: dict[str, Any] = {
        "batch_tokens": batch_tokens,
        "device": device,
        "threads": threads,
        "unverified": unverified,
    }
    predictor: Predictor | None = None
    finetuned: FinetunedModel | None = None
    if exit is not None or _is_exported(model, engine):
        predictor = load(model, engine=engine, **loading)
        note(*predictor.notes)
        if exit not in (None, "all"):
            predictor.leave_early(exit, threshold)
        if predictor.card is None:
            raise ConfigError(f"{model} was fine-tuned for no task; run litebert finetune first")
        finetuned = FinetunedModel(
            folder=model,
            tokenizer=predictor.tokenizer,
            card=predictor.card,
            engine=predictor.engine.predict,
        )
    result = run_evaluation(
        task,
        finetuned or model,
        data,
        split=split,
        table=table,
        baselines=baselines,
        samples=samples,
        worst=worst,
        unlabeled=out is not None or submit is not None,
        **loading,
    )
    examples, predictions, evaluation = result.examples, result.predictions, result.evaluation
    facts: dict[str, Any] = {"model": model, "split": split, "notes": list(result.notes)}
    if out is not None:
        facts["predictions"] = _save(out, result.task, examples, predictions)
    if submit is not None:
        facts["submission"] = _submit(submit, result.task, split, examples, predictions)
    facts |= result.best_null
    exits = None
    if exit is not None and evaluation:
        assert predictor is not None
        assert finetuned is not None
        exits = _score_exits(predictor, finetuned, result, exit, threshold, curve, samples)
        facts["exits"] = exits.to_dict()
    elif exit is not None:
        note(f"{split} has no labels, so that early exit is not scored")
    if json:
        scored = (
            evaluation.to_dict()
            if evaluation
            else {"task": result.task.name, "num_examples": len(examples)}
        )
        facts |= scored | {"baselines": result.baselines}
        write_line(to_json(facts, ensure_ascii=False))
        return
    if evaluation:
        print_evaluation(evaluation, {model: evaluation.scores} | result.baselines)
    if exits is not None:
        print_exits(exits)
    if result.best_null:
        saved = result.null_threshold
        used = (
            "none is saved: all are answered"
            if saved is None
            else f"saved with the model: {saved:.4g}"
        )
        best = f"{facts['best_threshold']:.4g} would give f1 {100 * facts['best_f1']:.1f}"
        write_line(f"threshold for no answer, {used}; the best for this split, {best}")
    for path in [*([out] if out else []), *facts.get("submission", [])]:
        write_stderr(f"written: {path}")


def ensemble(
    task: _TaskName,
    /,
    *,
    models: Annotated[tuple[str, ...], arg(metavar="DIR…")],
    data: str,
    split: str = "dev",
    everyone: bool = False,
    out: str | None = None,
    submit: str | None = None,
    submit_split: str = "test",
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
    threads: Threads = None,
    unverified: Unverified = False,
    table: TableOptions,
    json: Json = False,
) -> None:
    """Average the predictions of fine-tuned models, select members on dev, and print their scores
    beside those of each model.

    Models may differ in seed, pretraining steps and shape. Selecting by a score flatters that
    score: "on the other half" selects on one half of the split and scores the other.

    Args:
        task: The task that all models were fine-tuned on.
        models: Folders of fine-tuned checkpoints or runs; of `--seeds` give OUT/seed-0 OUT/seed-1
            ….
        data: Folder or file of the task.
        split: Labeled split to select on.
        everyone: Average all models instead of selecting some.
        out: File for the ensemble's predictions of the split.
        submit: Folder for the files that GLUE's or SQuAD's server accepts, with the predictions of
            --submit-split.
        submit_split: Split to submit.
    """
    if not models:
        raise ConfigError("an ensemble needs --models: the folders of fine-tuned models")
    _check_writable(out, submit)
    from litebert.tasks.heads.heads import average
    from litebert.tasks.scores.evaluation import evaluate as score_predictions
    from litebert.tasks.task import TaskData
    from litebert.train.ensemble import choose_on_dev
    from litebert.train.evaluate import FinetunedModel, open_task_for, predict_all
    from litebert.train.runtime import Runtime

    def open_data(model: FinetunedModel) -> TaskData:
        splits = [split] if submit is None else list(dict.fromkeys([split, submit_split]))
        loaded = open_task_for(model, task, data, table, splits)
        if not all(example.is_labeled for example in loaded.splits[split]):
            raise ConfigError(
                f"{split} of {task} has no labels to choose models by; take --split dev"
            )
        note(*loaded.notes)
        return loaded

    target = Runtime.start(device=device, dtype="float32", threads=threads).device
    loaded, predictions = predict_all(
        models, open_data, device=target, batch_tokens=batch_tokens, unverified=unverified
    )
    examples = loaded.splits[split]
    choice = choose_on_dev(loaded.task, examples, predictions[split])
    members = tuple(range(len(models))) if everyone else choice.members
    averaged = average(loaded.task, [predictions[split][member] for member in members])
    evaluation = score_predictions(loaded.task, examples, averaged)
    written = [] if out is None else [_save(out, loaded.task, examples, averaged)]
    if submit is not None:
        submitted = average(loaded.task, [predictions[submit_split][i] for i in members])
        unlabeled = loaded.splits[submit_split]
        written += _submit(submit, loaded.task, submit_split, unlabeled, submitted)
    names = [models[member] for member in members]
    if json:
        facts = evaluation.to_dict() | asdict(choice) | {"models": models, "members": names}
        write_line(to_json(facts | {"split": split, "written": written}, ensure_ascii=False))
        return
    rows = dict(zip(models, choice.singles, strict=True))
    rows |= {
        f"all {len(models)} together": choice.everyone,
        f"{len(choice.members)} chosen on {split}": choice.together,
        "chosen, on the other half": choice.crossed,
    }
    print_scores(loaded.task, rows, {list(rows)[-3 if everyone else -2]: evaluation.intervals})
    write_line(f"members: {', '.join(names)}")
    for path in written:
        write_stderr(f"written: {path}")


def _is_exported(model: str, engine: EngineChoice) -> bool:
    """Whether another engine than torch computes; training's own code predicts with torch."""
    from litebert.infer.exported import is_export
    from litebert.loading import find_checkpoint

    return engine not in ("auto", "torch") or is_export(find_checkpoint(model))


def _score_exits(
    predictor: "Predictor",
    finetuned: "FinetunedModel",
    result: "EvaluationResult",
    exit: str,
    threshold: float | None,
    curve: str | None,
    samples: int,
) -> "ExitScores":
    """The rules that were asked for, side by side; and a file of many."""
    from litebert.infer.exit_scores import chosen_rules, curve_rules, curves, score_exits

    rules = chosen_rules(predictor, exit, threshold)
    if not rules:
        note(
            "the model has no calibrated threshold to score; name one with --exit CRITERION "
            "--threshold N, or draw all with --exit all --curve FILE"
        )
    model, task, examples = finetuned.for_task(result.task), result.task, result.examples
    scores = score_exits(predictor, task, examples, rules, predict=model.predict, samples=samples)
    if curve is not None:
        many = score_exits(
            predictor, task, examples, curve_rules(predictor), predict=model.predict, samples=1
        )
        with _writing(curve), open_atomic(curve) as file:
            file.write(to_json(curves(many), indent=2).encode() + b"\n")
        write_stderr(f"written: {curve}")
    return scores


def _check_writable(out: str | None, submit: str | None, curve: str | None = None) -> None:
    """Refuse outputs that cannot be written before anything is computed."""
    if out is not None and Path(out).is_dir():
        raise ConfigError(f"{out} is a folder; --out is a file for the predictions")
    if submit is not None and Path(submit).is_file():
        raise ConfigError(f"{submit} is a file; --submit takes a folder")
    if out is not None:
        check_own(out, '{"task": ', "a file of predictions")
    if curve is not None:
        check_own(curve, '"score_name"', "a file of curves")


def _save(
    out: str,
    task: "Task",
    examples: Sequence["TaskExample"],
    predictions: Sequence["Prediction"],
) -> str:
    """Write predictions beside their examples; the file."""
    from litebert.tasks.predictions import save_predictions

    with _writing(out):
        Path(out).parent.mkdir(parents=True, exist_ok=True)
        save_predictions(out, task, examples, predictions)
    return out


def _submit(
    folder: str,
    task: "Task",
    split: str,
    examples: Sequence["TaskExample"],
    predictions: Sequence["Prediction"],
) -> list[str]:
    """Write the files that a benchmark's server accepts; their paths."""
    from litebert.tasks.benchmarks.submit import write_submission

    with _writing(folder):
        submission = write_submission(task, split, examples, predictions, folder)
    note(*submission.notes)
    return [str(path) for path in submission.files]


@contextmanager
def _writing(path: str) -> Iterator[None]:
    """An OSError as the user's to fix."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{path} cannot be written ({error.strerror or error}); choose another place for it"
        ) from error
