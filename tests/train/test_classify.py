"""Fine-tuning a classifier: batches hold every text once, the loss is what it claims, and the best weights are kept."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from litebert.checkpoint import Checkpoint
from litebert.config import ModelConfig, preset
from litebert.errors import ConfigError, DataError
from litebert.model.model import Model
from litebert.recipes import OptimizerSpec
from litebert.train.classify import Classification, ClassifyJob, ClassifyRecipe, probabilities
from litebert.train.labelled import Labelled, collate, epoch_batches
from litebert.train.log import read_records
from litebert.train.runtime import Runtime

RUNTIME = Runtime(rank=0, world_size=1, device=torch.device("cpu"), dtype=torch.float32)
LABELS = ("low", "high")


class NoTokenizer:
    """As much of a tokenizer as fine-tuning asks for."""

    pad_id = 0

    def save(self, folder: Path) -> None:
        pass


def texts(count: int, seed: int) -> Labelled:
    """Texts of many lengths; which half of the vocabulary their tokens come from is the label."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, count)
    rows = [[2, *(draw.integers(5, 30, draw.integers(1, 20)) + 30 * label).tolist(), 3] for label in labels]
    return Labelled(token_ids=rows, labels=labels)


def run(recipe: ClassifyRecipe | None = None, **more: Any) -> Classification:
    torch.manual_seed(0)
    pretrained = Checkpoint(model=Model(ModelConfig(encoder=preset("tiny"))), tokenizer=NoTokenizer())  # type: ignore[arg-type]
    recipe = recipe or ClassifyRecipe(epochs=3, batch_size=8, optimizer=OptimizerSpec(rate=3e-3, warmup=0.1))
    parts = {"train": texts(120, 0), "dev": texts(60, 1)} | more
    return Classification(recipe, pretrained, LABELS, **parts, runtime=RUNTIME)


def test_an_epoch_holds_every_text_once_and_little_padding() -> None:
    lengths = np.random.default_rng(0).integers(1, 64, 1000)
    batches = epoch_batches(lengths, 16, seed=3, epoch=1)
    assert sorted(np.concatenate(batches).tolist()) == list(range(1000))
    padded = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert padded < 1.1 * lengths.sum()
    again, other = epoch_batches(lengths, 16, seed=3, epoch=1), epoch_batches(lengths, 16, seed=3, epoch=2)
    assert all(np.array_equal(a, b) for a, b in zip(batches, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(batches, other, strict=False))


def test_a_batch_is_padded_to_its_longest_text() -> None:
    batch = collate(Labelled(token_ids=[[2, 7, 3], [2, 3], [2, 3]], labels=np.array([1, 0, 0])), np.array([1, 0]), pad_id=9)
    assert batch.token_ids.tolist() == [[2, 3, 9], [2, 7, 3]]
    assert batch.mask.tolist() == [[True, True, False], [True, True, True]]
    assert batch.labels.tolist() == [0, 1]
    assert batch.rows(1, 2).token_ids.tolist() == [[2, 7, 3]]


def test_padding_changes_no_probability() -> None:
    model, some = run().model, texts(20, 2)
    together = probabilities(model, some, pad_id=0, device=RUNTIME.device)
    alone = [
        probabilities(model, Labelled(token_ids=[row], labels=some.labels[:1]), pad_id=0, device=RUNTIME.device)[0]
        for row in some.token_ids
    ]
    np.testing.assert_allclose(together, np.stack(alone), atol=1e-6)
    np.testing.assert_allclose(together.sum(1), 1, atol=1e-6)


def test_microbatches_add_up_to_the_batch() -> None:
    training = run(ClassifyRecipe(dropout=0.0))
    job = ClassifyJob(training.recipe, texts(40, 0), RUNTIME, pad_id=0)
    batch = max(job.batch(0), job.batch(1), key=len)
    whole = job.losses(training.model, batch, 0)
    parts = job.losses(training.model, batch.rows(0, 20), 0) + job.losses(training.model, batch.rows(20, 32), 0)
    torch.testing.assert_close(whole.loss, parts.loss)
    assert job.steps == 2 * 2
    assert sorted(len(job.batch(step)) for step in range(4)) == [8, 8, 32, 32]


def test_it_learns_and_keeps_what_was_best_on_dev(tmp_path: Path) -> None:
    training = run()
    done = training.train(tmp_path, progress=False)
    assert done["score"] > 0.9
    records = list(read_records(tmp_path / "metrics.jsonl"))
    assert max(record["score"] for record in records if record["kind"] == "evaluation") == done["score"]
    assert len([record for record in records if record["kind"] == "step"]) == done["steps"] == 45
    final = Checkpoint.load(tmp_path / "final").model
    guessed = probabilities(final, training.dev, pad_id=0, device=RUNTIME.device).argmax(1)
    assert np.mean(guessed == training.dev.labels) == done["score"]
    assert json.loads((tmp_path / "status.json").read_text())["state"] == "finished"


def test_the_same_run_gives_the_same_weights(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run().train(tmp_path / name, progress=False)
    assert (tmp_path / "a/final/model.safetensors").read_bytes() == (tmp_path / "b/final/model.safetensors").read_bytes()


def test_wrong_wishes_are_refused() -> None:
    with pytest.raises(ConfigError, match="epochs is a whole number from 1; got 0"):
        ClassifyRecipe(epochs=0)
    with pytest.raises(DataError, match="texts to train and score on; got 0 and 60 texts"):
        run(train=Labelled(token_ids=[], labels=np.zeros(0, int)))
