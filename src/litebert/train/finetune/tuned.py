"""A fine-tuned model put to the test: its folder and a task's data in, what it says of a split
out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from litebert.errors import ConfigError
from litebert.loading import load_checkpoint
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.examples import TaskExample
from litebert.tasks.heads.heads import predict
from litebert.tasks.predictions import Prediction
from litebert.tasks.registry import BENCHMARKS, open_task
from litebert.tasks.tables.columns import TableOptions
from litebert.tasks.task import LABELLED, Task, TaskCard, TaskData, shown
from litebert.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A model that answers for a task."""

    folder: str
    checkpoint: Checkpoint
    tokenizer: Tokenizer
    card: TaskCard

    def says(
        self,
        examples: Sequence[TaskExample],
        *,
        device: torch.device | str = "cpu",
        batch_tokens: int | None = None,
        pause: Callable[[], None] = lambda: None,
    ) -> list[Prediction]:
        """A prediction for each example, in their order."""
        model = self.checkpoint.model.to(device)
        return predict(
            model,
            self.card,
            examples,
            self.tokenizer,
            device=device,
            batch_tokens=batch_tokens,
            pause=pause,
        )

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
        if set(mine.labels) != set(task.labels):
            raise ConfigError(
                f"the labels of {task.name} are {shown(task.labels)}, those of the model in "
                f"{self.folder} are "
                f"{shown(mine.labels)}; fine-tune one for {task.name}"
            )


def open_tuned(folder: Path | str) -> Tuned:
    """The model of a folder; ConfigError where it was not fine-tuned."""
    checkpoint, _ = load_checkpoint(folder)
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
    return Tuned(
        folder=str(folder), checkpoint=checkpoint, tokenizer=checkpoint.tokenizer, card=card
    )


def open_for(
    tuned: Tuned, name: str, data: Any, options: TableOptions, splits: Sequence[str]
) -> TaskData:
    """A task's splits for a model that can answer for it; of one's own data the labels are those
    that the model knows."""
    mine = tuned.card.task
    if name not in BENCHMARKS and mine.kind in LABELLED and options.labels is None:
        options = replace(options, labels=mine.labels)
    found = open_task(name, data, options=options, splits=splits, head=mine.head)
    tuned.check_task(found.task)
    other = f"{tuned.folder} was fine-tuned on {mine.name}, not on {found.task.name}"
    return replace(found, notes=(*found.notes, other)) if mine.name != found.task.name else found


def ask_all(
    folders: Sequence[Path | str],
    read: Callable[[Tuned], TaskData],
    *,
    device: torch.device | str = "cpu",
    batch_tokens: int | None = None,
) -> tuple[TaskData, dict[str, list[list[Prediction]]]]:
    """What each model says of each split that `read` opens for the first of them. One model is in
    memory at a time."""
    first = open_tuned(folders[0])
    data = read(first)
    said: dict[str, list[list[Prediction]]] = {split: [] for split in data.splits}
    for number, folder in enumerate(folders):
        tuned = open_tuned(folder) if number else first
        tuned.check_task(data.task)
        for split, examples in data.splits.items():
            said[split].append(tuned.says(examples, device=device, batch_tokens=batch_tokens))
    return data, said
