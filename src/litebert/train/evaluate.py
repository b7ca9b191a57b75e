"""A fine-tuned model is scored: its folder and a task's data in; predictions and scores of a split
out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch

from litebert.errors import ConfigError
from litebert.loading import load_checkpoint
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.examples import AnswerExample, TaskExample, only
from litebert.tasks.heads.heads import predict as predict_examples
from litebert.tasks.predictions import Prediction, SpanPrediction, check_numbers
from litebert.tasks.registry import label_names, open_task_as, predict_as
from litebert.tasks.scores.answers import at_threshold, best_threshold
from litebert.tasks.scores.baselines import bag_of_words, majority
from litebert.tasks.scores.evaluation import Evaluation, evaluate
from litebert.tasks.scores.score import score
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.task import Task, TaskCard, TaskData, shown
from litebert.text.tokenizer import Tokenizer
from litebert.train.run import to_stderr
from litebert.train.runtime import Runtime


@dataclass(frozen=True, kw_only=True)
class EvaluationResult:
    """A fine-tuned model on one split of a task."""

    model: str
    task: Task
    split: str
    examples: Sequence[TaskExample]
    predictions: list[Prediction]
    evaluation: Evaluation | None
    """Scores with intervals, slices and the worst examples; None where labels are missing."""
    baselines: dict[str, dict[str, float]]
    """Scores of the majority and of a bag of words, if requested."""
    null_threshold: float | None
    """The threshold for "no answer" that is saved with the model."""
    best_null: dict[str, float]
    """The threshold that would be best on this very split, and its F1, as SQuAD 2's script reports
    them; empty for other tasks."""
    notes: tuple[str, ...]

    @property
    def scores(self) -> dict[str, float]:
        """The official scores; empty where labels are missing."""
        return {} if self.evaluation is None else self.evaluation.scores


def run_evaluation(
    task: str,
    model: "Path | str | FinetunedModel",
    data: Any,
    *,
    split: str = "dev",
    table: TableOptions | None = None,
    baselines: bool = False,
    samples: int = 1000,
    worst: int = 5,
    unlabeled: bool = False,
    batch_tokens: int | None = None,
    device: str = "auto",
    threads: int | None = None,
    unverified: bool = False,
    say: Callable[[str], None] = to_stderr,
) -> EvaluationResult:
    """`litebert.evaluate` of a fine-tuned model: of a folder, or one that is loaded.

    `baselines` scores the majority and a bag of words as well, which learn from the train split;
    `samples` are resamples for the intervals of scores that are no proportion; `worst`, how many of
    the most confidently wrong examples to return; `unlabeled` predicts a split without labels too,
    which cannot be scored. `say` is called with each note.
    """
    if samples < 1 or worst < 0:
        raise ConfigError(f"samples is a number from 1 and worst from 0; got {samples} and {worst}")
    with Runtime.joined(device=device, dtype="float32", threads=threads) as runtime:
        finetuned = (
            model
            if isinstance(model, FinetunedModel)
            else FinetunedModel.load(model, unverified=unverified)
        )
        splits = (split, "train") if baselines and split != "train" else (split,)
        opened = open_task_for(finetuned, task, data, table, splits)
        finetuned = finetuned.for_task(opened.task)
        examples, notes = opened.splits[split], list(opened.notes)
        missing = [example for example in examples if not example.is_labeled]
        if 0 < len(missing) < len(examples):
            notes.append(
                f"{len(missing):,} of the {len(examples):,} examples of {split} have no label, so "
                f"that it is not scored; the first: {missing[0].where}"
            )
        if runtime.threads is not None and runtime.threads.count > 1:
            say(f"computing with {runtime.threads}")
        for note in notes:
            say(f"note: {note}")
        if missing and not unlabeled:
            raise ConfigError(
                f"{split} of {task} has no labels to score by; `litebert evaluate {task}` with "
                "--out FILE or --submit FOLDER writes its predictions"
            )
        predictions = finetuned.predict(examples, device=runtime.device, batch_tokens=batch_tokens)
        evaluation, best_null = None, {}
        if not missing:
            evaluation = evaluate(opened.task, examples, predictions, samples=samples, count=worst)
            if opened.task.has_null:
                best_null = _best_null(opened.task, examples, predictions)
        return EvaluationResult(
            model=finetuned.folder,
            task=opened.task,
            split=split,
            examples=examples,
            predictions=predictions,
            evaluation=evaluation,
            baselines=_baseline_scores(opened, split) if baselines and evaluation else {},
            null_threshold=finetuned.card.null_threshold,
            best_null=best_null,
            notes=opened.notes,
        )


@dataclass(frozen=True, kw_only=True)
class FinetunedModel:
    """A model with the head and the card of its task."""

    folder: str
    tokenizer: Tokenizer
    card: TaskCard
    checkpoint: Checkpoint | None = None
    """None where an engine predicts."""
    engine: Callable[[TaskCard, Sequence[TaskExample]], Sequence[Prediction]] | None = None
    """What predicts in place of the checkpoint: that of an exported model."""
    label_of: Mapping[str, str] = field(default_factory=dict)
    """What the scored task's files call each label, where the model has names for it."""

    @classmethod
    def load(cls, folder: Path | str, *, unverified: bool = False) -> Self:
        """The model of a folder; ConfigError where it was not fine-tuned."""
        checkpoint, _ = load_checkpoint(folder, unverified=unverified)
        if checkpoint.task is None:
            heads = ", ".join(head.kind for head in checkpoint.model.config.heads) or "none"
            raise ConfigError(
                f"the model in {folder} answers for no task (its heads: {heads}); run litebert "
                "finetune TASK first"
            )
        if checkpoint.tokenizer is None:
            raise ConfigError(
                f"the model in {folder} has no tokenizer, and texts cannot be read without; put "
                "spiece.model there"
            )
        card = TaskCard.from_dict(checkpoint.task)
        return cls(
            folder=str(folder), checkpoint=checkpoint, tokenizer=checkpoint.tokenizer, card=card
        )

    def predict(
        self,
        examples: Sequence[TaskExample],
        *,
        device: torch.device | str = "cpu",
        batch_tokens: int | None = None,
    ) -> list[Prediction]:
        def predict(rows: Sequence[TaskExample]) -> Sequence[Prediction]:
            if self.engine is not None:
                return self.engine(self.card, rows)
            assert self.checkpoint is not None
            return predict_examples(
                self.checkpoint.model.to(device),
                self.card,
                rows,
                self.tokenizer,
                device=device,
                batch_tokens=batch_tokens,
            )

        predictions = predict_as(self.label_of, predict, examples)
        check_numbers(predictions)
        return predictions

    def for_task(self, task: Task) -> Self:
        """This model with the labels that the benchmark's files have."""
        return replace(self, label_of=label_names(self.card, task))

    def check_task(self, task: Task) -> None:
        """Refuse a task that this model has no answers for; one of the same kind and labels will
        do, as the diagnostic set."""
        mine = self.card.task
        if mine.kind != task.kind:
            raise ConfigError(
                f"{task.name} is a task of kind {task.kind}, the model in {self.folder} was "
                f"fine-tuned on {mine.name}, "
                f"of kind {mine.kind}; fine-tune one for {task.name}"
            )
        if (mine.head == "multilabel") != (task.head == "multilabel"):
            raise ConfigError(
                f"the model in {self.folder} has a {mine.head} head, {task.name} needs a "
                f"{task.head} head; fine-tune one for {task.name}"
            )
        label_of = label_names(self.card, task)
        labels = {label_of.get(label, label) for label in mine.labels}
        if labels != set(task.labels):
            raise ConfigError(
                f"the labels of {task.name} are {shown(task.labels)}, those of the model in "
                f"{self.folder} are "
                f"{shown(mine.labels)}; fine-tune one for {task.name}"
            )


def open_task_for(
    model: FinetunedModel,
    task: str,
    data: Any,
    options: TableOptions | None,
    splits: Sequence[str],
) -> TaskData:
    """A task's splits for a model that was fine-tuned for it."""
    opened = open_task_as(model.card, task, data, splits, options)
    model.check_task(opened.task)
    notes = opened.notes
    if label_of := label_names(model.card, opened.task):
        meant = ", ".join(f"{label} is {name}" for name, label in label_of.items())
        notes += (f"labels of {opened.task.name}: {meant}",)
    if (mine := model.card.task).name != opened.task.name:
        notes += (f"{model.folder} was fine-tuned on {mine.name}, not on {opened.task.name}",)
    return replace(opened, notes=notes)


def predict_all(
    folders: Sequence[Path | str],
    read: Callable[[FinetunedModel], TaskData],
    *,
    device: torch.device | str = "cpu",
    batch_tokens: int | None = None,
    unverified: bool = False,
) -> tuple[TaskData, dict[str, list[list[Prediction]]]]:
    """The predictions of each model for each split that `read` opens for the first of them. One
    model is in memory at a time."""
    first = FinetunedModel.load(folders[0], unverified=unverified)
    data = read(first)
    predictions: dict[str, list[list[Prediction]]] = {split: [] for split in data.splits}
    for number, folder in enumerate(folders):
        model = FinetunedModel.load(folder, unverified=unverified) if number else first
        model.check_task(data.task)
        for split, examples in data.splits.items():
            predictions[split].append(
                model.for_task(data.task).predict(
                    examples, device=device, batch_tokens=batch_tokens
                )
            )
    return data, predictions


def _baseline_scores(data: TaskData, split: str) -> dict[str, dict[str, float]]:
    train, examples = data.splits["train"], data.splits[split]
    named = {"majority": majority, "bag of words": bag_of_words}
    return {
        name: score(data.task, examples, baseline(data.task, train, examples))
        for name, baseline in named.items()
    }


def _best_null(
    task: Task, examples: Sequence[TaskExample], predictions: Sequence[Prediction]
) -> dict[str, float]:
    questions, spans = only(examples, AnswerExample), only(predictions, SpanPrediction)
    threshold = best_threshold(questions, spans)
    f1 = score(task, questions, at_threshold(spans, threshold))["f1"]
    return {"best_threshold": threshold, "best_f1": f1}
