"""litebert ensemble: fine-tuned models and a task's files in; the best of them together, beside
each alone, out."""

import json as jsonlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from litebert.commands.evaluate import TaskName, check_places, tell, writing
from litebert.commands.flags import Device, Json
from litebert.commands.scores_shown import print_scores
from litebert.errors import ConfigError
from litebert.tasks.tables.columns import TableOptions

Models = Annotated[tuple[str, ...], arg(metavar="DIR…")]


def ensemble(
    task: TaskName,
    /,
    *,
    models: Models,
    data: str,
    split: str = "dev",
    everyone: bool = False,
    out: str | None = None,
    submit: str | None = None,
    submit_split: str = "test",
    batch_tokens: int | None = None,
    device: Device = "auto",
    table: TableOptions,
    json: Json = False,
) -> None:
    """Put fine-tuned models together: average what they say, choose on dev who belongs to it, print
    the singles beside it.

    Models may come from different seeds, pretraining steps and shapes. Choosing by a score flatters
    that score: "on the other half" is chosen on one half of the split and scored on the other.

    Args:
        task: The task that all of them were fine-tuned on.
        models: Folders of fine-tuned checkpoints or runs; of `--seeds` give OUT/seed-0 OUT/seed-1
            ….
        data: Folder or file of the task.
        split: Labelled split to choose on.
        everyone: Take all models, and choose none.
        out: File to keep the ensemble's predictions of the split in.
        submit: Folder for the files that GLUE's or SQuAD's server takes, for submit_split.
        submit_split: Split to hand in.
        batch_tokens: Tokens computed at once, padding among them; less needs less memory.
    """
    if not models:
        raise ConfigError("an ensemble needs --models: the folders of fine-tuned models")
    check_places(out, submit)
    # torch only now: wrong flags are answered at once
    from litebert.tasks.benchmarks.submit import write_submission
    from litebert.tasks.predictions import save_predictions
    from litebert.tasks.scores.evaluation import evaluate
    from litebert.tasks.task import TaskData
    from litebert.train.ensemble import average, choose_on_dev
    from litebert.train.evaluate import FinetunedModel, open_task_for, predict_all
    from litebert.train.runtime import Runtime

    def opened(model: FinetunedModel) -> TaskData:
        found = open_task_for(
            model,
            task,
            data,
            table,
            [split] if submit is None else list(dict.fromkeys([split, submit_split])),
        )
        if not all(example.is_labelled for example in found.splits[split]):
            raise ConfigError(
                f"{split} of {task} has no labels to choose models by; take --split dev"
            )
        tell(found.notes)
        return found

    place = Runtime.start(device=device, dtype="float32").device
    read, said = predict_all(models, opened, device=place, batch_tokens=batch_tokens)
    examples = read.splits[split]
    found = choose_on_dev(read.task, examples, said[split])
    members = tuple(range(len(models))) if everyone else found.members
    together = average(read.task, [said[split][member] for member in members])
    measured = evaluate(read.task, examples, together)
    written = []
    if out is not None:
        with writing(out):
            Path(out).parent.mkdir(parents=True, exist_ok=True)
            save_predictions(out, read.task, examples, together)
        written.append(out)
    if submit is not None:
        guesses = average(read.task, [said[submit_split][member] for member in members])
        with writing(submit):
            handed = write_submission(
                read.task, submit_split, read.splits[submit_split], guesses, submit
            )
        tell(handed.notes)
        written += [str(path) for path in handed.files]
    if json:
        facts = (
            measured.to_dict()
            | asdict(found)
            | {"models": models, "members": [models[number] for number in members]}
        )
        print(jsonlib.dumps(facts | {"split": split, "written": written}, ensure_ascii=False))
        return
    chosen = f"{len(found.members)} chosen on {split}"
    rows = dict(zip(models, found.singles, strict=True))
    rows |= {
        f"all {len(models)} together": found.everyone,
        chosen: found.together,
        "chosen, on the other half": found.crossed,
    }
    print_scores(read.task, rows, {list(rows)[-3 if everyone else -2]: measured.intervals})
    print(f"members: {', '.join(models[number] for number in members)}")
    for path in written:
        print(f"written: {path}", file=sys.stderr)
