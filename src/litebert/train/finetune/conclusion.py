"""The end of a fine-tuning: the best checkpoint of a run in; the final one, its predictions for dev
and its result out.
 Each part can be done again after a process that was ended in the middle; result.json comes last
and marks the end.
"""

import json
import shutil
from typing import Any, cast

import torch

from litebert.errors import CheckpointError
from litebert.files import publish, write_json
from litebert.storage.checkpoint import Checkpoint
from litebert.tasks.heads.heads import predict_inputs
from litebert.tasks.predictions import save_predictions
from litebert.tasks.scores.score import score
from litebert.tasks.task import TaskCard
from litebert.train.finetune.prepared import Part
from litebert.train.folder import RunFolder

PREDICTIONS = "dev_predictions.jsonl"
RESULT = "result.json"


def conclude(
    folder: RunFolder,
    dev: Part,
    about: dict[str, Any],
    *,
    device: torch.device,
    batch_tokens: int | None,
) -> dict[str, Any]:
    """Name the best checkpoint final, ask it about dev once more, and write what it said; the
    result, `about` among it."""
    try:
        if folder.best.is_dir():
            shutil.rmtree(folder.final, ignore_errors=True)
            publish(folder.best, folder.final)
        kept = Checkpoint.load(folder.final)
        assert kept.task is not None
        card = TaskCard.from_dict(kept.task)
        model = kept.model.to(device)
        said = predict_inputs(
            model, card, dev.inputs, dev.examples, device=device, batch_tokens=batch_tokens
        )
        save_predictions(folder.path / PREDICTIONS, card.task, dev.examples, said)
        scores = score(card.task, dev.examples, said)
        best = {"task": card.task.name, "score": scores[card.task.scores[0]], "scores": scores}
        result = (
            best
            | about
            | {"null_threshold": card.null_threshold, "dev_examples": len(dev.examples)}
        )
        write_json(folder.path / RESULT, result)
    except OSError as error:
        raise CheckpointError(
            f"the run is at its end, but its result could not be written: {error}; free some space "
            "and give the same "
            "command again"
        ) from error
    shutil.rmtree(folder.snapshots, ignore_errors=True)
    return result


def read_result(folder: RunFolder) -> dict[str, Any] | None:
    """What a finished run found; None where none has finished."""
    path = folder.path / RESULT
    try:
        return cast(dict[str, Any], json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}; remove the folder, and give the same command again"
        ) from error
